//! The results for individual records in a response.
//!
//! Some receivers return `"results": [{"status": …}, …]`, one per record in request order. A status is an HTTP status
//! or a word. If a word is unknown, the status of the response itself decides.

use serde::Deserialize;

/// The result for one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordResult {
    /// The receiver has it, since now or before.
    Delivered,
    /// It may be accepted later.
    Retry,
    /// The receiver rejects it, with this text.
    Rejected(String),
}

#[derive(Deserialize)]
struct Body {
    results: Vec<serde_json::Value>,
}

/// The result for each record, if the response contains exactly one known result per record.
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

/// Totals by result, which some receivers send instead of the results of many records.
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

/// Whether the totals say that the receiver has every record.
pub(crate) fn counts_cover_all(body: &[u8], records: usize) -> bool {
    let Ok(counts) = serde_json::from_slice::<Counts>(body) else { return false };
    let Counts { inserted, updated, unchanged, duplicates, conflicts, stale, invalid } = counts;
    let there = [inserted, updated, unchanged, duplicates, conflicts, stale];
    let sum = there.into_iter().try_fold(0u64, u64::checked_add);
    invalid == 0 && sum == Some(records as u64)
}

/// Whether a truncated response contains results for individual records.
pub(crate) fn may_contain(body: &[u8]) -> bool {
    String::from_utf8_lossy(body).contains("\"results\"")
}
