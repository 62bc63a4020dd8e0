//! A list of records: a JSON array, or the list in an envelope.
//!
//! Only strings and brackets are scanned to find the end of each element, which is then parsed by itself. So an element
//! that is not a record does not end the list. An element that is not JSON does, because the brackets after it cannot
//! be trusted.

use std::io::BufRead;
use std::mem;

use super::item::{Item, Position, RECORD_BYTES_MAX, StopReason};
use super::parse::{Parsed, parse, too_long};
use super::source::OffsetReader;

/// The most bytes that may follow the list in an envelope.
const TRAILER_BYTES_MAX: usize = 1024 * 1024;

pub(super) struct List<R> {
    reader: OffsetReader<R>,
    state: State,
    envelope: bool,
    element: Vec<u8>,
    complete: u64,
}

enum State {
    /// Before the opening bracket, after this many bytes of other fields.
    Start {
        skip: usize,
    },
    /// After the opening bracket, where the list may end.
    First,
    /// After a comma.
    NextAction,
    /// After the closing bracket.
    After,
    Done,
}

/// How an element ended.
#[derive(PartialEq)]
enum End {
    Comma,
    Bracket,
}

impl<R: BufRead> List<R> {
    pub(super) fn array(reader: OffsetReader<R>) -> Self {
        Self::new(reader, 0, false)
    }

    pub(super) fn envelope(reader: OffsetReader<R>, list_at: usize) -> Self {
        Self::new(reader, list_at, true)
    }

    fn new(reader: OffsetReader<R>, skip: usize, envelope: bool) -> Self {
        Self { reader, state: State::Start { skip }, envelope, element: Vec::new(), complete: 0 }
    }

    pub(super) fn offset(&self) -> u64 {
        self.reader.offset()
    }

    pub(super) fn next_item(&mut self) -> Result<Option<Item>, StopReason> {
        if let State::Start { skip } = self.state {
            self.before(skip)?;
            self.state = State::First;
        }
        let first = match self.state {
            State::Start { .. } | State::First => true,
            State::NextAction => false,
            State::After => return self.after(),
            State::Done => return Ok(None),
        };
        let (end, length) = self.element()?;
        self.state = if end == End::Comma { State::NextAction } else { State::After };
        let element = self.element.trim_ascii();
        if element.is_empty() {
            return match end {
                End::Bracket if first => self.after(),
                End::Bracket | End::Comma => Err(self.invalid("an element is missing")),
            };
        }
        let at = Position::Index(self.complete);
        let item = if length > RECORD_BYTES_MAX as u64 {
            too_long(element, length, at)
        } else {
            match parse(element, at) {
                Parsed::Item(item) => item,
                Parsed::NotJson(reason) => return Err(self.invalid(&format!("{at} is {reason}"))),
            }
        };
        self.complete += 1;
        Ok(Some(item))
    }

    /// Reads what precedes the list: whitespace, and in an envelope other fields.
    fn before(&mut self, skip: usize) -> Result<(), StopReason> {
        let mut head = vec![0; skip];
        std::io::Read::read_exact(&mut self.reader, &mut head)?;
        while self.byte()? != b'[' {}
        if self.envelope {
            head.extend_from_slice(b"[]}");
            serde_json::from_slice::<serde::de::IgnoredAny>(&head)
                .map_err(|_| self.invalid("invalid JSON before \"records\""))?;
        }
        Ok(())
    }

    /// Checks what follows the list. It contains no item.
    fn after(&mut self) -> Result<Option<Item>, StopReason> {
        self.state = State::Done;
        let mut tail = mem::take(&mut self.element);
        tail.clear();
        loop {
            let buffer = self.reader.fill_buf()?;
            let count = buffer.len();
            if count == 0 {
                break;
            }
            tail.extend_from_slice(if self.envelope { buffer } else { buffer.trim_ascii() });
            self.reader.consume(count);
            if tail.len() > if self.envelope { TRAILER_BYTES_MAX } else { 0 } {
                return Err(self.invalid("unexpected data after the list"));
            }
        }
        if self.envelope {
            self.check_tail(&tail)?;
        }
        Ok(None)
    }

    fn check_tail(&self, tail: &[u8]) -> Result<(), StopReason> {
        let rest = [b"{\"\":[]".as_slice(), tail].concat();
        let fields: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&rest).map_err(|_| self.invalid("invalid JSON after the records"))?;
        if fields.contains_key("records") {
            return Err(self.invalid("\"records\" occurs twice"));
        }
        Ok(())
    }

    /// Reads the next element into `self.element`. Returns its length, which may exceed what is kept.
    fn element(&mut self) -> Result<(End, u64), StopReason> {
        self.element.clear();
        let (mut scan, mut length) = (Scan::default(), 0);
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                return Err(self.invalid("the input ends within the list"));
            }
            let found = scan.find_end(buffer);
            let count = found.as_ref().map_or(buffer.len(), |(at, _)| *at);
            let room = (RECORD_BYTES_MAX + 1).saturating_sub(self.element.len());
            let mut part = &buffer[..count];
            if self.element.is_empty() {
                part = part.trim_ascii_start();
            }
            length += part.len() as u64;
            self.element.extend_from_slice(&part[..part.len().min(room)]);
            match found {
                None => self.reader.consume(count),
                Some((_, end)) => {
                    self.reader.consume(count + 1);
                    return end
                        .map(|end| (end, length))
                        .ok_or_else(|| self.invalid("unexpected closing brace"));
                }
            }
        }
    }

    fn byte(&mut self) -> Result<u8, StopReason> {
        let Some(byte) = self.reader.fill_buf()?.first().copied() else {
            return Err(self.invalid("the list is missing"));
        };
        self.reader.consume(1);
        Ok(byte)
    }

    fn invalid(&self, reason: &str) -> StopReason {
        StopReason::List { complete: self.complete, reason: reason.to_owned() }
    }
}

/// Tracks strings and brackets across chunks of the input.
#[derive(Default)]
struct Scan {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Scan {
    /// The end of the element in this chunk. `None` as its kind means a brace that was never opened.
    fn find_end(&mut self, piece: &[u8]) -> Option<(usize, Option<End>)> {
        for (at, byte) in piece.iter().enumerate() {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b',' if self.depth == 0 => return Some((at, Some(End::Comma))),
                b']' if self.depth == 0 => return Some((at, Some(End::Bracket))),
                b'}' if self.depth == 0 => return Some((at, None)),
                b'}' | b']' => self.depth -= 1,
                _ => {}
            }
        }
        None
    }
}
