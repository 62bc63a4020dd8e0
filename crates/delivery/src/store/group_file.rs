//! Several batches in one file, so that one sync makes all of them durable.
//!
//! ```text
//! + 3f2a91bc 0000103121 spool_20250118T120530Z_a3f2e1b9c4d5.json
//! {"batchIdempotencyKey":"a3f2e1b9c4d5…",…,"records":[…]
//! - 07c1d24e 0000102877 spool_20250118T120530Z_b1c2d3e4f5a6.json
//! …
//! ```
//!
//! Each entry is a line with the state, a CRC-32C, the length and the name of a batch file, followed by the text of that
//! file up to its checksum. `+`: the process has the batch here. `-`: it was delivered, or has a file of its own. The
//! state is one byte, which is overwritten in place, so it is never torn.

use std::ops::Range;

use super::file_name::FileName;
use super::format::{Corrupt, StoredBatch, seal};
use super::layout::{BatchDir, name_time};

/// The most batches that are written together.
pub(super) const GROUP_BATCHES_MAX: usize = 16;
/// The most bytes of a group of several batches.
pub(super) const GROUP_BYTES_MAX: usize = 4 << 20;
/// The state of an entry that has left its group.
pub(super) const GONE: &[u8] = b"-";

const PREFIX: &str = "group_";
const LIVE: char = '+';
const CRC_DIGITS: usize = 8;
const LENGTH_DIGITS: usize = 10;

/// The name of a group file.
pub(super) fn name(number: u64) -> String {
    format!("{PREFIX}{number}")
}

/// Whether a file in the directory of a process is a group.
pub fn is_group(file: &str) -> bool {
    file.strip_prefix(PREFIX).is_some_and(|number| number.parse::<u64>().is_ok())
}

/// The batches that a process has in a group.
pub fn read_group(bytes: &[u8]) -> Result<Vec<StoredBatch>, Corrupt> {
    let entries = parse(bytes)?;
    let decode = |entry: &Entry<'_>| {
        check(entry.text.as_bytes(), entry.crc)?;
        let sealed = seal(entry.text.to_owned());
        StoredBatch::decode_or(sealed.as_bytes(), false, || name_time(&entry.name))
    };
    entries.iter().map(decode).collect()
}

/// An entry that is still in its group.
pub(super) struct Entry<'a> {
    pub(super) name: FileName,
    pub(super) file: &'a str,
    pub(super) text: &'a str,
    crc: u32,
}

impl Entry<'_> {
    /// The file of the batch. If the entry is damaged, so is the file: it has no checksum, and will be kept in failed.
    pub(super) fn sealed(&self) -> String {
        match check(self.text.as_bytes(), self.crc) {
            Ok(()) => seal(self.text.to_owned()),
            Err(_) => self.text.to_owned(),
        }
    }
}

/// Where an entry is in its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// The byte that is its state.
    pub(super) state: u64,
    /// Its text.
    pub(super) text: Range<u64>,
    /// The CRC-32C of its text.
    pub(super) crc: u32,
}

/// Appends an entry.
pub(super) fn push(group: &mut Vec<u8>, file: &str, text: &str) -> Span {
    let (state, crc) = (group.len() as u64, crc32c::crc32c(text.as_bytes()));
    let header = format!("{LIVE} {crc:0CRC_DIGITS$x} {length:0LENGTH_DIGITS$} {file}\n", length = text.len());
    group.extend_from_slice(header.as_bytes());
    let start = group.len() as u64;
    group.extend_from_slice(text.as_bytes());
    group.push(b'\n');
    Span { state, text: start..start + text.len() as u64, crc }
}

/// The entries that are still in a group. Their texts are not checked.
pub(super) fn parse(bytes: &[u8]) -> Result<Vec<Entry<'_>>, Corrupt> {
    let corrupt = |what: &str| Corrupt(format!("a group of batches: {what}"));
    let mut rest = std::str::from_utf8(bytes).map_err(|_| corrupt("not UTF-8"))?;
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let (header, after) = rest.split_once('\n').ok_or_else(|| corrupt("it ends early"))?;
        let mut words = header.splitn(4, ' ');
        let mut word = || words.next().ok_or_else(|| corrupt("an invalid header"));
        let (state, crc, length, file) = (word()?, word()?, word()?, word()?);
        let crc = u32::from_str_radix(crc, 16).map_err(|_| corrupt("an invalid header"))?;
        let length: usize = length.parse().map_err(|_| corrupt("an invalid header"))?;
        let name =
            FileName::parse(BatchDir::Spool.as_str(), file).ok_or_else(|| corrupt("an invalid file name"))?;
        let (text, end) = after.split_at_checked(length).ok_or_else(|| corrupt("it ends early"))?;
        rest = end.strip_prefix('\n').ok_or_else(|| corrupt("an invalid length"))?;
        if state.starts_with(LIVE) {
            entries.push(Entry { name, file, text, crc });
        }
    }
    Ok(entries)
}

/// Checks the text of an entry.
pub(super) fn check(text: &[u8], crc: u32) -> Result<(), Corrupt> {
    match crc32c::crc32c(text) == crc {
        true => Ok(()),
        false => Err(Corrupt("a group of batches: the checksum of an entry does not match".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::format::CHECKSUM;

    const NAMES: [&str; 2] = ["spool_20250118T120530Z_aaa.json", "spool_20250118T120530Z_bbb.json"];

    const TEXT: &str = "{\"a\":\n\"é\"";

    fn group() -> (Vec<u8>, [Span; 2]) {
        let mut bytes = Vec::new();
        let spans = NAMES.map(|name| push(&mut bytes, name, TEXT));
        (bytes, spans)
    }

    #[test]
    fn entries_are_read_as_they_were_written_until_they_leave() {
        let (mut bytes, spans) = group();
        let read = parse(&bytes).unwrap();
        assert_eq!(read.iter().map(|entry| entry.file).collect::<Vec<_>>(), NAMES);
        assert!(read.iter().all(|entry| entry.text == TEXT));
        bytes[usize::try_from(spans[0].state).unwrap()] = GONE[0];
        let read = parse(&bytes).unwrap();
        assert_eq!(read.iter().map(|entry| entry.file).collect::<Vec<_>>(), NAMES[1..]);
    }

    #[test]
    fn damage_is_an_error_or_stays_within_its_entry() {
        let (bytes, _) = group();
        let whole = seal(TEXT.to_owned());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            let read = parse(&damaged).unwrap_or_default();
            let sealed: Vec<_> = read.iter().map(Entry::sealed).collect();
            let is_whole = |text: &String| *text == whole;
            assert!(sealed.iter().all(|text| is_whole(text) || !text.contains(CHECKSUM)), "byte {at}");
            assert!(sealed.len() < 2 || sealed.iter().any(is_whole), "byte {at}");
            assert!(at == 0 || parse(&bytes[..at]).map_or(true, |read| read.len() < 2), "cut at {at}");
        }
        assert!(is_group("group_17") && !is_group("group_x") && !is_group("spool_17"));
    }
}
