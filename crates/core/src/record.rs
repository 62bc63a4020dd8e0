//! Records: what a ledger remembers of a claim.

use serde::{Deserialize, Serialize};

use crate::{Caller, Fingerprint, Key, Metadata, Nonce, Outcome, Timestamp, Token};

/// How long doubt is kept before it ends with a warning.
pub(crate) const DOUBT_RETENTION_MS: u64 = 30 * 86_400_000;

/// Everything that is remembered of one claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Whose and which.
    pub key: Key,
    /// What was asked.
    pub fingerprint: Fingerprint,
    /// Who asked; `None` where callers were not compared.
    pub caller: Option<Caller>,
    /// The call that was granted.
    pub nonce: Nonce,
    /// The current token.
    pub token: Token,
    /// How many times the effect has been granted, this one included.
    pub attempt: u32,
    /// Who renews the lease.
    pub holder: Holder,
    /// When it was granted.
    pub claimed_at: Timestamp,
    /// When the lease was last renewed, or granted.
    pub renewed_at: Timestamp,
    /// How often it was renewed: a watcher without a clock of the store's sees life by it.
    pub renewals: u32,
    /// How long the lease runs from `renewed_at`.
    pub lease_ms: u64,
    /// How long the outcome is kept from completion.
    pub retention_ms: u64,
    /// The caller's words.
    pub metadata: Metadata,
    /// What was last said of it.
    pub state: State,
}

/// What was last said of a claim. A lapsed lease is not said by anyone: see [`Phase`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Granted and not yet settled.
    Running,
    /// Said to be in doubt.
    InDoubt(Doubt),
    /// Completed.
    Done(Done),
}

/// A completed claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Done {
    /// What to replay.
    pub outcome: Outcome,
    /// When it was completed.
    pub completed_at: Timestamp,
}

/// Since when, and why, nobody knows whether the effect happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Doubt {
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub reason: DoubtReason,
}

/// Why a claim is in doubt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DoubtReason {
    /// The lease was not renewed in time.
    LeaseLapsed,
    /// The process that held the claim is gone.
    HolderGone,
    /// The holder said so.
    Declared(String),
}

impl std::fmt::Display for DoubtReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DoubtReason::LeaseLapsed => f.write_str("the lease lapsed"),
            DoubtReason::HolderGone => f.write_str("the holding process is gone"),
            DoubtReason::Declared(reason) => f.write_str(reason),
        }
    }
}

/// Who renews a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Holder {
    /// The process that has the ledger open: when it dies, its claims are in doubt.
    Process,
    /// A caller of the claim API: it may outlive the process that granted.
    Remote,
}

/// What a record means at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase<'a> {
    /// The lease is good for so many milliseconds more.
    Running {
        /// What is left of the lease.
        left_ms: u64,
    },
    /// Nobody knows whether the effect happened.
    InDoubt(Doubt),
    /// Completed, and its retention is not over.
    Done(&'a Done),
    /// Its retention is over: as good as absent.
    Over {
        /// It ended in doubt: this is worth a warning.
        in_doubt: bool,
    },
}

impl Record {
    /// What the record means at `now`.
    pub fn phase(&self, now: Timestamp) -> Phase<'_> {
        match &self.state {
            State::Running => {
                let lease_until = self.lease_until();
                if now < lease_until {
                    return Phase::Running { left_ms: lease_until.ms_since(now) };
                }
                Self::doubt_phase(Doubt { since: lease_until, reason: DoubtReason::LeaseLapsed }, now)
            }
            State::InDoubt(doubt) => Self::doubt_phase(doubt.clone(), now),
            State::Done(done) if now < done.completed_at + self.retention_ms => Phase::Done(done),
            State::Done(_) => Phase::Over { in_doubt: false },
        }
    }

    /// When the lease ends unless it is renewed.
    pub fn lease_until(&self) -> Timestamp {
        self.renewed_at + self.lease_ms
    }

    /// When the record may be removed: the end of retention, or of doubt.
    pub fn over_at(&self) -> Timestamp {
        match &self.state {
            State::Running => self.lease_until() + DOUBT_RETENTION_MS,
            State::InDoubt(doubt) => doubt.since + DOUBT_RETENTION_MS,
            State::Done(done) => done.completed_at + self.retention_ms,
        }
    }

    fn doubt_phase(doubt: Doubt, now: Timestamp) -> Phase<'static> {
        if now < doubt.since + DOUBT_RETENTION_MS {
            Phase::InDoubt(doubt)
        } else {
            Phase::Over { in_doubt: true }
        }
    }
}
