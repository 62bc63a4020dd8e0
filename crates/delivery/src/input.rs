//! Reads records from a file or standard input, one at a time.
//!
//! Three formats are recognised by their first bytes: JSON Lines, a JSON array, and an object with a list under
//! `"records"`. Each may be compressed with gzip, and may start with a byte order mark. Whatever the size of the input,
//! at most one record is in memory, and it is passed on byte for byte.
//!
//! Nothing is dropped silently. An item that is not a record is returned as [`Item::Invalid`] with its position and
//! text, so that the caller can keep it. Reading continues at the next line, or at the next element as long as the
//! structure of the list is intact. If it is not, reading ends with an [`Error`], after the records before it.
//!
//! Reading blocks. An async caller runs the iterator in a blocking task and receives the records from a bounded
//! channel:
//!
//! ```no_run
//! # use ichido_delivery::input::{Input, Item};
//! # fn deliver(_: Box<serde_json::value::RawValue>) {}
//! # fn keep(_: String, _: &str) {}
//! # fn main() -> Result<(), ichido_delivery::input::Error> {
//! for item in Input::open("usage.jsonl".as_ref())? {
//!     match item? {
//!         Item::Record(record) => deliver(record.raw),
//!         Item::Invalid(invalid) => keep(format!("{}: {}", invalid.position, invalid.reason), &invalid.text()),
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod format;
mod item;
mod json_lines;
mod list;
mod parse;
mod source;

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::Path;

use item::StopReason;
use rustix::fs::{Access, access};

pub use format::Format;
pub use item::{DEPTH_MAX, Invalid, Item, KEPT_BYTES_MAX, Position, RECORD_BYTES_MAX, Record};
pub use source::Progress;

/// Why an input cannot be read, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The input cannot be opened.
    #[error("cannot open {name}: {source}")]
    Open {
        /// The name of the input.
        name: String,
        /// The cause.
        source: io::Error,
    },
    /// Reading failed.
    #[error("cannot read {name} after byte {offset}: {source}")]
    Read {
        /// The name of the input.
        name: String,
        /// How many bytes were read, after decompression.
        offset: u64,
        /// The cause.
        source: io::Error,
    },
    /// The structure of the list is invalid. The records before that were returned.
    #[error("{name} is not a valid list near byte {offset}, after {complete} elements: {reason}")]
    List {
        /// The name of the input.
        name: String,
        /// How many bytes of the list could be followed, after decompression.
        offset: u64,
        /// How many elements were returned.
        complete: u64,
        /// What is wrong.
        reason: String,
    },
    /// The input cannot be read because of what it is.
    #[error("{name} is {what}")]
    Kind {
        /// The name of the input.
        name: String,
        /// What it is.
        what: &'static str,
    },
}

/// Checks whether an input can be opened, without opening it: a FIFO must be opened only once.
pub fn check(path: &Path) -> Result<(), Error> {
    if path.as_os_str() == "-" {
        return Ok(());
    }
    let name = path.display().to_string();
    match access(path, Access::READ_OK).map_err(io::Error::from).and_then(|()| path.metadata()) {
        Ok(metadata) if metadata.is_dir() => Err(Error::Kind { name, what: "a directory" }),
        Ok(_) => Ok(()),
        Err(source) => Err(Error::Open { name, source }),
    }
}

/// An open input whose format is known.
pub struct Input {
    name: String,
    format: Format,
    progress: Progress,
    items: Items,
    ended: bool,
}

type Bytes = Box<dyn BufRead + Send>;

enum Items {
    Lines(json_lines::Lines<Bytes>),
    List(list::List<Bytes>),
}

impl Input {
    /// Opens a file, or standard input for `-`.
    pub fn open(path: &Path) -> Result<Self, Error> {
        if path.as_os_str() == "-" {
            return Self::stdin();
        }
        let name = path.display().to_string();
        let opened = File::open(path).and_then(|file| {
            let metadata = file.metadata()?;
            Ok((file, metadata))
        });
        let (file, metadata) = opened.map_err(|source| Error::Open { name: name.clone(), source })?;
        if metadata.is_dir() {
            return Err(Error::Kind { name, what: "a directory" });
        }
        // Pipes and devices have no meaningful length.
        Self::begin(name, file, metadata.is_file().then_some(metadata.len()))
    }

    /// Opens standard input.
    pub fn stdin() -> Result<Self, Error> {
        Self::begin("standard input".to_owned(), io::stdin(), None)
    }

    /// Reads from any reader. `name` is used in messages.
    pub fn from_reader(name: impl Into<String>, reader: impl Read + Send + 'static) -> Result<Self, Error> {
        Self::begin(name.into(), reader, None)
    }

    fn begin(name: String, reader: impl Read + Send + 'static, total: Option<u64>) -> Result<Self, Error> {
        let (bytes, progress) = source::decompressed(reader, total).map_err(|source| Error::Read {
            name: name.clone(),
            offset: 0,
            source,
        })?;
        let (format, head, rest) = format::detect(bytes).map_err(|refused| match refused {
            format::Refused::Read(source) => Error::Read { name: name.clone(), offset: 0, source },
            format::Refused::Kind(what) => Error::Kind { name: name.clone(), what },
        })?;
        let bytes: Box<dyn BufRead + Send> = Box::new(io::Cursor::new(head).chain(rest));
        let bytes = source::OffsetReader::new(bytes);
        let items = match format {
            Format::Lines => Items::Lines(json_lines::Lines::new(bytes)),
            Format::Array => Items::List(list::List::array(bytes)),
            Format::Envelope { list_at } => Items::List(list::List::envelope(bytes, list_at)),
        };
        Ok(Self { name, format, progress, items, ended: false })
    }

    /// The name used in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The format of the input.
    pub fn format(&self) -> Format {
        self.format
    }

    /// How much was read. The value can be kept, and read while another thread uses the input.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }
}

impl Iterator for Input {
    type Item = Result<Item, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let (next, offset) = match &mut self.items {
            Items::Lines(lines) => (lines.next_item(), lines.offset()),
            Items::List(list) => (list.next_item(), list.offset()),
        };
        match next {
            Ok(Some(item)) => Some(Ok(item)),
            Ok(None) => {
                self.ended = true;
                None
            }
            Err(stop) => {
                self.ended = true;
                let name = self.name.clone();
                Some(Err(match stop {
                    StopReason::Read(source) => Error::Read { name, offset, source },
                    StopReason::List { complete, reason } => Error::List { name, offset, complete, reason },
                }))
            }
        }
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input")
            .field("name", &self.name)
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
