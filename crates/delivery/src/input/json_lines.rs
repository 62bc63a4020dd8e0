//! JSON Lines: one record per line. An invalid line is returned as such, and reading continues with the next.

use std::io::{BufRead, Read};

use super::item::{Item, Position, RECORD_BYTES_MAX, StopReason};
use super::parse::{Parsed, invalid, parse, too_long};
use super::source::OffsetReader;

pub(super) struct Lines<R> {
    reader: OffsetReader<R>,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(reader: OffsetReader<R>) -> Self {
        Self { reader, line: Vec::new(), number: 0 }
    }

    pub(super) fn offset(&self) -> u64 {
        self.reader.offset()
    }

    pub(super) fn next_item(&mut self) -> Result<Option<Item>, StopReason> {
        loop {
            self.line.clear();
            // Includes the line break, so a line that fills the limit without one is too long.
            let limit = RECORD_BYTES_MAX as u64 + 2;
            if self.reader.by_ref().take(limit).read_until(b'\n', &mut self.line)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            let at = Position::Line(self.number);
            if self.line.len() as u64 == limit && self.line.last() != Some(&b'\n') {
                let length = self.line.len() as u64 + self.skip_line()?;
                return Ok(Some(too_long(&self.line, length, at)));
            }
            let line = self.line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            if line.len() > RECORD_BYTES_MAX {
                return Ok(Some(too_long(line, line.len() as u64, at)));
            }
            return Ok(Some(match parse(line, at) {
                Parsed::Item(item) => item,
                Parsed::NotJson(reason) => invalid(line, at, reason),
            }));
        }
    }

    /// Skips the rest of a line, and returns its length.
    fn skip_line(&mut self) -> Result<u64, StopReason> {
        let mut skipped = 0;
        loop {
            self.line.truncate(RECORD_BYTES_MAX);
            let kept = self.line.len();
            let count = self.reader.by_ref().take(64 * 1024).read_until(b'\n', &mut self.line)?;
            let ended = count == 0 || self.line.last() == Some(&b'\n');
            self.line.truncate(kept);
            skipped += count as u64;
            if ended {
                return Ok(skipped);
            }
        }
    }
}
