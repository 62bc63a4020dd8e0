//! Reads entries in order, and checks that each continues the one before.

use std::io::{self, BufRead};

use sha2::{Digest, Sha256};

use super::entry::{Entry, NO_HASH, Torn, sha256};
use ichido_core::to_hex;

/// The place of an entry in the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The sequence number of the entry, or 0 before the first one.
    pub(super) seq: u64,
    /// Its hash.
    pub(super) hash: String,
}

impl Place {
    /// The place in front of the first entry.
    pub(super) fn start() -> Self {
        Self { seq: 0, hash: NO_HASH.to_owned() }
    }
}

/// Reads the entries of one file.
pub(super) struct Scanner<R> {
    lines: R,
    /// Lines that were read.
    line: u64,
    /// Bytes that were read.
    bytes: u64,
}

/// What a scanner finds next.
#[derive(Debug)]
pub(super) enum Found {
    /// An entry that continues the chain.
    Entry(Place),
    /// No entry, up to the end of the file.
    Rest(Rest),
    /// A place where the chain does not continue.
    Break { line: u64, kind: BreakKind },
}

/// Bytes at the end of a file that are no entry.
#[derive(Debug)]
pub(super) struct Rest {
    /// The line where they begin.
    pub(super) line: u64,
    pub(super) bytes: u64,
    /// Whether there is a line break: a line that was complete was changed.
    pub(super) has_lines: bool,
}

/// Why a chain does not continue.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BreakKind {
    /// A line is not as it was written.
    Edited,
    /// The entry is a valid one, but another one is expected here.
    OutOfOrder { found: u64, expected: u64 },
    /// The number is right, but the entry continues another one.
    OtherChain { found: u64 },
}

impl<R: BufRead> Scanner<R> {
    pub(super) fn new(lines: R) -> Self {
        Self { lines, line: 0, bytes: 0 }
    }

    /// How many bytes were read.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next entry, which must continue `last`. `None` at the end of the file.
    pub(super) fn next(&mut self, last: &Place) -> io::Result<Option<Found>> {
        let (mut buffer, mut skipped) = (Vec::new(), Skipped::default());
        loop {
            buffer.clear();
            let read = self.lines.read_until(b'\n', &mut buffer)?;
            if read == 0 {
                return Ok(skipped.rest().map(Found::Rest));
            }
            self.line += 1;
            self.bytes += read as u64;
            let Some((entry, hash)) = Entry::decode(&buffer) else {
                skipped.add(self.line, &buffer);
                continue;
            };
            if entry.torn != skipped.torn() {
                let line = if skipped.bytes > 0 { skipped.line } else { self.line };
                return Ok(Some(Found::Break { line, kind: BreakKind::Edited }));
            }
            let kind = match (entry.seq == last.seq + 1, entry.prev == last.hash) {
                (true, true) => {
                    return Ok(Some(Found::Entry(Place { seq: entry.seq, hash })));
                }
                (true, false) => BreakKind::OtherChain { found: entry.seq },
                (false, _) => BreakKind::OutOfOrder { found: entry.seq, expected: last.seq + 1 },
            };
            return Ok(Some(Found::Break { line: self.line, kind }));
        }
    }

    /// Every entry that can be read, in any order, and the number of lines that cannot.
    pub(super) fn each(&mut self, mut entry: impl FnMut(Entry, String)) -> io::Result<u64> {
        let (mut buffer, mut unreadable) = (Vec::new(), 0);
        loop {
            buffer.clear();
            if self.lines.read_until(b'\n', &mut buffer)? == 0 {
                return Ok(unreadable);
            }
            match Entry::decode(&buffer) {
                Some((found, hash)) => entry(found, hash),
                None => unreadable += 1,
            }
        }
    }
}

/// Lines that are no entries.
#[derive(Default)]
struct Skipped {
    line: u64,
    bytes: u64,
    has_lines: bool,
    hash: Sha256,
}

impl Skipped {
    fn add(&mut self, line: u64, bytes: &[u8]) {
        if self.bytes == 0 {
            self.line = line;
        }
        self.bytes += bytes.len() as u64;
        self.has_lines |= bytes.ends_with(b"\n");
        self.hash.update(bytes);
    }

    /// What the next entry must say about them.
    fn torn(&self) -> Option<Torn> {
        let sha256 = || to_hex(&self.hash.clone().finalize());
        (self.bytes > 0).then(|| Torn { bytes: self.bytes, sha256: sha256() })
    }

    fn rest(&self) -> Option<Rest> {
        let Self { line, bytes, has_lines, .. } = *self;
        (bytes > 0).then_some(Rest { line, bytes, has_lines })
    }
}

/// What an entry says about bytes in front of it, once a line break ends them.
pub(super) fn torn(bytes: &[u8]) -> Torn {
    Torn { bytes: bytes.len() as u64, sha256: sha256(bytes) }
}
