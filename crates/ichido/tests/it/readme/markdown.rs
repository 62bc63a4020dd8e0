//! Markdown documents: their fenced blocks, and the commands in those.

use std::path::{Path, PathBuf};

/// A fenced block.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// The info string after the opening fence.
    pub(super) language: String,
    pub(super) lines: Vec<String>,
}

/// A command line of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommandLine {
    pub(super) command: String,
    pub(super) comment: String,
    /// The lines below it: its output.
    pub(super) output: Vec<String>,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads a file of the repository.
pub(super) fn page(name: &str) -> String {
    let path = repository().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The READMEs and every page under `docs`.
pub(super) fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned(), "README.ja.md".to_owned()];
    for directory in ["docs", "docs/decisions"] {
        for entry in std::fs::read_dir(repository().join(directory)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") {
                pages.push(format!("{directory}/{name}"));
            }
        }
    }
    pages
}

pub(super) fn blocks(page: &str) -> Vec<Block> {
    let (mut blocks, mut open) = (Vec::new(), None::<Block>);
    for line in page.lines() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(_), Some(block)) => blocks.push(block),
            (Some(language), None) => open = Some(Block { language: language.to_owned(), lines: Vec::new() }),
            (None, Some(mut block)) => {
                block.lines.push(line.to_owned());
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a fence is not closed");
    blocks
}

impl Block {
    /// A block of commands. A block without a language counts as one, unless its content says otherwise.
    pub(super) fn is_shell(&self) -> bool {
        let may_be = matches!(self.language.as_str(), "" | "sh" | "console");
        may_be
            && !(self.is_diagram()
                || self.is_promql()
                || self.is_synopsis()
                || self.is_listing()
                || self.is_request())
    }

    fn is_diagram(&self) -> bool {
        self.lines.iter().any(|line| line.contains("──▶"))
    }

    /// Expressions for Prometheus.
    pub(super) fn is_promql(&self) -> bool {
        self.lines.iter().all(|line| line.starts_with("sum("))
    }

    /// The list of commands, with placeholders for values.
    pub(super) fn is_synopsis(&self) -> bool {
        self.lines.iter().any(|line| line.starts_with("ichido gateway --upstream URL"))
    }

    /// Paths in the data directory.
    fn is_listing(&self) -> bool {
        self.lines.iter().all(|line| line.starts_with("data/"))
    }

    /// An HTTP request.
    fn is_request(&self) -> bool {
        self.lines[0].starts_with("POST /")
    }

    /// Its commands, in order.
    pub(super) fn commands(&self) -> Vec<CommandLine> {
        let mut all: Vec<CommandLine> = Vec::new();
        let mut lines = self.lines.iter().filter(|line| !line.trim().is_empty());
        while let Some(line) = lines.next() {
            if line.starts_with('{') {
                let before = all.last_mut().expect("output follows a command");
                before.output.push(line.clone());
                continue;
            }
            let (command, comment) = match line.find(" # ") {
                Some(at) => (&line[..at], line[at + 3..].trim()),
                None => (line.as_str(), ""),
            };
            let mut command = command.trim().to_owned();
            // A here-document belongs to its command.
            if command.ends_with("<<'END'") {
                for line in lines.by_ref() {
                    command = format!("{command}\n{line}");
                    if line == "END" {
                        break;
                    }
                }
            }
            all.push(CommandLine { command, comment: comment.to_owned(), output: Vec::new() });
        }
        all
    }
}

#[test]
fn blocks_and_commands_are_parsed() {
    let found = blocks("text\n```sh\nls -l    # all of it\n{\"a\":1}\n```\n```toml\n[a]\n```\n");
    assert_eq!(found.len(), 2);
    assert!(found[0].is_shell() && !found[1].is_shell());
    let output = vec!["{\"a\":1}".to_owned()];
    let command = CommandLine { command: "ls -l".to_owned(), comment: "all of it".to_owned(), output };
    assert_eq!(found[0].commands(), [command]);
}
