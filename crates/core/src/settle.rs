//! What a holder does with its claim, and what an operator may say of it.

use crate::{LimitError, Limits, Outcome};

/// A holder's word on its claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Settle {
    /// Still at work.
    Renew {
        /// The lease from now on.
        lease_ms: u64,
    },
    /// The effect happened, with this outcome.
    Complete(Outcome),
    /// The effect provably did not happen.
    Release,
    /// The effect may have happened; the reason is for people.
    Doubt(String),
}

impl Settle {
    /// Refuses what is outside the limits.
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

/// Whether the word was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Settled {
    /// It holds.
    Applied,
    /// The token is not current: nothing was changed, and this is what holds now.
    Stale(Now),
}

/// What holds now, told to a caller whose token is stale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Now {
    /// No claim.
    Absent,
    /// Someone is running it.
    Running,
    /// Nobody knows.
    InDoubt,
    /// It is done, with this outcome.
    Done(Outcome),
}

impl Now {
    /// The name of the state, for logs.
    pub fn name(&self) -> &'static str {
        match self {
            Now::Absent => "absent",
            Now::Running => "running",
            Now::InDoubt => "in-doubt",
            Now::Done(_) => "done",
        }
    }
}

/// An operator's word on a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Resolution {
    /// The effect in doubt did happen.
    Done(Outcome),
    /// The effect in doubt did not happen.
    Absent,
    /// Give up a claim that is running or in doubt: the operator knows that its effect did not happen.
    Release,
}

/// Whether the operator's word was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Resolved {
    /// It holds.
    Applied,
    /// The claim is not in a state that this word can end.
    Refused(Now),
}

/// What became of a record that was brought from another ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Adopted {
    /// It is here now.
    Stored,
    /// Another claim has the key; it was left as it is.
    Conflict,
}
