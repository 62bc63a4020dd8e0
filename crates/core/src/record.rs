//! Records: what a ledger stores about a claim.

use serde::{Deserialize, Serialize};

use crate::{Caller, Fingerprint, Key, Metadata, Nonce, Outcome, Timestamp, Token};

/// How long a claim stays in doubt before it expires with a warning.
pub(crate) const DOUBT_RETENTION_MS: u64 = 30 * 86_400_000;

/// Why the outcome of an erased claim was not kept.
const ERASED: &str = "erased by an operator";

/// A claim in the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// The key.
    pub key: Key,
    /// The fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// The caller; `None` if callers are not compared.
    pub caller: Option<Caller>,
    /// The call that was granted.
    pub nonce: Nonce,
    /// The current token.
    pub token: Token,
    /// How many times the effect has been granted, including this time.
    pub attempt: u32,
    /// Who renews the lease.
    pub holder: Holder,
    /// When the claim was granted.
    pub claimed_at: Timestamp,
    /// When the lease was last renewed, or granted.
    pub renewed_at: Timestamp,
    /// How often the lease was renewed. Observers that cannot use the clock of the store see from it that the holder is
    /// alive.
    pub renewals: u32,
    /// How long the lease lasts, from `renewed_at`.
    pub lease_ms: u64,
    /// How long the outcome is kept, from completion.
    pub retention_ms: u64,
    /// The metadata of the caller.
    pub metadata: Metadata,
    /// The stored state.
    pub state: State,
}

/// The stored state of a claim. A lapsed lease is not stored: see [`Phase`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Granted and not yet settled.
    Running,
    /// Declared in doubt.
    InDoubt(Doubt),
    /// Completed.
    Done(Done),
}

/// A completed claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Done {
    /// The outcome to replay.
    pub outcome: Outcome,
    /// When it was completed.
    pub completed_at: Timestamp,
}

/// Since when and why it is unknown whether the effect happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Doubt {
    /// When the doubt began.
    pub since: Timestamp,
    /// The reason.
    pub reason: DoubtReason,
}

/// Why a claim is in doubt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DoubtReason {
    /// The lease was not renewed in time.
    LeaseLapsed,
    /// The process that held the claim is no longer running.
    HolderGone,
    /// The holder declared it.
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
    /// The process that has the ledger open. If it crashes, its claims become in doubt.
    Process,
    /// A client of the claim API, which may outlive the process that granted the claim.
    Remote,
}

/// What a record means at a point in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase<'a> {
    /// The lease has not lapsed.
    Running {
        /// The remaining lease.
        left_ms: u64,
    },
    /// It is unknown whether the effect happened.
    InDoubt(Doubt),
    /// Completed, and within its retention.
    Done(&'a Done),
    /// Expired: the same as absent.
    Expired {
        /// Whether the claim expired in doubt, which deserves a warning.
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
            State::Done(_) => Phase::Expired { in_doubt: false },
        }
    }

    /// A completed claim without what callers wrote: the text of its key, its metadata and its outcome. What decides about a
    /// retry stays: the index, the digests and the times.
    pub(crate) fn erased(&self) -> Self {
        let state = match &self.state {
            State::Done(Done { completed_at, .. }) => {
                let outcome = Outcome::Tombstone(ERASED.to_owned());
                State::Done(Done { outcome, completed_at: *completed_at })
            }
            open @ (State::Running | State::InDoubt(_)) => open.clone(),
        };
        Self { key: self.key.erased(), metadata: Metadata::default(), state, ..self.clone() }
    }

    /// When the lease lapses unless it is renewed.
    pub fn lease_until(&self) -> Timestamp {
        self.renewed_at + self.lease_ms
    }

    /// When the record expires: at the end of its retention or of its doubt.
    pub fn expires_at(&self) -> Timestamp {
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
            Phase::Expired { in_doubt: true }
        }
    }
}
