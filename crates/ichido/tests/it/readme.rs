//! Runs the READMEs and the pages under `docs`: every command in them does what the text says, every settings file is
//! accepted, and every piece of Rust compiles.
//!
//! A block is identified by its first command and run line by line, as in a shell ([`shell`]). [`commands`] says how to
//! test each command. A command that is missing there fails the tests.

mod commands;
mod markdown;
mod pages;
mod rust;
mod settings;
mod shell;
mod synopsis;

use self::commands::COMMANDS;
use self::markdown::{Block, blocks, page, pages};
use self::shell::Shell;

/// The blocks of both READMEs.
const README: &[&str] = &["cargo run --release -- demo", "python3 examples/orders.py &", "curl -X POST"];

/// The first command of each block of commands. Each block has a test.
const BLOCKS: &[(&str, &[&str])] = &[
    ("README.md", README),
    ("README.ja.md", README),
    ("docs/gateway.md", &["node server.js &"]),
    (
        "docs/events.md",
        &[
            "ichido claims --ledger dynamodb: &",
            "ichido ledger list --state in-doubt",
            "ichido ledger forget",
            "ichido events list",
            "ichido events history",
            "ichido events anomalies",
        ],
    ),
    ("docs/dynamodb.md", &["aws cloudformation deploy"]),
    (
        "docs/delivery.md",
        &["export EXTERNAL_API_ENDPOINT=https://api.example.com/v1/usage", "ichido spool list"],
    ),
    ("docs/usage.md", &["export DIFY_DATABASE_URL=postgres://readonly@dify-db/dify", "cat > ichido.toml"]),
    ("docs/meter.md", &["ichido meter"]),
    ("docs/operations.md", &["cargo install --locked", "ichido ledger backup", "mv data/ledger"]),
];

fn shell_blocks(name: &str) -> Vec<Block> {
    blocks(&page(name)).into_iter().filter(Block::is_shell).collect()
}

/// Runs the block of a page that begins with this command.
fn run_block(page: &str, first: &str, shell: Shell) {
    run_blocks(page, &[first], shell);
}

/// Runs the blocks of a page that begin with these commands, one after another in the same shell.
fn run_blocks(page: &str, firsts: &[&str], mut shell: Shell) {
    let blocks = shell_blocks(page);
    for first in firsts {
        let block = blocks.iter().find(|block| block.commands()[0].command.starts_with(first));
        let block = block.unwrap_or_else(|| panic!("{page} has no block that begins with {first}"));
        block.commands().iter().for_each(|line| shell.execute(line));
    }
    shell.shut_down();
}

#[test]
fn every_command_is_known_to_these_tests() {
    let mut used = std::collections::BTreeSet::new();
    for name in pages() {
        let found = shell_blocks(&name);
        let expected = BLOCKS.iter().find(|(page, _)| *page == name).map_or(&[][..], |(_, first)| first);
        assert_eq!(found.len(), expected.len(), "{name} has a block that no test runs");
        for (block, first) in found.iter().zip(expected) {
            assert!(block.commands()[0].command.starts_with(first), "{name}: {block:?}");
        }
        for line in found.iter().flat_map(Block::commands) {
            assert!(commands::action(&line.command).is_some(), "{name}: unknown command: {}", line.command);
            used.extend(line.command.lines().next().map(ToOwned::to_owned));
        }
    }
    for (known, _) in COMMANDS {
        assert!(used.contains(*known), "no page has this command any more: {known}");
    }
}

/// The comments differ, the commands do not.
#[test]
fn both_readmes_have_the_same_commands() {
    let commands = |name: &str| -> Vec<Vec<(String, Vec<String>)>> {
        let of =
            |block: &Block| block.commands().into_iter().map(|line| (line.command, line.output)).collect();
        shell_blocks(name).iter().map(of).collect()
    };
    assert_eq!(commands("README.ja.md"), commands("README.md"));
}

/// promtool reads expressions in rules only.
#[test]
fn expressions_for_prometheus_are_valid() {
    let dir = tempfile::tempdir().unwrap();
    let all = pages().into_iter().flat_map(|name| blocks(&page(&name)));
    let found = all.filter(Block::is_promql).flat_map(|block| block.lines);
    let rules: String = found
        .enumerate()
        .map(|(number, line)| format!("      - record: docs:rule{number}\n        expr: '{line}'\n"))
        .collect();
    assert!(!rules.is_empty());
    let file = dir.path().join("rules.yml");
    std::fs::write(&file, format!("groups:\n  - name: docs\n    rules:\n{rules}")).unwrap();
    let checked =
        std::process::Command::new("promtool").args(["check", "rules"]).arg(&file).output().unwrap();
    assert!(checked.status.success(), "{rules}: {}", String::from_utf8_lossy(&checked.stderr));
}
