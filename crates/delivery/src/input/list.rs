//! A list of records: a JSON array, or the list in an envelope.
//!
//! The list is followed byte by byte, strings and brackets only, to find where each element ends; the element is then
//! parsed by itself. So an element that is no record does not end the list, and one that is not JSON does: after it no
//! bracket can be trusted.

use std::io::BufRead;
use std::mem;

use super::item::{Item, Position, RECORD_BYTES_MAX, StopReason};
use super::parse::{Parsed, parse, too_long};
use super::source::OffsetReader;

/// What may stand beside the list in an envelope.
const TRAILER_BYTES_MAX: usize = 1024 * 1024;

pub(super) struct List<R> {
    reader: OffsetReader<R>,
    state: State,
    envelope: bool,
    element: Vec<u8>,
    complete: u64,
}

enum State {
    /// So many bytes stand before the bracket.
    Start {
        skip: usize,
    },
    /// After the bracket, where the list may end at once.
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
                End::Bracket | End::Comma => Err(self.invalid("a comma without an element")),
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

    /// What stands before the list: space, and in an envelope other fields.
    fn before(&mut self, skip: usize) -> Result<(), StopReason> {
        let mut head = vec![0; skip];
        std::io::Read::read_exact(&mut self.reader, &mut head)?;
        while self.byte()? != b'[' {}
        if self.envelope {
            head.extend_from_slice(b"[]}");
            serde_json::from_slice::<serde::de::IgnoredAny>(&head)
                .map_err(|_| self.invalid("what stands before \"records\" is not JSON"))?;
        }
        Ok(())
    }

    /// What stands after the list. Nothing comes after it, so this has no item.
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
                return Err(self.invalid("something follows the list"));
            }
        }
        if self.envelope {
            self.check_tail(&tail)?;
        }
        Ok(None)
    }

    fn check_tail(&self, tail: &[u8]) -> Result<(), StopReason> {
        let rest = [b"{\"\":[]".as_slice(), tail].concat();
        let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&rest)
            .map_err(|_| self.invalid("what stands after the records is not the end of an object"))?;
        if fields.contains_key("records") {
            return Err(self.invalid("there are two lists of records"));
        }
        Ok(())
    }

    /// Reads the next element into `self.element`; its length, which may be more than was kept.
    fn element(&mut self) -> Result<(End, u64), StopReason> {
        self.element.clear();
        let (mut scan, mut length) = (Scan::default(), 0);
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                return Err(self.invalid("it ends in the middle of the list"));
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
                    return end.map(|end| (end, length)).ok_or_else(|| self.invalid("a bracket too many"));
                }
            }
        }
    }

    fn byte(&mut self) -> Result<u8, StopReason> {
        let Some(byte) = self.reader.fill_buf()?.first().copied() else {
            return Err(self.invalid("the list does not begin"));
        };
        self.reader.consume(1);
        Ok(byte)
    }

    fn invalid(&self, reason: &str) -> StopReason {
        StopReason::List { complete: self.complete, reason: reason.to_owned() }
    }
}

/// Follows strings and brackets from one piece of the input to the next.
#[derive(Default)]
struct Scan {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Scan {
    /// Where the element ends in this piece, and with what; `None` as an end is a bracket that was never opened.
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
