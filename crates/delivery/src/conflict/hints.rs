//! What the body of a 409 says, as far as we understand it.
//!
//! Codes and problem types must match exactly; prose is searched for phrases. A phrase counts for the batch only if
//! nothing in the response mentions records or a part. A response that we do not understand is not evidence.

use serde_json::Value;

/// The most strings that are examined. An error message has fewer.
const STRINGS_MAX: usize = 64;
/// How many levels of nested objects are examined: `{"error": {"details": {…}}}`.
const DEPTH_MAX: usize = 3;

/// Codes, or last segments of problem types, of a request in progress.
const IN_PROGRESS_CODES: [&str; 11] = [
    "in flight",
    "in progress",
    "processing",
    "request in flight",
    "request in progress",
    "idempotency in flight",
    "idempotency in progress",
    "idempotency key in use",
    "idempotency key in progress",
    "concurrent request",
    "idempotency concurrent request",
];
const IN_PROGRESS: [&str; 7] = [
    "being processed",
    "still processing",
    "currently processing",
    "in progress",
    "in flight",
    // The title in the IETF draft.
    "a request is outstanding",
    "still running",
];
/// Codes and problem types of ichido's gateway that a retry does not change.
const NEEDS_OPERATOR: [&str; 4] =
    ["in doubt", "idempotency in doubt", "caller changed", "idempotency caller changed"];
/// Codes of a gateway that executed the request but kept no response to replay.
const DONE_CODES: [&str; 2] = ["answer not kept", "idempotency answer not kept"];
const BATCH_IS_KNOWN: [&str; 12] = [
    "duplicate batch",
    "duplicated batch",
    "batch duplicate",
    "batch is duplicate",
    "batch is a duplicate",
    "batch already",
    "batch was already",
    "batch is already",
    "batch has already",
    "batch key already",
    "batch idempotency key already",
    "already processed this batch",
];
/// Words that show that a response is about less than the batch, or about something else.
const NOT_THE_BATCH: [&str; 25] = [
    "record",
    "records",
    "event",
    "events",
    "item",
    "items",
    "entry",
    "entries",
    "row",
    "rows",
    "line",
    "lines",
    "element",
    "elements",
    "some",
    "part",
    "partial",
    "partially",
    "contains",
    "one",
    "failed",
    "rejected",
    "no duplicate",
    "not duplicate",
    "not a duplicate",
];

/// What a response says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hints {
    /// An earlier request is still being processed.
    pub(super) in_progress: bool,
    /// A retry does not change it.
    pub(super) needs_operator: bool,
    /// The receiver has the whole batch.
    pub(super) batch_is_known: bool,
}

pub(super) fn read(body: &[u8]) -> Hints {
    let texts = texts(body);
    let codes: Vec<String> = texts.iter().map(|text| last_segment(text)).collect();
    // A space on both sides, so that only whole words match.
    let prose: Vec<String> = texts.iter().map(|text| format!(" {} ", words(text))).collect();
    let is_code = |known: &[&str]| codes.iter().any(|code| known.contains(&code.as_str()));
    let says = |phrases: &[&str]| {
        phrases.iter().any(|phrase| prose.iter().any(|text| text.contains(&format!(" {phrase} "))))
    };
    Hints {
        in_progress: is_code(&IN_PROGRESS_CODES) || says(&IN_PROGRESS),
        needs_operator: is_code(&NEEDS_OPERATOR),
        batch_is_known: is_code(&DONE_CODES) || (says(&BATCH_IS_KNOWN) && !says(&NOT_THE_BATCH)),
    }
}

/// The strings of a JSON object outside its arrays, or the whole text.
fn texts(body: &[u8]) -> Vec<String> {
    match serde_json::from_slice(body) {
        Ok(value) => {
            let mut found = Vec::new();
            collect(&value, DEPTH_MAX, &mut found);
            found
        }
        Err(_) => std::str::from_utf8(body).map(|text| vec![text.to_owned()]).unwrap_or_default(),
    }
}

fn collect(value: &Value, depth: usize, found: &mut Vec<String>) {
    match value {
        Value::String(text) if found.len() < STRINGS_MAX => found.push(text.clone()),
        Value::Object(fields) if depth > 0 => {
            fields.values().for_each(|value| collect(value, depth - 1, found));
        }
        Value::String(_)
        | Value::Object(_)
        | Value::Array(_)
        | Value::Null
        | Value::Bool(_)
        | Value::Number(_) => {}
    }
}

/// The last segment of a URL or URN, else the whole text, as words.
fn last_segment(text: &str) -> String {
    words(text.rsplit(['/', '#', ':']).next().unwrap_or_default())
}

/// Lower-case words separated by single spaces: `DuplicateBatch`, `duplicate_batch` and `Duplicate batch` are equal.
fn words(text: &str) -> String {
    let mut words = String::with_capacity(text.len());
    let mut before = ' ';
    for char in text.chars() {
        let begins = char.is_uppercase() && before.is_lowercase();
        if (begins || !char.is_alphanumeric()) && !words.ends_with(' ') && !words.is_empty() {
            words.push(' ');
        }
        if char.is_alphanumeric() {
            words.extend(char.to_lowercase());
        }
        before = char;
    }
    words.trim_end().to_owned()
}
