//! The README and the pages under `docs` are true: every command in them is run, and does what it says; their settings are
//! settings, their Rust compiles.
//!
//! A block is found by its first command, and run line by line as in a shell ([`scene`]). [`table`] says of each command
//! how it is run and what must come of it. A command that is not in the table fails the tests.

mod commands;
mod markdown;
mod pages;
mod rust;
mod shell;
mod synopsis;

use self::markdown::{Block, blocks, page};
use self::shell::{Scene, example};
use crate::events::given;
use crate::support::Orders;
use crate::{ichido, stderr};

const ENGLISH: &str = "README.md";
const JAPANESE: &str = "README.ja.md";

/// The first commands of the blocks that are typed; each has a test.
const FIRST: [&str; 6] = [
    "cargo run --release -- demo",
    "ichido gateway --upstream http://127.0.0.1:5000",
    "node server.js &",
    "ichido claims --ledger dynamodb:",
    "export EXTERNAL_API_ENDPOINT=https://api.example.com/v1/usage EXTERNAL_API_TOKEN_FILE=/run/secrets/token",
    "export DIFY_DATABASE_URL=postgres://readonly@dify-db/dify",
];

/// The blocks whose lines are commands.
fn scenes(name: &str) -> Vec<Block> {
    let all = blocks(&page(name)).into_iter();
    all.filter(|block| {
        let is_other = block.is_picture()
            || block.is_promql()
            || block.is_synopsis()
            || block.is_listing()
            || block.is_request();
        block.may_be_typed() && !is_other
    })
    .collect()
}

/// Types the block of the README that begins so.
fn play(scene: Scene, first: &str) {
    play_of(ENGLISH, scene, first);
}

fn play_of(page: &str, mut scene: Scene, first: &str) {
    let block = scenes(page).into_iter().find(|block| block.typed()[0].command.starts_with(first));
    let block = block.unwrap_or_else(|| panic!("{page} has no block that begins with {first}"));
    block.typed().iter().for_each(|typed| scene.types(typed));
    scene.ends();
}

#[test]
fn every_command_of_the_readme_is_known_to_these_tests() {
    let found = scenes(ENGLISH);
    let first: Vec<_> = found.iter().map(|block| block.typed()[0].command.clone()).collect();
    assert_eq!(first, FIRST, "a block that no test runs");
    for typed in found.iter().flat_map(Block::typed) {
        assert!(commands::way(&typed.command).is_some(), "no test knows this command: {}", typed.command);
    }
    let typed: Vec<_> = found.iter().flat_map(Block::typed).map(|typed| typed.command).collect();
    for (known, _) in commands::TABLE {
        assert!(typed.iter().any(|command| command == known), "no longer in {ENGLISH}: {known}");
    }
}

/// The Japanese one says the same to a shell: the same commands in the same order, with comments of its own.
#[test]
fn both_readmes_have_the_same_commands() {
    let commands = |name: &str| -> Vec<Vec<(String, Vec<String>)>> {
        let of =
            |block: &Block| block.typed().into_iter().map(|typed| (typed.command, typed.prints)).collect();
        scenes(name).iter().map(of).collect()
    };
    assert_eq!(commands(JAPANESE), commands(ENGLISH));
    let others = |name: &str, wanted: fn(&Block) -> bool| -> Vec<Vec<String>> {
        blocks(&page(name)).into_iter().filter(wanted).map(|block| block.lines).collect()
    };
    assert_eq!(others(JAPANESE, Block::is_promql), others(ENGLISH, Block::is_promql));
    let usages = |name: &str| -> Vec<String> {
        let lines = others(name, Block::is_synopsis).into_iter().flatten();
        lines.map(|line| synopsis::usage(&line).to_owned()).collect()
    };
    assert_eq!(usages(JAPANESE), usages(ENGLISH));
}

#[test]
fn the_first_command_shows_the_whole_story() {
    play(Scene::new(), FIRST[0]);
}

#[test]
fn an_api_behind_the_gateway_answers_as_the_readme_says() {
    let mut scene = Scene::new();
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    scene.stands("127.0.0.1:5000", orders.address.to_string());
    play(scene, FIRST[1]);
    assert_eq!(orders.effects().len(), 1, "one order");
}

#[test]
fn express_and_fastapi_are_started_as_the_readme_says() {
    let mut scene = Scene::new();
    scene.program("node", &given("ICHIDO_TEST_NODE"));
    scene.program("uvicorn", &given("ICHIDO_TEST_UVICORN"));
    scene.file("server.js", &example("express/server.js"));
    scene.file("app.py", &example("fastapi/app.py"));
    scene.variable("NODE_PATH", given("ICHIDO_TEST_NODE_MODULES"));
    scene.variable("PORT", "0");
    scene.stands("--port 8000", "--port 0");
    scene.stands("0.0.0.0:8080", "127.0.0.1:0");
    play(scene, FIRST[2]);
}

#[test]
fn an_event_is_checked_as_the_readme_says() {
    play(with_a_table(), FIRST[3]);
}

/// A shell that has a table of its own on a real DynamoDB.
fn with_a_table() -> Scene {
    let mut scene = Scene::new();
    let (table, server) = crate::events::table();
    scene.variable("DEDUP_TABLE_NAME", table);
    scene.variable("AWS_ENDPOINT_URL_DYNAMODB", server);
    scene
}

#[test]
fn records_are_sent_as_the_readme_says() {
    records_are_sent(ENGLISH, FIRST[4]);
}

fn records_are_sent(page: &str, first: &str) {
    let mut scene = Scene::new();
    let stage = crate::delivery::Stage::new();
    let (receiver, authority) = stage.way();
    scene.stands("https://api.example.com", receiver);
    scene.stands("/run/secrets/token", scene.dir.path().join("token").display().to_string());
    scene.variable("EXTERNAL_API_CA_FILE", authority.display().to_string());
    scene.file("token", "of-the-readme\n");
    let record = |number: u32| format!("{{\"source_event_id\":\"e{number}\",\"total_tokens\":{number}}}\n");
    scene.file("usage.jsonl", &(0..3).map(record).collect::<String>());
    play_of(page, scene, first);
    stage.receiver.has_each_once(3);
}

#[test]
fn usage_of_dify_comes_to_the_bill_as_the_readme_says() {
    let mut scene = Scene::new();
    let yesterday = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date().yesterday().unwrap();
    let yesterday = yesterday.to_string();
    scene.stands("postgres://readonly@dify-db/dify", crate::export::dify_with_a_call_on(&yesterday));
    scene.stands("2026-11-01", yesterday.clone());
    scene.stands("2026-11-15", yesterday);
    // By default a day is over an hour after its end, and in that hour there is no yesterday to export.
    scene.file("ichido.toml", "[export.dify]\nsettle_minutes = 0\n");
    play(scene, FIRST[5]);
}

/// promtool reads expressions in rules.
#[test]
fn the_expressions_for_prometheus_are_expressions() {
    let dir = tempfile::tempdir().unwrap();
    let found = blocks(&page(ENGLISH)).into_iter().filter(Block::is_promql).flat_map(|block| block.lines);
    let rules: String = found
        .enumerate()
        .map(|(number, line)| format!("      - record: readme:rule{number}\n        expr: '{line}'\n"))
        .collect();
    assert!(!rules.is_empty());
    let file = dir.path().join("rules.yml");
    std::fs::write(&file, format!("groups:\n  - name: readme\n    rules:\n{rules}")).unwrap();
    let said = std::process::Command::new("promtool").args(["check", "rules"]).arg(&file).output().unwrap();
    assert!(said.status.success(), "{rules}: {}", String::from_utf8_lossy(&said.stderr));
}

/// What does not connect here is none of our business; what is no setting is. (The pages on events and on the meter have
/// tests of their own, beside the settings.)
#[test]
fn every_settings_file_in_the_documentation_is_one() {
    for name in [ENGLISH, JAPANESE, "docs/console.md", "docs/dynamodb.md", "docs/usage.md"] {
        let found = blocks(&page(name)).into_iter().filter(|block| block.language == "toml");
        // Of two that exclude each other, one.
        let lines = |block: Block| -> Vec<String> {
            block.lines.into_iter().filter(|line| !line.starts_with("console = ")).collect()
        };
        let found: Vec<_> = found.map(|block| lines(block).join("\n")).collect();
        assert!(!found.is_empty(), "{name} has no settings any more");
        for settings in found {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("of-the-text.toml"), &settings).unwrap();
            let checked = ichido(dir.path())
                .args(["check", "--json", "--config", "of-the-text.toml", "--ledger", "memory:"])
                .env("DIFY_DATABASE_URL", "postgres://nobody@127.0.0.1:1/dify")
                .output()
                .unwrap();
            assert!(checked.status.code() < Some(2), "{name}: {settings}\n{}", stderr(&checked));
            let report: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
            for check in report["checks"].as_array().unwrap() {
                let accepted = check["verdict"] != "failed" || check["what"] == "dify";
                assert!(accepted, "{name}: {settings}\n{check}");
            }
        }
    }
}
