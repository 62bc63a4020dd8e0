//! Finds a record among what was sent.

use std::time::UNIX_EPOCH;

use ichido_core::Timestamp;
use ichido_delivery::disk;
use memchr::memmem::Finder;

use super::{Content, FILE_BYTES_MAX, Line, State};

/// The most that one search reads. Beyond that, older periods are not searched.
const SEARCH_BYTES_MAX: u64 = 256 << 20;

/// What was found about a record.
#[derive(Debug, Default)]
pub struct FoundSent {
    /// When its period was recorded, the period, and what was sent. Newest period first.
    pub sent: Vec<(Timestamp, String, Content)>,
    /// What was searched.
    pub searched: String,
    /// What was not searched, and why.
    pub problems: Vec<String>,
}

impl State {
    /// Finds a record by its event id, in the newest periods.
    pub fn find(&self, id: &str) -> FoundSent {
        let dir = self.sent_dir();
        let mut found = FoundSent::default();
        let periods = match self.periods() {
            Ok(periods) => periods,
            Err(failure) => return FoundSent { problems: vec![failure.to_string()], ..found },
        };
        let needle = format!("\"id\":{},", serde_json::Value::from(id));
        let (finder, mut left, mut searched) = (Finder::new(&needle), SEARCH_BYTES_MAX, 0);
        for period in periods.iter().rev() {
            let path = dir.join(format!("{period}.jsonl"));
            let (bytes, recorded_at) = match path.metadata() {
                Ok(metadata) => (metadata.len(), metadata.modified().ok()),
                Err(error) => {
                    found.problems.push(format!("{}: {error}", path.display()));
                    continue;
                }
            };
            if bytes > left {
                found.problems.push(format!(
                    "periods up to {period} were not searched: they exceed {} MiB",
                    SEARCH_BYTES_MAX >> 20
                ));
                break;
            }
            left -= bytes;
            searched += 1;
            match disk::read_regular(&path, FILE_BYTES_MAX) {
                Ok(text) => {
                    let at =
                        recorded_at.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
                    let at = Timestamp(u64::try_from(at.as_millis()).unwrap_or_default());
                    let content = content_of(&text, &finder);
                    found.sent.extend(content.map(|content| (at, period.to_string(), content)));
                }
                Err(error) => found.problems.push(format!("{}: {error}", path.display())),
            }
        }
        found.searched = format!("{searched} periods in {}", dir.display());
        found
    }
}

fn content_of(text: &[u8], finder: &Finder<'_>) -> Option<Content> {
    let at = finder.find(text)?;
    let start = memchr::memrchr(b'\n', &text[..at]).map_or(0, |before| before + 1);
    let end = memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |after| at + after);
    match serde_json::from_slice(&text[start..end]).ok()? {
        Line::Sent { content, .. } => Some(content),
        Line::Head { .. } | Line::Refused { .. } | Line::End { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::SentRecords;

    #[test]
    fn record_is_found_in_its_period() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::new(dir.path());
        let _lock = state.lock(Timestamp(1)).unwrap();
        let content = |input: u64| Content {
            hash: "h".to_owned(),
            requests: 1,
            input,
            output: 2,
            cost: "0.5".to_owned(),
            currency: "USD".to_owned(),
        };
        for (period, id, input) in [("2026-11-01", "a", 1), ("2026-11-02", "a", 7), ("2026-11-02", "b\"c", 9)]
        {
            let mut sent = state.sent(period).unwrap();
            sent.records.insert(id.to_owned(), content(input));
            state.set_sent(period, &sent).unwrap();
        }
        let found = |id: &str| {
            let found = state.find(id);
            assert!(found.problems.is_empty() && found.searched.starts_with("2 periods"), "{found:?}");
            let read = found.sent.into_iter().map(|(at, period, content)| {
                assert!(at.0 > 0);
                (period, content.input)
            });
            read.collect::<Vec<_>>()
        };
        assert_eq!(found("a"), [("2026-11-02".to_owned(), 7), ("2026-11-01".to_owned(), 1)]);
        assert_eq!(found("b\"c"), [("2026-11-02".to_owned(), 9)]);
        assert_eq!(found("b"), []);
        assert_eq!(SentRecords::default(), state.sent("2026-11-03").unwrap());
    }
}
