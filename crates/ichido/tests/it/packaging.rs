//! What is installed beside the binary: manual pages, completions, a unit, rules and plots for its metrics.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{ok, refused};

/// A directory or file of the repository.
fn of_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// What a program says of its input, if it accepts it.
fn accepted(command: &mut Command, input: &str) -> String {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    said
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
        assert!(names.contains(&format!("ichido-{command}.1")), "{command} is not among {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("demo-worker")), "hidden commands are nobody's business");
    let page = std::fs::read_to_string(dir.path().join("man1/ichido-ledger-resolve.1")).unwrap();
    assert!(page.contains(".SH NAME") && page.contains("Record what happened to a claim in doubt"), "{page}");
}

#[test]
fn pages_that_cannot_be_written_are_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("man1"), "a file").unwrap();
    assert!(refused(dir.path(), &["man", "man1"], 2).starts_with("ichido: man1: "));
}

#[test]
fn completions_are_understood_by_bash() {
    let dir = tempfile::tempdir().unwrap();
    let script = ok(dir.path(), &["completions", "bash"])
        + "COMP_WORDS=(ichido led); COMP_CWORD=1; _ichido ichido led ichido; echo \"${COMPREPLY[@]}\"";
    assert_eq!(accepted(Command::new("bash").arg("-s"), &script).trim(), "ledger");
    for shell in ["zsh", "fish"] {
        assert!(ok(dir.path(), &["completions", shell]).contains("resolve"), "{shell}");
    }
}

#[test]
fn systemd_accepts_the_unit() {
    let dir = tempfile::tempdir().unwrap();
    let unit = std::fs::read_to_string(of_repository("deploy/systemd/ichido.service")).unwrap();
    // Where the binary is not installed, the unit is asked about this one. The page it points to is not installed either.
    let unit = unit.replace("/usr/local/bin/ichido", env!("CARGO_BIN_EXE_ichido"));
    let unit: String = unit
        .lines()
        .filter(|line| !line.starts_with("Documentation="))
        .map(|line| format!("{line}\n"))
        .collect();
    let path = dir.path().join("ichido.service");
    std::fs::write(&path, unit).unwrap();
    let said = accepted(Command::new("systemd-analyze").arg("verify").arg(&path), "");
    assert!(!said.contains("ichido.service"), "{said}");
}

/// A store that is out of reach and a wrong setting share an exit code, and only one of them needs a person.
#[test]
fn the_unit_is_started_again_until_its_store_is_there() {
    let unit = std::fs::read_to_string(of_repository("deploy/systemd/ichido.service")).unwrap();
    let (head, service) = unit.split_once("[Service]").unwrap();
    assert!(head.contains("\nStartLimitIntervalSec=0\n"), "{head}");
    assert!(service.contains("\nRestart=on-failure\n"), "{service}");
    for never in ["RestartPreventExitStatus", "SuccessExitStatus"] {
        assert!(!service.contains(never), "{never}");
    }
}

#[test]
fn the_rules_are_right_and_their_tests_pass() {
    let dir = of_repository("deploy/prometheus");
    accepted(Command::new("promtool").args(["check", "rules", "ichido.rules.yml"]).current_dir(&dir), "");
    accepted(Command::new("promtool").args(["test", "rules", "ichido.rules.test.yml"]).current_dir(&dir), "");
}

/// The queries of the dashboard.
fn queries() -> Vec<String> {
    let text = std::fs::read_to_string(of_repository("deploy/grafana/ichido.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_dashboard_asks_what_prometheus_understands() {
    let queries = queries();
    assert!(queries.len() > 20, "{queries:?}");
    let dir = tempfile::tempdir().unwrap();
    let rules: Vec<_> = queries
        .iter()
        .enumerate()
        .map(|(number, query)| {
            // Grafana fills these in.
            let query =
                query.replace("$__rate_interval", "5m").replace("$__range", "1h").replace("$instance", ".*");
            serde_json::json!({ "record": format!("query:{number}"), "expr": query })
        })
        .collect();
    // JSON is YAML.
    let file = serde_json::json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
    std::fs::write(dir.path().join("rules.yml"), file.to_string()).unwrap();
    accepted(Command::new("promtool").args(["check", "rules", "rules.yml"]).current_dir(dir.path()), "");
}

/// The metrics that a text names, without what Prometheus appends to a histogram.
fn metrics(text: &str) -> BTreeSet<String> {
    let words =
        text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_' || letter == ':'));
    words
        .filter(|word| word.starts_with("ichido_"))
        .map(|word| word.trim_end_matches("_bucket").to_owned())
        .collect()
}

fn sources(dir: &Path, text: &mut String) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn rules_and_plots_name_only_what_is_counted() {
    let mut counted = String::new();
    for entry in std::fs::read_dir(of_repository("crates")).unwrap() {
        sources(&entry.unwrap().path().join("src"), &mut counted);
    }
    let rules = std::fs::read_to_string(of_repository("deploy/prometheus/ichido.rules.yml")).unwrap();
    let named = metrics(&(rules + &queries().join("\n")));
    assert!(named.len() > 15, "{named:?}");
    for name in named {
        assert!(counted.contains(&format!("\"{name}\"")), "nothing counts {name}");
    }
}
