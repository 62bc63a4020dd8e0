//! Detects the format of an input from its first bytes.
//!
//! An input that starts with `[` is an array. One that starts with `{` is an envelope if that object has a list under
//! `"records"` and nothing follows the object. Everything else is JSON Lines, so that invalid lines are reported one by
//! one. No more is read ahead than needed, and never more than [`DETECTION_BYTES_MAX`].

use std::io::{self, BufRead};

/// The largest offset of the first `"records"` in an envelope.
const DETECTION_BYTES_MAX: usize = 64 * 1024;
const BOM: [u8; 3] = [0xef, 0xbb, 0xbf];

/// The format of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One record per line.
    Lines,
    /// `[…]`
    Array,
    /// `{"records":[…]}`
    Envelope {
        /// The offset of the list.
        list_at: usize,
    },
}

pub(super) enum Refused {
    Read(io::Error),
    Kind(&'static str),
}

/// Returns the format, the bytes that were read to detect it (without a byte order mark), and the reader.
pub(super) fn detect<R: BufRead>(mut reader: R) -> Result<(Format, Vec<u8>, R), Refused> {
    let mut head = Vec::new();
    let mut ended = false;
    loop {
        if let Some(format) = detect_in(&head, ended)? {
            if head.starts_with(&BOM) {
                head.drain(..BOM.len());
            }
            return Ok((format, head, reader));
        }
        ended = more(&mut reader, &mut head).map_err(Refused::Read)? == 0;
    }
}

/// Reads what is available without waiting for more.
fn more(reader: &mut impl BufRead, head: &mut Vec<u8>) -> io::Result<usize> {
    let mut part = [0; 4096];
    loop {
        match reader.read(&mut part) {
            Ok(count) => {
                head.extend_from_slice(&part[..count]);
                return Ok(count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The format, or `None` if more bytes are needed.
fn detect_in(head: &[u8], ended: bool) -> Result<Option<Format>, Refused> {
    let all = ended || head.len() >= DETECTION_BYTES_MAX;
    if head.starts_with(&[0xff, 0xfe]) || head.starts_with(&[0xfe, 0xff]) {
        return Err(Refused::Kind("encoded as UTF-16; convert it to UTF-8 first"));
    }
    if head.len() < BOM.len() && BOM.starts_with(head) && !all {
        return Ok(None);
    }
    let text = head.strip_prefix(&BOM).unwrap_or(head);
    let Some(start) = text.iter().position(|byte| !byte.is_ascii_whitespace()) else {
        return Ok(all.then_some(Format::Lines));
    };
    Ok(match text[start] {
        b'[' => Some(Format::Array),
        b'{' => match scan_object(&text[start..]) {
            Scan::Plain | Scan::EnvelopeAndMore => Some(Format::Lines),
            Scan::Envelope(_) | Scan::Open if !all => None,
            Scan::Envelope(list_at) => Some(Format::Envelope { list_at: start + list_at }),
            Scan::Open => Some(Format::Lines),
        },
        _ => Some(Format::Lines),
    })
}

enum Scan {
    /// An object without a list under `"records"`.
    Plain,
    /// An object with a list under `"records"` at this offset. Nothing was found after the object so far.
    Envelope(usize),
    /// An object with such a list, and more data after the object.
    EnvelopeAndMore,
    /// An object that does not end yet, without such a list so far.
    Open,
}

fn scan_object(object: &[u8]) -> Scan {
    let (mut depth, mut list_at) = (0_usize, None);
    // The last token on the top level: a key is a string after `{` or `,`.
    let (mut before_key, mut is_records) = (false, false);
    let mut at = 0;
    while at < object.len() {
        match object[at] {
            b'"' => {
                let Some(end) = end_of_string(object, at) else { break };
                if depth == 1 {
                    is_records = before_key && &object[at + 1..end] == b"records";
                    before_key = false;
                }
                at = end;
            }
            b'{' | b'[' => {
                if depth == 1 && is_records && object[at] == b'[' && list_at.is_none() {
                    list_at = Some(at);
                }
                depth += 1;
                (before_key, is_records) = (depth == 1, false);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 1 => (before_key, is_records) = (true, false),
            _ => {}
        }
        at += 1;
        if depth == 0 {
            let more = object[at..].iter().any(|byte| !byte.is_ascii_whitespace());
            return match list_at {
                None => Scan::Plain,
                Some(_) if more => Scan::EnvelopeAndMore,
                Some(list_at) => Scan::Envelope(list_at),
            };
        }
    }
    list_at.map_or(Scan::Open, Scan::Envelope)
}

fn end_of_string(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    while at < text.len() {
        match text[at] {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    None
}
