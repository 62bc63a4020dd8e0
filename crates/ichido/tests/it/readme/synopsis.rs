//! The list of commands: every command and flag in it exists, and no command is missing.

use super::markdown::{Block, blocks, page};
use crate::run;

/// A line without its description, which two spaces set off.
fn usage(line: &str) -> &str {
    line.split("  ").next().unwrap().trim()
}

/// The commands in a line, each with its flags: `spool list | show KEY` is two.
fn commands(line: &str) -> Vec<(Vec<String>, Vec<String>)> {
    let mut all: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for part in usage(line).strip_prefix("ichido ").unwrap().split(" | ") {
        let is_name = |argument: &&str| argument.bytes().all(|byte| byte.is_ascii_lowercase());
        let mut path: Vec<String> = part.split(' ').take_while(is_name).map(ToOwned::to_owned).collect();
        // What follows a bar replaces the last part of the first command's path.
        if let Some((before, _)) = all.first() {
            path = [&before[..before.len() - 1], &path[..]].concat();
        }
        let arguments = part.split(|c: char| c.is_whitespace() || "[]".contains(c));
        let flags = arguments.filter(|argument| argument.starts_with("--")).map(ToOwned::to_owned).collect();
        all.push((path, flags));
    }
    all
}

#[test]
fn every_command_and_flag_in_the_list_exists() {
    let dir = tempfile::tempdir().unwrap();
    let lists: Vec<_> = blocks(&page("docs/commands.md")).into_iter().filter(Block::is_synopsis).collect();
    assert_eq!(lists.len(), 1);
    let mut seen = std::collections::BTreeSet::new();
    for (path, flags) in lists[0].lines.iter().flat_map(|line| commands(line)) {
        assert!(!path.is_empty(), "{flags:?}");
        let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
        args.push("--help");
        let output = run(dir.path(), &args);
        let help = crate::stdout(&output);
        assert!(output.status.success() && help.contains("Usage: "), "no such command: {path:?}");
        for flag in flags {
            assert!(help.contains(&flag), "{path:?} has no {flag}: {help}");
        }
        seen.insert(path[0].clone());
    }
    let help = crate::ok(dir.path(), &["--help"]);
    let listed = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    for command in listed.lines().filter_map(|line| line.split_whitespace().next()) {
        assert!(command == "help" || seen.contains(command), "{command} is missing in docs/commands.md");
    }
}

#[test]
fn line_is_parsed() {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let line = "ichido spool list | resend [KEY…] [--force] | fsck     description";
    let expected = [
        (owned(&["spool", "list"]), vec![]),
        (owned(&["spool", "resend"]), owned(&["--force"])),
        (owned(&["spool", "fsck"]), vec![]),
    ];
    assert_eq!(commands(line), expected);
    assert_eq!(commands("ichido completions SHELL | man DIR")[1].0, ["man"]);
}
