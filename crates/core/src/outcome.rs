//! Outcomes: the result of an effect, kept for retries.

use std::fmt;

use bytes::Bytes;

use crate::{LimitError, Limits};

/// The outcome of a completed effect.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The result to replay, which the ledger does not interpret.
    Kept(Bytes),
    /// The effect happened, but its result was not kept, for this reason.
    Tombstone(String),
}

impl Outcome {
    /// Creates an outcome to replay.
    pub fn kept(bytes: impl Into<Bytes>) -> Self {
        Outcome::Kept(bytes.into())
    }

    /// The number of bytes to replay.
    pub fn size(&self) -> usize {
        match self {
            Outcome::Kept(bytes) => bytes.len(),
            Outcome::Tombstone(_) => 0,
        }
    }

    /// Checks the limits.
    pub fn check(&self) -> Result<(), LimitError> {
        match self {
            Outcome::Kept(bytes) => LimitError::bytes("outcome", bytes.len(), Limits::STANDARD.outcome_bytes),
            Outcome::Tombstone(reason) => {
                LimitError::bytes("tombstone reason", reason.len(), Limits::STANDARD.reason_bytes)
            }
        }
    }
}

/// Prints the kind and the length only: an outcome may contain personal data or secrets, and debug output ends up in logs.
impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Kept(bytes) => write!(f, "Kept({} bytes)", bytes.len()),
            Outcome::Tombstone(reason) => write!(f, "Tombstone({} bytes)", reason.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Claim, CurrentState, Done, Fingerprint, Holder, Key, Metadata, Nonce, Record, Resolution, Resolved,
        Settle, Settled, State, Timestamp, Token,
    };

    #[test]
    fn debug_output_does_not_contain_the_outcome() {
        let record = |outcome: &Outcome| Record {
            key: Key::unscoped("k").unwrap(),
            fingerprint: Fingerprint::of(["x"]),
            nonce: Nonce::from_bytes([1; 16]),
            token: Token::from_bytes([2; 16]),
            caller: None,
            attempt: 1,
            holder: Holder::Process,
            claimed_at: Timestamp(0),
            renewed_at: Timestamp(0),
            renewals: 0,
            lease_ms: 1,
            retention_ms: 1,
            metadata: Metadata::new([("user_id".to_owned(), "secret-user".to_owned())]).unwrap(),
            state: State::Done(Done { outcome: outcome.clone(), completed_at: Timestamp(0) }),
        };
        for outcome in [Outcome::kept("secret-result"), Outcome::Tombstone("secret-result".to_owned())] {
            let texts = [
                format!("{outcome:?}"),
                format!("{:#?}", record(&outcome)),
                format!("{:?}", Claim::Done(outcome.clone())),
                format!("{:?}", Settle::Complete(outcome.clone())),
                format!("{:?}", Settled::Stale(CurrentState::Done(outcome.clone()))),
                format!("{:?}", Resolution::Done(outcome.clone())),
                format!("{:?}", Resolved::Refused(CurrentState::Done(outcome.clone()))),
            ];
            for text in texts {
                assert!(!text.contains("secret") && text.contains("(13 bytes)"), "{text}");
            }
        }
    }
}
