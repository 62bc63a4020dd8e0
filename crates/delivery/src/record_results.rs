//! What an answer says of single records.
//!
//! Some receivers answer with `"results": [{"status": …}, …]`, one for each record in the order of the request, where
//! a status is an HTTP status or a word. Words that are not known leave the answer's own status to decide.

use serde::Deserialize;

/// What became of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordResult {
    /// It is there, now or before.
    Delivered,
    /// It may go better later.
    Retry,
    /// It is refused, in the receiver's words.
    Rejected(String),
}

#[derive(Deserialize)]
struct Body {
    results: Vec<serde_json::Value>,
}

/// The result of each record, if the answer has exactly one that is understood for each.
pub(crate) fn parse(body: &[u8], records: usize) -> Option<Vec<RecordResult>> {
    let body: Body = serde_json::from_slice(body).ok()?;
    if body.results.len() != records {
        return None;
    }
    body.results.iter().map(record_result).collect()
}

fn record_result(result: &serde_json::Value) -> Option<RecordResult> {
    let rejected = || RecordResult::Rejected(result.to_string());
    match result.get("status")? {
        serde_json::Value::Number(status) => Some(match status.as_u64()? {
            200..=299 | 409 => RecordResult::Delivered,
            408 | 425 | 429 | 500 | 502..=504 | 506..=599 => RecordResult::Retry,
            _ => rejected(),
        }),
        serde_json::Value::String(word) => match word.to_ascii_lowercase().as_str() {
            "inserted" | "updated" | "unchanged" | "created" | "accepted" | "ok" | "success"
            | "duplicate" | "conflict" | "stale" => Some(RecordResult::Delivered),
            "retry" | "throttled" | "unavailable" | "timeout" => Some(RecordResult::Retry),
            "rejected" | "refused" | "invalid" | "failed" | "error" => Some(rejected()),
            _ => None,
        },
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Array(_)
        | serde_json::Value::Object(_) => None,
    }
}

/// How many records became what, where an answer leaves their results out because there are many.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Counts {
    inserted: u64,
    updated: u64,
    unchanged: u64,
    duplicates: u64,
    conflicts: u64,
    stale: u64,
    invalid: u64,
}

/// Whether an answer counts every record among those that are there.
pub(crate) fn counts_cover_all(body: &[u8], records: usize) -> bool {
    let Ok(counts) = serde_json::from_slice::<Counts>(body) else { return false };
    let Counts { inserted, updated, unchanged, duplicates, conflicts, stale, invalid } = counts;
    let there = [inserted, updated, unchanged, duplicates, conflicts, stale];
    let sum = there.into_iter().try_fold(0u64, u64::checked_add);
    invalid == 0 && sum == Some(records as u64)
}

/// Whether an answer that was cut off has results for single records.
pub(crate) fn may_contain(body: &[u8]) -> bool {
    String::from_utf8_lossy(body).contains("\"results\"")
}
