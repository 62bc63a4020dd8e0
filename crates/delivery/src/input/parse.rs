//! Parses a record.

use serde_json::value::RawValue;

use super::item::{DEPTH_MAX, Invalid, Item, KEPT_BYTES_MAX, Position, RECORD_BYTES_MAX, Record};

/// The result of parsing.
pub(super) enum Parsed {
    Item(Item),
    /// Not JSON: within a list, the rest of the list cannot be trusted.
    NotJson(String),
}

/// Parses `bytes` (without surrounding whitespace) as the record at `at`.
pub(super) fn parse(bytes: &[u8], at: Position) -> Parsed {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Parsed::NotJson("not UTF-8".to_owned());
    };
    if depth(bytes) > DEPTH_MAX {
        // Checked before parsing, so that nothing is built from it.
        return Parsed::Item(invalid(bytes, at, format!("nested deeper than {DEPTH_MAX}")));
    }
    match RawValue::from_string(text.to_owned()) {
        Err(error) => Parsed::NotJson(not_json(&error)),
        Ok(_) if bytes.first() != Some(&b'{') => Parsed::Item(invalid(bytes, at, "not an object".to_owned())),
        Ok(raw) => Parsed::Item(Item::Record(Record { position: at, raw })),
    }
}

/// The item for bytes that are not a record.
pub(super) fn invalid(bytes: &[u8], at: Position, reason: String) -> Item {
    Item::Invalid(Invalid { position: at, reason, bytes: bytes.to_vec(), length: bytes.len() as u64 })
}

/// The item for a record of `length` bytes that starts with `bytes`.
pub(super) fn too_long(bytes: &[u8], length: u64, at: Position) -> Item {
    let reason = format!("longer than {RECORD_BYTES_MAX} bytes");
    Item::Invalid(Invalid {
        position: at,
        reason,
        bytes: bytes[..bytes.len().min(KEPT_BYTES_MAX)].to_vec(),
        length,
    })
}

/// The parser's message without its line number, which is always 1.
fn not_json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or(&text);
    format!("not JSON: {what} at column {}", error.column())
}

fn depth(bytes: &[u8]) -> usize {
    let opened = bytes.iter().filter(|byte| matches!(byte, b'{' | b'[')).count();
    if opened <= DEPTH_MAX {
        return opened;
    }
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}
