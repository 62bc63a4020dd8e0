//! The items that an input yields.

use std::borrow::Cow;
use std::fmt;
use std::io;

use serde_json::value::RawValue;

/// The longest record. It bounds the memory of the reader.
pub const RECORD_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How much of a longer record is kept.
pub const KEPT_BYTES_MAX: usize = 64 * 1024;
/// The deepest nesting of a record: parsers that read it later give up at 128.
pub const DEPTH_MAX: usize = 127;

/// A record, or something else in its position.
#[derive(Debug)]
pub enum Item {
    /// A JSON object.
    Record(Record),
    /// Something else.
    Invalid(Invalid),
}

/// A JSON object as it was written.
pub struct Record {
    /// Its position in the input.
    pub position: Position,
    /// Its bytes, without surrounding whitespace.
    pub raw: Box<RawValue>,
}

/// An item that is not a record.
#[derive(Clone, PartialEq, Eq)]
pub struct Invalid {
    /// Its position in the input.
    pub position: Position,
    /// Why it is not a record. Quotes no content.
    pub reason: String,
    /// Its bytes, or the first [`KEPT_BYTES_MAX`] of them if it is longer than [`RECORD_BYTES_MAX`].
    pub bytes: Vec<u8>,
    /// Its length.
    pub length: u64,
}

/// Prints no content, nor does [`Invalid`]: it may be personal data.
impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Record({}, {} bytes)", self.position, self.raw.get().len())
    }
}

impl fmt::Debug for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Invalid({}: {}, {} bytes)", self.position, self.reason, self.length)
    }
}

impl Invalid {
    /// Its bytes as text. Invalid UTF-8 is replaced.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    /// Whether [`Invalid::bytes`] is truncated.
    pub fn is_cut(&self) -> bool {
        self.length > self.bytes.len() as u64
    }
}

/// The position of a record in its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Position {
    /// The line number, from 1.
    Line(u64),
    /// The index in a list, from 0.
    Index(u64),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(number) => write!(f, "line {number}"),
            Self::Index(index) => write!(f, "index {index}"),
        }
    }
}

/// Why a reader stops before the end of the input.
pub(super) enum StopReason {
    Read(io::Error),
    List { complete: u64, reason: String },
}

impl From<io::Error> for StopReason {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}
