//! Outcomes: what an effect answered, kept for its repeats.

use bytes::Bytes;

use crate::{LimitError, Limits};

/// What is remembered of a completed effect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The answer, to be replayed. The ledger does not look inside.
    Kept(Bytes),
    /// The effect is done, but its answer was not kept; the reason says why.
    Tombstone(String),
}

impl Outcome {
    /// An outcome to replay.
    pub fn kept(bytes: impl Into<Bytes>) -> Self {
        Outcome::Kept(bytes.into())
    }

    /// Bytes that a replay would carry.
    pub fn size(&self) -> usize {
        match self {
            Outcome::Kept(bytes) => bytes.len(),
            Outcome::Tombstone(_) => 0,
        }
    }

    /// Refuses what no ledger may store.
    pub fn check(&self) -> Result<(), LimitError> {
        match self {
            Outcome::Kept(bytes) => LimitError::bytes("outcome", bytes.len(), Limits::STANDARD.outcome_bytes),
            Outcome::Tombstone(reason) => {
                LimitError::bytes("tombstone reason", reason.len(), Limits::STANDARD.reason_bytes)
            }
        }
    }
}
