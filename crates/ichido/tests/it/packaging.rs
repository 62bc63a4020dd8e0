//! What is installed with the binary, and how it is deployed: manual pages, shell completions, a systemd unit, Prometheus
//! rules, a Grafana dashboard, a Debian package, an image, and what runs them.

mod compose;
mod debian;
mod image;
mod kubernetes;
mod lambda;
mod libraries;

mod registries;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ichido_testkit::required_env;
use serde_json::Value;

use crate::{ichido, ok, refused, stderr, stdout};

/// The path of a file or directory in the repository.
pub(crate) fn repository_path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository_path(path)).unwrap()
}

/// Runs a program with this input, asserts that it succeeds, and returns its output.
fn run_ok(command: &mut Command, input: &str) -> String {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    assert!(output.status.success(), "{command:?}: {printed}");
    printed
}

/// A program that checks files against their schemas.
fn validator(program: &str) -> Command {
    Command::new(Path::new(&required_env("ICHIDO_TEST_VALIDATORS")).join(program))
}

/// Asserts that a validator accepts a file of the repository, and refuses it with `right` replaced by `wrong`.
fn assert_validates(validator: impl Fn() -> Command, path: &str, right: &str, wrong: &str) {
    run_ok(validator().arg(repository_path(path)), "");
    let text = read(path);
    assert!(text.contains(right), "{path} does not contain {right}");
    let broken = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(broken.path(), text.replace(right, wrong)).unwrap();
    let output = validator().arg(broken.path()).output().unwrap();
    assert!(!output.status.success(), "{wrong} was accepted in {path}: {}", stdout(&output));
}

/// The documents of a YAML file in the repository.
fn yaml(path: &str) -> Vec<Value> {
    let script = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(open(sys.argv[1]))), sys.stdout)";
    let printed = run_ok(validator("python").args(["-c", script]).arg(repository_path(path)), "");
    serde_json::from_str(&printed).unwrap()
}

/// Asserts that `ichido check` finds nothing wrong with settings, given the secrets that they need.
fn assert_settings_are_accepted(settings: &str) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("ichido.toml"), settings).unwrap();
    let checked = ichido(dir.path())
        .args(["check", "--ledger", "memory:"])
        .env("ICHIDO_ADMIN_TOKEN", "at-least-16-characters")
        .env("EXTERNAL_API_TOKEN", "a-token")
        .output()
        .unwrap();
    assert!(checked.status.success(), "{settings}\n{}{}", stdout(&checked), stderr(&checked));
}

#[test]
fn every_file_in_the_installation_guide_exists() {
    let guide = read("docs/install.md");
    let words = guide.split(|letter: char| letter.is_whitespace() || "`()".contains(letter));
    let named: BTreeSet<_> =
        words.filter(|word| word.starts_with("deploy/") || word.starts_with("crates/")).collect();
    assert!(named.len() >= 8, "{named:?}");
    // The reader creates these.
    let created = ["deploy/compose/.env", "deploy/aws/lambda/layer/extensions/ichido"];
    for path in named.into_iter().filter(|path| !created.contains(path)) {
        assert!(repository_path(path).exists(), "{path}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    ok(dir.path(), &["man", "man1"]);
    let names: BTreeSet<_> = std::fs::read_dir(dir.path().join("man1"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let help = ok(dir.path(), &["--help"]);
    let commands = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let commands = commands.lines().filter_map(|line| line.split_whitespace().next());
    for command in commands.filter(|command| *command != "help") {
        assert!(names.contains(&format!("ichido-{command}.1")), "{command} has no manual page: {names:?}");
    }
    assert!(
        !names.iter().any(|name| name.contains("demo-worker")),
        "hidden commands must not have a manual page"
    );
    let page = std::fs::read_to_string(dir.path().join("man1/ichido-ledger-resolve.1")).unwrap();
    assert!(page.contains(".SH NAME") && page.contains("Record what happened to a claim in doubt"), "{page}");
}

#[test]
fn error_names_the_directory_that_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("man1"), "a file").unwrap();
    assert!(refused(dir.path(), &["man", "man1"], 2).starts_with("ichido: man1: "));
}

#[test]
fn bash_completes_commands() {
    let dir = tempfile::tempdir().unwrap();
    let script = ok(dir.path(), &["completions", "bash"])
        + "COMP_WORDS=(ichido led); COMP_CWORD=1; _ichido ichido led ichido; echo \"${COMPREPLY[@]}\"";
    assert_eq!(run_ok(Command::new("bash").arg("-s"), &script).trim(), "ledger");
    for shell in ["zsh", "fish"] {
        assert!(ok(dir.path(), &["completions", shell]).contains("resolve"), "{shell}");
    }
}

#[test]
fn systemd_accepts_the_unit() {
    let dir = tempfile::tempdir().unwrap();
    let unit = std::fs::read_to_string(repository_path("deploy/systemd/ichido.service")).unwrap();
    // systemd-analyze checks that the binary and the manual page exist. Neither is installed here.
    let unit = unit.replace("/usr/local/bin/ichido", env!("CARGO_BIN_EXE_ichido"));
    let unit: String = unit
        .lines()
        .filter(|line| !line.starts_with("Documentation="))
        .map(|line| format!("{line}\n"))
        .collect();
    let path = dir.path().join("ichido.service");
    std::fs::write(&path, unit).unwrap();
    let printed = run_ok(Command::new("systemd-analyze").arg("verify").arg(&path), "");
    assert!(!printed.contains("ichido.service"), "{printed}");
}

/// An unreachable store and an invalid setting have the same exit code, and only the setting needs an operator. So
/// systemd must restart the unit after either.
#[test]
fn systemd_restarts_the_unit_until_its_store_is_reachable() {
    let unit = std::fs::read_to_string(repository_path("deploy/systemd/ichido.service")).unwrap();
    let (head, service) = unit.split_once("[Service]").unwrap();
    assert!(head.contains("\nStartLimitIntervalSec=0\n"), "{head}");
    assert!(service.contains("\nRestart=on-failure\n"), "{service}");
    for setting in ["RestartPreventExitStatus", "SuccessExitStatus"] {
        assert!(!service.contains(setting), "{setting}");
    }
}

#[test]
fn prometheus_rules_are_valid_and_pass_their_tests() {
    let dir = repository_path("deploy/prometheus");
    run_ok(Command::new("promtool").args(["check", "rules", "ichido.rules.yml"]).current_dir(&dir), "");
    run_ok(Command::new("promtool").args(["test", "rules", "ichido.rules.test.yml"]).current_dir(&dir), "");
}

/// The queries of the dashboard.
fn queries() -> Vec<String> {
    let text = std::fs::read_to_string(repository_path("deploy/grafana/ichido.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn dashboard_queries_are_valid() {
    let queries = queries();
    assert!(queries.len() > 20, "{queries:?}");
    let dir = tempfile::tempdir().unwrap();
    let rules: Vec<_> = queries
        .iter()
        .enumerate()
        .map(|(number, query)| {
            // Grafana replaces these variables.
            let query =
                query.replace("$__rate_interval", "5m").replace("$__range", "1h").replace("$instance", ".*");
            serde_json::json!({ "record": format!("query:{number}"), "expr": query })
        })
        .collect();
    // Every JSON document is also YAML.
    let file = serde_json::json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
    std::fs::write(dir.path().join("rules.yml"), file.to_string()).unwrap();
    run_ok(Command::new("promtool").args(["check", "rules", "rules.yml"]).current_dir(dir.path()), "");
}

/// The metrics that a text names, without the `_bucket` suffix of histograms.
fn metrics(text: &str) -> BTreeSet<String> {
    let names =
        text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_' || letter == ':'));
    names
        .filter(|name| name.starts_with("ichido_"))
        .map(|name| name.trim_end_matches("_bucket").to_owned())
        .collect()
}

/// Appends all Rust source files below a directory to `text`.
fn append_sources(dir: &Path, text: &mut String) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            append_sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn rules_and_dashboard_use_only_existing_metrics() {
    let mut sources = String::new();
    for entry in std::fs::read_dir(repository_path("crates")).unwrap() {
        append_sources(&entry.unwrap().path().join("src"), &mut sources);
    }
    let rules = std::fs::read_to_string(repository_path("deploy/prometheus/ichido.rules.yml")).unwrap();
    let named = metrics(&(rules + &queries().join("\n")));
    assert!(named.len() > 15, "{named:?}");
    for name in named {
        assert!(sources.contains(&format!("\"{name}\"")), "no source file defines the metric {name}");
    }
}
