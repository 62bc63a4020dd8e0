//! The README as text: its fenced blocks, and the commands in them.

use std::path::Path;

/// A fenced block.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// What stands behind the fence.
    pub(super) language: String,
    pub(super) lines: Vec<String>,
}

/// A line that someone would type, and what is said of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Typed {
    pub(super) command: String,
    pub(super) comment: String,
    /// The lines under it: what it prints.
    pub(super) prints: Vec<String>,
}

/// A file of the repository.
pub(super) fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
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
    /// Whether it is for a shell, or says nothing of what it is for.
    pub(super) fn may_be_typed(&self) -> bool {
        matches!(self.language.as_str(), "" | "sh" | "console")
    }

    /// The picture at the beginning.
    pub(super) fn is_picture(&self) -> bool {
        self.lines.iter().any(|line| line.contains("──▶"))
    }

    /// Expressions for Prometheus.
    pub(super) fn is_promql(&self) -> bool {
        self.lines.iter().all(|line| line.starts_with("sum("))
    }

    /// The list of commands: names of values, and not values.
    pub(super) fn is_synopsis(&self) -> bool {
        self.lines.iter().any(|line| line.starts_with("ichido gateway --upstream URL"))
    }

    /// Paths in the data directory.
    pub(super) fn is_listing(&self) -> bool {
        self.lines.iter().all(|line| line.starts_with("data/"))
    }

    /// An HTTP request.
    pub(super) fn is_request(&self) -> bool {
        self.lines[0].starts_with("POST /")
    }

    /// Its commands, in order.
    pub(super) fn typed(&self) -> Vec<Typed> {
        let mut all: Vec<Typed> = Vec::new();
        let mut lines = self.lines.iter().filter(|line| !line.trim().is_empty());
        while let Some(line) = lines.next() {
            if line.starts_with('{') {
                let before = all.last_mut().expect("what is printed follows a command");
                before.prints.push(line.clone());
                continue;
            }
            let (command, comment) = match line.find(" # ") {
                Some(at) => (&line[..at], line[at + 3..].trim()),
                None => (line.as_str(), ""),
            };
            let mut command = command.trim().to_owned();
            // A document in place: it is typed with the command.
            if command.ends_with("<<'END'") {
                for line in lines.by_ref() {
                    command = format!("{command}\n{line}");
                    if line == "END" {
                        break;
                    }
                }
            }
            all.push(Typed { command, comment: comment.to_owned(), prints: Vec::new() });
        }
        all
    }
}

#[test]
fn a_page_is_taken_apart() {
    let found = blocks("text\n```sh\nls -l    # all of it\n{\"a\":1}\n```\n```toml\n[a]\n```\n");
    assert_eq!(found.len(), 2);
    assert!(found[0].may_be_typed() && !found[1].may_be_typed());
    let prints = vec!["{\"a\":1}".to_owned()];
    let typed = Typed { command: "ls -l".to_owned(), comment: "all of it".to_owned(), prints };
    assert_eq!(found[0].typed(), [typed]);
}
