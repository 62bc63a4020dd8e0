//! What became of the records of a batch, and the answer that tells it.

use ichido_usage::Profile;
use serde::{Serialize, Serializer};

use crate::batch::Batch;
use crate::fault::Fault;

/// Records that a receipt names.
const MOST_NOTED: usize = 100;

/// What became of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is counted now.
    Inserted,
    /// It replaced an older one.
    Updated,
    /// It was counted before, with the same content.
    Duplicate,
    /// Its id was counted before with other content, which stays.
    Conflict,
    /// What is counted is newer, and stays.
    Stale,
    /// It cannot be counted: the field, and why.
    Invalid(Fault),
}

impl Outcome {
    /// Its word on the wire.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Inserted => "inserted",
            Self::Updated => "updated",
            Self::Duplicate => "duplicate",
            Self::Conflict => "conflict",
            Self::Stale => "stale",
            Self::Invalid(_) => "invalid",
        }
    }

    /// What a person must know beside the word.
    fn reason(&self) -> Option<String> {
        match self {
            Self::Inserted | Self::Updated | Self::Duplicate => None,
            Self::Conflict => Some("this id was counted before with other content, which stays".to_owned()),
            Self::Stale => Some("what is counted under this id is newer, and stays".to_owned()),
            Self::Invalid(fault) => Some(format!("{}: {}", fault.field, fault.reason)),
        }
    }
}

/// How many records had which outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Counted now.
    pub inserted: u64,
    /// Replaced an older one.
    pub updated: u64,
    /// Counted before.
    pub duplicates: u64,
    /// Counted before with other content.
    pub conflicts: u64,
    /// Older than what is counted.
    pub stale: u64,
    /// Not to be counted.
    pub invalid: u64,
    /// All of them.
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

    /// The status of the answer.
    ///
    /// A receiver that upserts says 200. Otherwise 201 if something is new, and 409 if every record was there. If some records
    /// are invalid and the others are not, it is 207 under every profile: a client that looks at nothing but the status must not
    /// take it for success. Only a batch of which nothing can be counted is refused as a whole: senders search such a batch for
    /// what is wrong in it, and stop if everything is.
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

/// One record's part of an answer.
#[derive(Clone, Debug, Serialize)]
pub struct Told<'a> {
    /// Its id, as far as it could be read.
    pub source_event_id: Option<&'a str>,
    /// The outcome's word.
    #[serde(serialize_with = "word")]
    pub status: &'a Outcome,
    /// Why, where it is not plain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl<'a> Told<'a> {
    /// What is told of one record.
    pub fn new(source_event_id: Option<&'a str>, outcome: &'a Outcome) -> Self {
        Self { source_event_id, status: outcome, reason: outcome.reason() }
    }
}

/// What a receipt keeps of an answer: its status, its counts, and the records that were not plainly counted.
#[derive(Debug, Serialize)]
pub(crate) struct Summary<'a> {
    status: u16,
    #[serde(flatten)]
    counts: Counts,
    /// The first hundred of them.
    noted: Vec<Told<'a>>,
}

impl<'a> Summary<'a> {
    pub(crate) fn new(batch: &'a Batch, outcomes: &'a [Outcome], profile: Profile) -> Self {
        let counts = Counts::of(outcomes);
        let told = batch.entries.iter().zip(outcomes).filter(|(_, outcome)| outcome.reason().is_some());
        let noted =
            told.map(|(entry, outcome)| Told::new(entry.event_id(), outcome)).take(MOST_NOTED).collect();
        Self { status: counts.status(profile.upserts()), counts, noted }
    }

    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

fn word<S: Serializer>(outcome: &&Outcome, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(outcome.word())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(outcomes: &[Outcome], upserts: bool) -> u16 {
        Counts::of(outcomes).status(upserts)
    }

    #[test]
    fn the_status_tells_the_batch_and_the_words_tell_the_records() {
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
