//! The SAM application in `deploy/aws/lambda`.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use ichido_testkit::process::Process;
use ichido_testkit::{free_port, required_env};
use serde_json::{Value, json};

use super::{assert_validates, read, repository_path, run_ok};
use crate::{stderr, without_settings};

const TEMPLATE: &str = "deploy/aws/lambda/template.yaml";

#[test]
fn template_passes_the_linter() {
    let lint = || {
        let mut command = Command::new(required_env("ICHIDO_TEST_CFN_LINT"));
        command.args(["-c", "I", "-t"]);
        command
    };
    assert_validates(lint, TEMPLATE, "MemorySize: 256", "MemorySise: 256");
}

/// The actions on DynamoDB that a text lists.
fn actions(text: &str) -> BTreeSet<String> {
    text.lines().filter_map(|line| line.trim().strip_prefix("- dynamodb:")).map(str::to_owned).collect()
}

/// The tests of `deploy/aws/ichido.yaml` show that claims need every action of its policy.
#[test]
fn function_may_claim_but_not_scan() {
    let table = read("deploy/aws/ichido.yaml");
    let policy = table.split_once("\n  ClaimsPolicy:\n").unwrap().1;
    let mut expected = actions(policy);
    assert!(expected.remove("Scan"), "{expected:?}");
    assert_eq!(actions(&read(TEMPLATE)), expected);
}

/// Lambda starts the layer's file without arguments.
#[test]
fn binary_of_the_layer_is_an_extension() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("extensions/ichido");
    std::fs::create_dir(dir.path().join("extensions")).unwrap();
    symlink(env!("CARGO_BIN_EXE_ichido"), &file).unwrap();
    let mut command = ichido_at(&file, dir.path());
    command.env("ICHIDO_LEDGER_URL", "memory:");
    let output =
        command.env("AWS_LAMBDA_RUNTIME_API", format!("127.0.0.1:{}", free_port())).output().unwrap();
    let expected = "cannot register \"ichido\" with the Lambda Extensions API";
    assert!(!output.status.success() && stderr(&output).contains(expected), "{}", stderr(&output));
}

/// The program in a directory, without settings from the environment.
fn ichido_at(program: &Path, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(dir);
    without_settings(|name| {
        command.env_remove(name);
    });
    command
}

/// Runs the bot's handler against a claim API and a fake of Slack.
#[test]
fn sample_bot_replies_once_to_each_event() {
    let dir = tempfile::tempdir().unwrap();
    let claims = ["claims", "--ledger", "memory:", "--listen", "127.0.0.1:0"];
    let mut command = ichido_at(Path::new(env!("CARGO_BIN_EXE_ichido")), dir.path());
    let mut claims = Process::start(command.args(claims)).unwrap();
    let address = claims.wait_for_address("ichido claims: listening on ").unwrap();

    let modules = dir.path().join("node_modules");
    std::fs::create_dir(&modules).unwrap();
    symlink(super::libraries::npm_library(), modules.join("ichido")).unwrap();
    for file in ["index.js", "package.json"] {
        std::fs::copy(repository_path("deploy/aws/lambda/bot").join(file), dir.path().join(file)).unwrap();
    }
    std::fs::write(dir.path().join("slack_bot.mjs"), include_str!("slack_bot.mjs")).unwrap();
    let mut node = Command::new(required_env("ICHIDO_TEST_NODE"));
    node.arg("slack_bot.mjs").env("ICHIDO_API", format!("http://{address}")).current_dir(dir.path());
    let printed = run_ok(&mut node, "");
    // The bot logs what is in doubt to standard error, after this line.
    let results: Value = serde_json::from_str(printed.lines().next().unwrap()).unwrap();
    let expected = json!({
        "challenge": "c0", "forged": 401, "stale": 401, "first": 200, "again": 200,
        // Nothing happened, so the event is free for Slack's retry.
        "limited": ["NothingHappened", 200],
        // Nobody knows whether the message was posted, so it is not posted again.
        "lost": [200, 200], "attempts_lost": 1,
        // Ev1, one of the two deliveries of Ev2, and Ev3.
        "posted": 3, "raced": true,
    });
    assert_eq!(results, expected, "{printed}");
}
