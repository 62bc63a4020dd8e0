//! How a holder settles its claim, and how an operator resolves it.

use crate::digest::digest_of;
use crate::{LimitError, Limits, Outcome, Record, Token, to_hex};

/// What the holder of a claim does with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Settle {
    /// Renews the lease.
    Renew {
        /// The length of the lease from now on.
        lease_ms: u64,
    },
    /// Completes the claim: the effect happened, with this outcome.
    Complete(Outcome),
    /// Releases the claim: the effect provably did not happen.
    Release,
    /// Declares the claim in doubt: the effect may have happened. The reason is for operators.
    Doubt(String),
}

impl Settle {
    /// Checks the limits.
    pub fn check(&self) -> Result<(), LimitError> {
        match self {
            Settle::Renew { lease_ms: 0 } => Err(LimitError::Empty { what: "lease" }),
            Settle::Renew { lease_ms } => {
                LimitError::count("lease", *lease_ms, Limits::STANDARD.lease_ms, "milliseconds")
            }
            Settle::Complete(outcome) => outcome.check(),
            Settle::Release => Ok(()),
            Settle::Doubt(reason) => LimitError::bytes("reason", reason.len(), Limits::STANDARD.reason_bytes),
        }
    }
}

/// The result of settling a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Settled {
    /// The action was applied.
    Applied,
    /// The token is not current, and nothing was changed.
    Stale(CurrentState),
}

/// The current state of a claim, for a caller whose action was not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CurrentState {
    /// There is no claim.
    Absent,
    /// The claim is held, and its lease has not lapsed.
    Running,
    /// It is unknown whether the effect happened.
    InDoubt,
    /// The claim is completed with this outcome.
    Done(Outcome),
}

impl CurrentState {
    /// The name of the state, for logs.
    pub fn name(&self) -> &'static str {
        match self {
            CurrentState::Absent => "absent",
            CurrentState::Running => "running",
            CurrentState::InDoubt => "in-doubt",
            CurrentState::Done(_) => "done",
        }
    }
}

/// How an operator resolves a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Resolution {
    /// The effect in doubt did happen.
    Done(Outcome),
    /// The effect in doubt did not happen.
    Absent,
    /// The same as [`Done`](Self::Done), if the claim is still as it was seen.
    DoneAsSeen(Seen, Outcome),
    /// The same as [`Absent`](Self::Absent), if the claim is still as it was seen.
    AbsentAsSeen(Seen),
    /// The effect did not happen, and the claim is released even if it is still running.
    Release,
    /// The completed effect did not happen after all. The claim is removed if it still has this token, so that no newer
    /// claim is.
    Forget(Token),
    /// The completed claim keeps protecting its effect, but everything that a caller wrote is erased: the text of its key,
    /// its metadata and its outcome. It is erased if it still has this token.
    Erase(Token),
}

impl Resolution {
    /// The outcome that retries get afterwards, if the resolution has one.
    pub fn outcome(&self) -> Option<&Outcome> {
        match self {
            Resolution::Done(outcome) | Resolution::DoneAsSeen(_, outcome) => Some(outcome),
            Resolution::Absent
            | Resolution::AbsentAsSeen(_)
            | Resolution::Release
            | Resolution::Forget(_)
            | Resolution::Erase(_) => None,
        }
    }

    /// The same for a copy of a claim, once the claim itself was resolved.
    pub fn for_copy(&self) -> Self {
        match self {
            Resolution::DoneAsSeen(_, outcome) => Resolution::Done(outcome.clone()),
            Resolution::AbsentAsSeen(_) => Resolution::Absent,
            Resolution::Done(_)
            | Resolution::Absent
            | Resolution::Release
            | Resolution::Forget(_)
            | Resolution::Erase(_) => self.clone(),
        }
    }
}

/// A claim in doubt as somebody saw it, for a decision that takes a while. A newer grant has another token, and a holder
/// that came back meanwhile has renewed its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// The token.
    pub token: Token,
    /// How often the lease had been renewed.
    pub renewals: u32,
}

impl Seen {
    /// The claim as it is now.
    pub fn of(record: &Record) -> Self {
        Self { token: record.token, renewals: record.renewals }
    }

    /// Names this state of the claim to people and programs who must not learn the token.
    pub fn version(&self) -> String {
        let digest = digest_of([&b"version"[..], self.token.as_bytes(), &self.renewals.to_be_bytes()]);
        to_hex(&digest[..8])
    }
}

/// The result of resolving a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Resolved {
    /// The resolution was applied.
    Applied,
    /// The claim is not in a state that allows this resolution.
    Refused(CurrentState),
}

/// The result of adopting a record from a different ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Adopted {
    /// The record is stored.
    Stored,
    /// A different claim has the key, and was not changed.
    Conflict,
}
