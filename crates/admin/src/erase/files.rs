//! Searches files for the text that was erased, whatever they are.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use memchr::memmem::Finder;
use rustix::fs::OFlags;
use serde::Serialize;

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;
/// The most bytes that are searched.
const BYTES_MAX: u64 = 64 << 30;
/// The most files that are listed.
const FILES_MAX: usize = 100;
/// A shorter text is found everywhere.
const TEXT_MIN: usize = 4;

/// A file that still contains the text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RemainingFile {
    /// Its path.
    pub file: String,
    /// Why, as far as its place tells.
    pub why: &'static str,
}

/// The files below these paths that contain the text, and what was not searched.
pub(super) fn remaining(paths: &[PathBuf], text: &str) -> (Vec<RemainingFile>, Vec<String>) {
    if text.len() < TEXT_MIN {
        let why =
            format!("files were not searched: a text of less than {TEXT_MIN} bytes is found everywhere");
        return (Vec::new(), vec![why]);
    }
    let escaped = serde_json::Value::from(text).to_string();
    let mut search = Search {
        texts: [text, &escaped[1..escaped.len() - 1]],
        left: BYTES_MAX,
        found: Vec::new(),
        problems: Vec::new(),
    };
    let is_nested = |path: &PathBuf| paths.iter().any(|other| other != path && path.starts_with(other));
    let mut roots: Vec<_> = paths.iter().filter(|path| !is_nested(path)).collect();
    roots.sort_unstable();
    roots.dedup();
    roots.into_iter().for_each(|path| search.visit(path));
    if search.found.len() > FILES_MAX {
        search.problems.push(format!("{} more files contain the text", search.found.len() - FILES_MAX));
        search.found.truncate(FILES_MAX);
    }
    (search.found, search.problems)
}

struct Search<'a> {
    texts: [&'a str; 2],
    left: u64,
    found: Vec<RemainingFile>,
    problems: Vec<String>,
}

impl Search<'_> {
    fn visit(&mut self, path: &Path) {
        let searched = match path.symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => self.visit_dir(path),
            Ok(metadata) if metadata.is_file() && metadata.len() > self.left => {
                Err(io::Error::other("too much to search"))
            }
            Ok(metadata) if metadata.is_file() => {
                self.left -= metadata.len();
                contains(path, self.texts).map(|is_found| {
                    let file = path.display().to_string();
                    self.found.extend(is_found.then(|| RemainingFile { file, why: why(path) }));
                })
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        match searched {
            // It is gone by now, or never was.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.problems.push(format!("{} was not searched: {error}", path.display())),
            Ok(()) => {}
        }
    }

    fn visit_dir(&mut self, dir: &Path) -> io::Result<()> {
        let mut paths = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        paths.sort_unstable();
        paths.iter().for_each(|path| self.visit(path));
        Ok(())
    }
}

fn contains(path: &Path, texts: [&str; 2]) -> io::Result<bool> {
    let finders = texts.map(Finder::new);
    let overlap = texts.map(str::len).into_iter().max().unwrap_or(0);
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or_default();
    let mut file: File = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let mut buffer = vec![0; CHUNK + overlap];
    let mut filled = 0;
    loop {
        let read = match file.read(&mut buffer[filled..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        filled += read;
        if read > 0 && filled < buffer.len() {
            continue;
        }
        if finders.iter().any(|finder| is_found(finder, &buffer[..filled])) {
            return Ok(true);
        }
        if read == 0 {
            return Ok(false);
        }
        buffer.copy_within(filled - overlap..filled, 0);
        filled = overlap;
    }
}

/// A match within a longer word is another text.
fn is_found(finder: &Finder<'_>, bytes: &[u8]) -> bool {
    let is_word = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let length = finder.needle().len();
    finder.find_iter(bytes).any(|at| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        !is_word(before) && !is_word(bytes.get(at + length))
    })
}

/// Why a file has the text, as far as its place tells.
fn why(path: &Path) -> &'static str {
    let parts = path.components().rev().filter_map(|part| part.as_os_str().to_str());
    for part in parts {
        return match part {
            "statements" => {
                "a statement says what was billed, and its digest covers all of it; remove it when you may"
            }
            "export" => "the export compares what it sends with what it has sent",
            "audit" => "the audit log is a chain of hashes, which no entry may leave",
            "journal" => "an outcome waits for the ledger; erase again when the ledger has it",
            ".inflight" => "a process is sending it; erase again when it was sent",
            "receipts" => "the key of a batch, which is a hash of its content",
            "ledger" => {
                "a claim that is not completed or was not found by this, or the owner of a content mark"
            }
            "spool" | "failed" | "notices" | "history" => "written meanwhile; erase again",
            _ => continue,
        };
    }
    "not a file that erase changes: a database, a backup or a copy"
}
