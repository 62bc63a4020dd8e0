//! What the body of a 409 says, as far as it is understood.
//!
//! Codes and problem types are matched whole; prose by phrases. A phrase counts for the batch only if nothing in the answer speaks of
//! records or of a part: an answer that is not understood is no evidence, and loses nothing.

use serde_json::Value;

/// Strings that are looked at; more than that is no error message.
const STRINGS_MAX: usize = 64;
/// Objects inside objects that are looked into: `{"error": {"details": {…}}}`.
const DEPTH_MAX: usize = 3;

/// Codes and last words of problem types that mean a request under way.
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
    // The title that the draft of the IETF gives it.
    "a request is outstanding",
    "still running",
];
/// Codes and problem types of ichido's gateway that no repetition changes.
const NEEDS_OPERATOR: [&str; 4] =
    ["in doubt", "idempotency in doubt", "caller changed", "idempotency caller changed"];
/// A gateway that did the request and has no answer to repeat.
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
/// Words with which an answer may speak of less than the batch, or of something else.
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

/// What an answer says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hints {
    /// An earlier request is still being processed.
    pub(super) in_progress: bool,
    /// No repetition changes it.
    pub(super) needs_operator: bool,
    /// The receiver has the whole batch.
    pub(super) batch_is_known: bool,
}

pub(super) fn read(body: &[u8]) -> Hints {
    let texts = texts(body);
    let codes: Vec<String> = texts.iter().map(|text| last_segment(text)).collect();
    // A space on both sides, so that phrases are found by whole words.
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

/// The strings of a JSON object outside its arrays, or the text as a whole.
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

/// The last word of a URL or URN, else the text, in plain words.
fn last_segment(text: &str) -> String {
    words(text.rsplit(['/', '#', ':']).next().unwrap_or_default())
}

/// Lower-case words with one space between them: `DuplicateBatch`, `duplicate_batch` and `Duplicate batch` are the same.
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
