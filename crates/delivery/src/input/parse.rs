//! Whether bytes are a record.

use serde_json::value::RawValue;

use super::item::{At, Broken, CUT_BYTES, DEPTH_MAX, Item, RECORD_BYTES_MAX, Record};

/// Bytes that are valid JSON and more, or why not.
pub(super) enum Judged {
    Item(Item),
    /// No JSON at all: inside a list that means that the list cannot be trusted any more.
    NotJson(String),
}

/// Takes `bytes` (without the space around them) as the record at `at`.
pub(super) fn judge(bytes: &[u8], at: At) -> Judged {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Judged::NotJson("not UTF-8".to_owned());
    };
    if depth(bytes) > DEPTH_MAX {
        // Judged before parsing: nothing is to be built from it.
        return Judged::Item(broken(bytes, at, format!("nested deeper than {DEPTH_MAX}")));
    }
    match RawValue::from_string(text.to_owned()) {
        Err(error) => Judged::NotJson(not_json(&error)),
        Ok(_) if bytes.first() != Some(&b'{') => Judged::Item(broken(bytes, at, "not an object".to_owned())),
        Ok(raw) => Judged::Item(Item::Record(Record { at, raw })),
    }
}

/// The item for bytes that are no record.
pub(super) fn broken(bytes: &[u8], at: At, reason: String) -> Item {
    Item::Broken(Broken { at, reason, bytes: bytes.to_vec(), length: bytes.len() as u64 })
}

/// The item for a record of `length` bytes that begins with `bytes`.
pub(super) fn too_long(bytes: &[u8], length: u64, at: At) -> Item {
    let reason = format!("longer than {RECORD_BYTES_MAX} bytes");
    Item::Broken(Broken { at, reason, bytes: bytes[..bytes.len().min(CUT_BYTES)].to_vec(), length })
}

/// The parser's words without its own line number, which is always 1.
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
