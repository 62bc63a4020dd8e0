//! Reads a log, and finds the first place where it is not what was written.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::PathBuf;

use serde::Serialize;

use super::entry::Entry;
use super::scan::{BreakKind, Found, Place, Rest, Scanner};

/// The files of a log, oldest first, as they were between two appends.
#[derive(Debug)]
pub struct Snapshot {
    dir: PathBuf,
    files: Vec<(String, File, u64)>,
    head: Option<Place>,
}

/// An intact log.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The number of entries.
    pub entries: u64,
    /// The number of the last entry.
    pub last_seq: u64,
    /// Its hash. Kept elsewhere, it proves later that the log still contains this entry.
    pub last_hash: String,
    /// The number of files.
    pub files: usize,
    /// What is unusual, but no break.
    pub notes: Vec<String>,
}

/// The first place where a log is not what was written.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Break {
    /// The file.
    pub file: String,
    /// The line, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// `edited`, `removed`, `reordered` or `cut`.
    pub kind: &'static str,
    /// What is wrong.
    pub detail: String,
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}: {}", self.kind, self.detail)
    }
}

impl Snapshot {
    pub(super) fn new(dir: PathBuf, files: Vec<(String, File, u64)>, head: Option<Place>) -> Self {
        Self { dir, files, head }
    }

    /// Verifies every entry. `after`: the entries up to the one with this hash were moved elsewhere. `contains`: an
    /// entry with this hash must be there.
    pub fn verify(&self, after: Option<&str>, contains: Option<&str>) -> io::Result<Result<Summary, Break>> {
        let (mut last, mut entries, mut rest) = (Place::start(), 0, None);
        let mut is_contained = contains.is_none();
        if let (Some(hash), false) = (after, self.files.is_empty()) {
            last = archived(&mut self.scanner(0)?, hash)?.unwrap_or(last);
        }
        for number in 0..self.files.len() {
            if let Some(rest) = rest.take() {
                return Ok(Err(self.unreadable(number - 1, &rest)));
            }
            let mut scanner = self.scanner(number)?;
            loop {
                match scanner.next(&last)? {
                    None => break,
                    Some(Found::Rest(found)) => {
                        rest = Some(found);
                        break;
                    }
                    Some(Found::Entry(place)) => {
                        is_contained |= contains == Some(&place.hash);
                        last = place;
                        entries += 1;
                    }
                    Some(Found::Break { line, kind }) => return Ok(Err(self.explain(number, line, &kind)?)),
                }
            }
        }
        if let Some(found) = self.broken_end(&last, rest.as_ref()) {
            return Ok(Err(found));
        }
        if !is_contained {
            let detail =
                "the log has no entry with the given hash: it was rewritten, or is another log".to_owned();
            return Ok(Err(Break {
                file: self.dir.display().to_string(),
                line: None,
                kind: "edited",
                detail,
            }));
        }
        let notes = self.notes(&last, rest.as_ref());
        let Place { seq: last_seq, hash: last_hash } = last;
        Ok(Ok(Summary { entries, last_seq, last_hash, files: self.files.len(), notes }))
    }

    /// Every entry that can be read, oldest first. Returns the number of lines that cannot be read.
    pub fn each(&self, mut entry: impl FnMut(Entry, String)) -> io::Result<u64> {
        let mut unreadable = 0;
        for number in 0..self.files.len() {
            unreadable += self.scanner(number)?.each(&mut entry)?;
        }
        Ok(unreadable)
    }

    fn scanner(&self, number: usize) -> io::Result<Scanner<BufReader<io::Take<&File>>>> {
        let (_, file, length) = &self.files[number];
        let mut file: &File = file;
        file.rewind()?;
        Ok(Scanner::new(BufReader::new(file.take(*length))))
    }

    /// Compares the end of the entries with the head.
    fn broken_end(&self, last: &Place, rest: Option<&Rest>) -> Option<Break> {
        let at = |kind, detail| {
            let file =
                self.files.last().map_or_else(|| self.dir.display().to_string(), |file| self.path(&file.0));
            let line = rest.map(|rest| rest.line);
            Some(Break { file, line, kind, detail })
        };
        let Place { seq, hash } = last;
        match &self.head {
            None if *seq <= 1 => None,
            None => at("cut", format!("the head is missing, so nothing shows that entry {seq} is the last")),
            Some(head) if head.seq > *seq && rest.is_some_and(|rest| rest.has_lines) => {
                at("edited", format!("entry {} is not what was written", seq + 1))
            }
            Some(head) if head.seq > *seq => {
                at("cut", format!("the log ends with entry {seq}, but {} were written", head.seq))
            }
            Some(head) if head.seq == *seq && head.hash != *hash => {
                at("edited", format!("entry {seq} is not the one that the head names"))
            }
            Some(head) if head.seq + 1 < *seq => {
                at("edited", format!("the head names entry {}, but the log ends with entry {seq}", head.seq))
            }
            Some(_) => None,
        }
    }

    fn notes(&self, last: &Place, rest: Option<&Rest>) -> Vec<String> {
        let mut notes = Vec::new();
        if self.head.as_ref().is_none_or(|head| head.seq != last.seq) {
            notes.push(format!(
                "entry {} was written by a process that stopped before it moved the head",
                last.seq
            ));
        }
        if let Some(rest) = rest {
            let Rest { line, bytes, .. } = rest;
            notes.push(format!(
                "the last {bytes} bytes (line {line}) are no entry: a process stopped while it wrote them; the next entry records them"
            ));
        }
        notes
    }

    fn explain(&self, number: usize, line: u64, kind: &BreakKind) -> io::Result<Break> {
        let (kind, detail) = match kind {
            BreakKind::Edited => ("edited", "this line is not what was written".to_owned()),
            BreakKind::OtherChain { found } => (
                "edited",
                format!("entry {found} does not continue entry {}: one of them was replaced", found - 1),
            ),
            BreakKind::OutOfOrder { found, expected } if found < expected || self.has(*expected)? => {
                ("reordered", format!("entry {found} is where entry {expected} belongs"))
            }
            BreakKind::OutOfOrder { found, expected } if *found == expected + 1 => {
                ("removed", format!("entry {expected} is missing"))
            }
            BreakKind::OutOfOrder { found, expected } => {
                ("removed", format!("entries {expected} to {} are missing", found - 1))
            }
        };
        Ok(Break { file: self.path(&self.files[number].0), line: Some(line), kind, detail })
    }

    fn unreadable(&self, number: usize, rest: &Rest) -> Break {
        let detail = "this line is not what was written".to_owned();
        Break { file: self.path(&self.files[number].0), line: Some(rest.line), kind: "edited", detail }
    }

    /// Whether an entry is anywhere in the log.
    fn has(&self, seq: u64) -> io::Result<bool> {
        let mut is_there = false;
        for number in 0..self.files.len() {
            self.scanner(number)?.each(|entry, _| is_there |= entry.seq == seq)?;
        }
        Ok(is_there)
    }

    fn path(&self, file: &str) -> String {
        self.dir.join(file).display().to_string()
    }
}

/// The place of the entry with this hash, if the first entry of a file continues it.
fn archived<R: io::BufRead>(scanner: &mut Scanner<R>, hash: &str) -> io::Result<Option<Place>> {
    let mut first = None;
    scanner.each(|entry, _| {
        first.get_or_insert(entry);
    })?;
    let before = |entry: Entry| Place { seq: entry.seq - 1, hash: hash.to_owned() };
    Ok(first.filter(|entry| entry.prev == hash && entry.seq > 0).map(before))
}
