//! How often records arrived that were already counted.
//!
//! A meter refuses or replaces them, so they are in no sum. They are counted by tenant, month of usage and app, in the
//! transaction of their batch, so that a statement can say how many there were.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::batch::{Batch, Entry};
use crate::outcome::Outcome;

/// A query for repeated records.
#[derive(Clone, Debug)]
pub struct RepeatsQuery {
    /// The tenant.
    pub tenant: String,
    /// The month of usage, as in `2026-11`.
    pub month: String,
    /// Only records of this app.
    pub app: Option<String>,
}

/// How many records arrived that were already counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeats {
    /// With the same content. They were refused.
    pub duplicates: i64,
    /// With other content, where the first one is kept. They were refused.
    pub conflicts: i64,
    /// Older than what was counted. They were refused.
    pub stale: i64,
    /// Newer than what was counted. They replaced it.
    pub replaced: i64,
    /// They are counted since then, in milliseconds since the epoch, if the database is older than this count.
    pub since: Option<i64>,
}

impl Repeats {
    /// How many were refused.
    pub fn refused(&self) -> i64 {
        self.duplicates + self.conflicts + self.stale
    }

    /// Adds what a store has counted under a name.
    pub(crate) fn add(&mut self, result: &str, records: i64) {
        let counter = match result {
            "duplicate" => &mut self.duplicates,
            "conflict" => &mut self.conflicts,
            "stale" => &mut self.stale,
            "updated" => &mut self.replaced,
            _ => return,
        };
        *counter += records;
    }
}

/// The month of usage, the app and the outcome.
pub(crate) type RepeatKey<'a> = (String, &'a str, &'static str);

/// The repeated records of a batch, in the order in which a store writes them.
pub(crate) fn repeats_of<'a>(batch: &'a Batch, outcomes: &[Outcome]) -> BTreeMap<RepeatKey<'a>, i64> {
    let mut repeats = BTreeMap::new();
    for (entry, outcome) in batch.entries.iter().zip(outcomes) {
        let Entry::Valid(item) = entry else { continue };
        match outcome {
            Outcome::Duplicate | Outcome::Conflict | Outcome::Stale | Outcome::Updated => {
                let month = item.record.usage_date.strftime("%Y-%m").to_string();
                let app = item.record.metadata.source_app_id.as_str();
                *repeats.entry((month, app, outcome.as_str())).or_default() += 1;
            }
            Outcome::Inserted | Outcome::Invalid(_) => {}
        }
    }
    repeats
}
