//! The claim: what is asked, and what is answered.

use crate::{Caller, Doubt, Fingerprint, Holder, Key, LimitError, Limits, Metadata, Nonce, Outcome, Token};

/// A call for a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimRequest {
    /// The operation.
    pub key: Key,
    /// What is asked, to tell a repeat from a reuse of the key.
    pub fingerprint: Fingerprint,
    /// Who asks; `None` where callers are not compared.
    pub caller: Option<Caller>,
    /// Names this call.
    pub nonce: Nonce,
    /// Becomes the token if the claim is granted, and is forgotten if it is not.
    pub token: Token,
    /// How long the grant holds without renewal.
    pub lease_ms: u64,
    /// How long the outcome is kept, from completion.
    pub retention_ms: u64,
    /// Who will renew.
    pub holder: Holder,
    /// Kept beside the claim.
    pub metadata: Metadata,
    /// What to do if the claim is in doubt.
    pub in_doubt: InDoubtPolicy,
}

impl ClaimRequest {
    /// Refuses what is outside the limits.
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

/// What to do with a claim in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum InDoubtPolicy {
    /// Say so. Only its holder or an operator can end the doubt.
    #[default]
    Reject,
    /// Take over, but not before so long has passed since the last renewal: the caller accepts a second run.
    Retry {
        /// The shortest silence of the old holder.
        silent_ms: u64,
    },
}

/// What a caller learns when it asks for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Yours: run the effect, then complete with this token.
    Granted(Grant),
    /// Someone else is running it now.
    Held {
        /// What is left of the holder's lease.
        retry_after_ms: u64,
    },
    /// The holder vanished; the effect may have happened.
    InDoubt(Doubt),
    /// Already done; replay this.
    Done(Outcome),
    /// The key was used for another request.
    Mismatch,
    /// The key was used by another caller, who alone may learn what became of it.
    CallerChanged,
}

/// Leave to run the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// Proof of the grant.
    pub token: Token,
    /// 1 for the first run; more after a takeover.
    pub attempt: u32,
    /// How long it holds without renewal.
    pub lease_ms: u64,
    /// What is left of that now. Less than `lease_ms` if this call was asked again after a lost reply: renew first.
    pub left_ms: u64,
}
