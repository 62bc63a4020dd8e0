//! Claim requests and their results.

use crate::{Caller, Doubt, Fingerprint, Holder, Key, LimitError, Limits, Metadata, Nonce, Outcome, Token};

/// A request to claim a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimRequest {
    /// The key.
    pub key: Key,
    /// Tells a retry from a different request with the same key.
    pub fingerprint: Fingerprint,
    /// The caller; `None` if callers are not compared.
    pub caller: Option<Caller>,
    /// Identifies this call.
    pub nonce: Nonce,
    /// Becomes the token of the claim if it is granted.
    pub token: Token,
    /// How long the grant lasts without renewal.
    pub lease_ms: u64,
    /// How long the outcome is kept, from completion.
    pub retention_ms: u64,
    /// Who renews the lease.
    pub holder: Holder,
    /// Stored with the claim.
    pub metadata: Metadata,
    /// What to do if the claim is in doubt.
    pub in_doubt: InDoubtPolicy,
}

impl ClaimRequest {
    /// Checks the limits.
    pub fn check(&self) -> Result<(), LimitError> {
        if self.lease_ms == 0 {
            return Err(LimitError::Empty { what: "lease" });
        }
        if self.retention_ms == 0 {
            return Err(LimitError::Empty { what: "retention" });
        }
        LimitError::count("lease", self.lease_ms, Limits::STANDARD.lease_ms, "milliseconds")?;
        LimitError::count("retention", self.retention_ms, Limits::STANDARD.retention_ms, "milliseconds")
    }
}

/// What to do if the claim is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum InDoubtPolicy {
    /// Report it. Only the holder or an operator can end the doubt.
    #[default]
    Reject,
    /// Take the claim over, but not before this time has passed since the last renewal. The caller accepts that the effect
    /// may run a second time.
    Retry {
        /// The shortest time since the last renewal.
        silent_ms: u64,
    },
}

/// The result of a claim request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The claim is granted: run the effect, then complete with this token.
    Granted(Grant),
    /// A different call holds the claim.
    Held {
        /// The remaining lease of the holder.
        retry_after_ms: u64,
    },
    /// The claim is in doubt: the effect may have happened.
    InDoubt(Doubt),
    /// The claim is completed: replay this outcome.
    Done(Outcome),
    /// The key was used for a different request.
    Mismatch,
    /// The key was used by a different caller, and only that caller may learn the outcome.
    CallerChanged,
}

/// Permission to run the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// Proof of the grant.
    pub token: Token,
    /// 1 for the first run, more after takeovers.
    pub attempt: u32,
    /// How long it lasts without renewal.
    pub lease_ms: u64,
    /// How much of that remains. Less than `lease_ms` if the call was retried after a lost reply: renew first.
    pub left_ms: u64,
}
