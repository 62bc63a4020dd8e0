//! What happened to the records of a batch, and how the response reports it.

use ichido_usage::Profile;
use serde::{Serialize, Serializer};

use crate::batch::Batch;
use crate::fault::Fault;

/// The most records that a receipt lists.
const NOTED_MAX: usize = 100;

/// What happened to one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was counted for the first time.
    Inserted,
    /// It replaced an older revision.
    Updated,
    /// It was already counted, with the same content.
    Duplicate,
    /// Its id was already counted with different content, which stays.
    Conflict,
    /// A newer revision was already counted, and stays.
    Stale,
    /// It cannot be counted.
    Invalid(Fault),
}

impl Outcome {
    /// The name of the outcome on the wire.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Inserted => "inserted",
            Self::Updated => "updated",
            Self::Duplicate => "duplicate",
            Self::Conflict => "conflict",
            Self::Stale => "stale",
            Self::Invalid(_) => "invalid",
        }
    }

    /// An explanation for operators.
    fn reason(&self) -> Option<String> {
        match self {
            Self::Inserted | Self::Updated | Self::Duplicate => None,
            Self::Conflict => {
                Some("this id was already counted with different content, which is kept".to_owned())
            }
            Self::Stale => Some("a newer revision of this id was already counted, and is kept".to_owned()),
            Self::Invalid(fault) => Some(format!("{}: {}", fault.field, fault.reason)),
        }
    }
}

/// How many records had each outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Counted for the first time.
    pub inserted: u64,
    /// Replaced an older revision.
    pub updated: u64,
    /// Already counted.
    pub duplicates: u64,
    /// Already counted with different content.
    pub conflicts: u64,
    /// Older than what is counted.
    pub stale: u64,
    /// Cannot be counted.
    pub invalid: u64,
    /// All records.
    pub total: u64,
}

impl Counts {
    /// Counts outcomes.
    pub fn of(outcomes: &[Outcome]) -> Self {
        let mut counts = Self::default();
        for outcome in outcomes {
            counts.total += 1;
            *match outcome {
                Outcome::Inserted => &mut counts.inserted,
                Outcome::Updated => &mut counts.updated,
                Outcome::Duplicate => &mut counts.duplicates,
                Outcome::Conflict => &mut counts.conflicts,
                Outcome::Stale => &mut counts.stale,
                Outcome::Invalid(_) => &mut counts.invalid,
            } += 1;
        }
        counts
    }

    /// The status of the response.
    ///
    /// A receiver that upserts responds 200. Otherwise the status is 201 if any record is new, and 409 if all were
    /// already counted. If only some records are invalid, the status is 207 under every profile: a client that
    /// looks only at the status must not take it for success. Only a batch without any valid record is refused as a
    /// whole: senders bisect such a batch to find what is wrong, and stop if everything is.
    pub fn status(&self, upserts: bool) -> u16 {
        match () {
            () if self.invalid == self.total => 422,
            () if self.invalid > 0 => 207,
            () if upserts => 200,
            () if self.inserted > 0 => 201,
            () => 409,
        }
    }
}

/// The result of one record, in a response.
#[derive(Clone, Debug, Serialize)]
pub struct RecordResult<'a> {
    /// The id of the record, if it can be read.
    pub source_event_id: Option<&'a str>,
    /// The name of the outcome.
    #[serde(serialize_with = "serialize_name")]
    pub status: &'a Outcome,
    /// An explanation, if the outcome needs one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl<'a> RecordResult<'a> {
    /// Creates the result of one record.
    pub fn new(source_event_id: Option<&'a str>, outcome: &'a Outcome) -> Self {
        Self { source_event_id, status: outcome, reason: outcome.reason() }
    }
}

/// What a receipt keeps of a response: its status, its counts, and the records whose outcome needs an explanation.
#[derive(Debug, Serialize)]
pub(crate) struct ReceiptSummary<'a> {
    status: u16,
    #[serde(flatten)]
    counts: Counts,
    /// The first hundred of them.
    noted: Vec<RecordResult<'a>>,
}

impl<'a> ReceiptSummary<'a> {
    pub(crate) fn new(batch: &'a Batch, outcomes: &'a [Outcome], profile: Profile) -> Self {
        let counts = Counts::of(outcomes);
        let explained = batch.entries.iter().zip(outcomes).filter(|(_, outcome)| outcome.reason().is_some());
        let noted = explained
            .map(|(entry, outcome)| RecordResult::new(entry.event_id(), outcome))
            .take(NOTED_MAX)
            .collect();
        Self { status: counts.status(profile.upserts()), counts, noted }
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

fn serialize_name<S: Serializer>(outcome: &&Outcome, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(outcome.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(outcomes: &[Outcome], upserts: bool) -> u16 {
        Counts::of(outcomes).status(upserts)
    }

    #[test]
    fn status_summarizes_the_outcomes() {
        let bad = || Outcome::Invalid(Fault { field: "model".to_owned(), reason: "is missing".to_owned() });
        assert_eq!(status(&[Outcome::Inserted, Outcome::Duplicate], false), 201);
        assert_eq!(status(&[Outcome::Duplicate, Outcome::Conflict], false), 409);
        assert_eq!(status(&[Outcome::Updated, Outcome::Stale, Outcome::Duplicate], true), 200);
        for upserts in [false, true] {
            assert_eq!(status(&[Outcome::Inserted, Outcome::Duplicate, bad()], upserts), 207);
            // A 409 would tell some senders that nothing is left to do.
            assert_eq!(status(&[Outcome::Duplicate, bad()], upserts), 207);
            assert_eq!(status(&[bad(), bad()], upserts), 422);
        }
    }
}
