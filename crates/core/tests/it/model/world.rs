//! The world of the model: one key, its record, the callers, the network, and what really happened.

use ichido_core::{
    Caller as Credentials, ClaimRequest, Fingerprint, Holder, InDoubtPolicy, Key, Metadata, Nonce, Outcome,
    Record, Token,
};

use super::flaws::Rules;

/// A lease lapses after one tick.
pub(crate) const LEASE_MS: u64 = 1;
/// A takeover is allowed one tick after the lease has lapsed.
pub(crate) const SILENT_MS: u64 = 2;
/// Longer than any run of the model.
pub(crate) const RETENTION_FOREVER_MS: u64 = 1_000;

/// The most grants in one history.
pub(crate) const GRANTS_MAX: usize = 6;

/// The size and the rules of one model run.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) rules: Rules,
    pub(crate) in_doubt: InDoubtPolicy,
    /// The request of each caller.
    pub(crate) callers: Vec<u8>,
    /// The credentials of each caller.
    pub(crate) credentials: Vec<u8>,
    /// How many lives a caller has. After each, it loses its memory and uses a new nonce.
    pub(crate) lives: u8,
    /// How often the clock may advance.
    pub(crate) ticks: u64,
    /// How often the operator may resolve.
    pub(crate) resolutions: u8,
    pub(crate) retention_ms: u64,
    pub(crate) tokens: Tokens,
    pub(crate) key: Key,
}

/// Where the token of a claim comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tokens {
    /// Every delivery has its own token, as if a server drew one for each request that it receives.
    PerDelivery,
    /// Every delivery of one call has the same token, as if a backend retried its own write.
    PerCall,
}

/// One call of one caller. It stands for the nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Call {
    pub(crate) caller: u8,
    pub(crate) life: u8,
}

/// A small number that stands for a token.
pub(crate) type TokenId = u8;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now: u64,
    /// The record of the key in the ledger.
    pub(crate) record: Option<Record>,
    pub(crate) callers: Vec<Caller>,
    /// Every request that was ever sent. Each may arrive at any time, any number of times, or never.
    pub(crate) sent: Vec<Message>,
    pub(crate) resolutions_left: u8,
    /// What really happened; the ledger does not see it.
    pub(crate) past: Vec<PastGrant>,
    /// The first outcome that the ledger reported as recorded.
    pub(crate) recorded: Option<RecordedOutcome>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    pub(crate) life: u8,
    pub(crate) progress: Progress,
}

/// How far a caller has got in its current life.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Progress {
    Idle,
    /// Waits for the result of its claim, and tries again with the same nonce.
    Claiming,
    /// Holds the claim. `repaired` if the first reply was lost and a retry with the same nonce got the grant.
    Holding {
        token_id: TokenId,
        ran: bool,
        repaired: bool,
    },
    /// Ran the effect, sent its completion, and waits for the reply.
    Completing {
        token_id: TokenId,
    },
    Finished(Learned),
}

/// What a caller learned last.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Learned {
    Done(Outcome),
    Mismatch,
    CallerChanged,
    Completed { token_id: TokenId },
    Refused,
    Released,
}

/// A request on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Message {
    Claim(Call),
    Settle(TokenId, Verb),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Verb {
    Renew,
    Complete,
    Release,
    Doubt,
}

/// What really happened under one grant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PastGrant {
    pub(crate) token_id: TokenId,
    pub(crate) call: Call,
    /// Whether the effect ran under this grant.
    pub(crate) ran: bool,
    pub(crate) end: Option<End>,
}

/// Why a grant is no longer current.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    /// Its holder released it.
    Released,
    /// It was in doubt, and a caller with the policy `retry` took over.
    TakenOver,
    /// The operator resolved that the effect did not happen.
    Resolved,
    /// Its retention ended.
    Expired,
    /// There was no reason. The rules must never do this.
    Unexplained,
}

/// An outcome that the ledger reported as recorded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RecordedOutcome {
    pub(crate) outcome: Outcome,
    pub(crate) token_id: TokenId,
    pub(crate) at: u64,
}

impl Setting {
    pub(crate) fn fingerprint(&self, caller: u8) -> Fingerprint {
        Fingerprint::from_bytes([self.callers[usize::from(caller)] + 1; 32])
    }

    pub(crate) fn credentials(&self, caller: u8) -> Option<Credentials> {
        Some(Credentials::from_bytes([self.credentials[usize::from(caller)]; 32]))
    }

    /// The request of a caller, with the token that is used if it is granted.
    pub(crate) fn request(&self, call: Call, token_id: TokenId) -> ClaimRequest {
        ClaimRequest {
            key: self.key.clone(),
            fingerprint: self.fingerprint(call.caller),
            caller: self.credentials(call.caller),
            nonce: nonce(call),
            token: token(token_id),
            lease_ms: LEASE_MS,
            retention_ms: self.retention_ms,
            holder: Holder::Remote,
            metadata: Metadata::default(),
            in_doubt: self.in_doubt,
        }
    }

    /// Whether there is no operator, no takeover and no end of retention, so that a second effect has no excuse.
    pub(crate) fn is_strict(&self) -> bool {
        self.resolutions == 0 && self.in_doubt == InDoubtPolicy::Reject && self.retention_ms > self.ticks
    }
}

impl World {
    /// Sends a message, which may arrive at any time from then on.
    pub(crate) fn send(&mut self, message: Message) {
        if let Err(position) = self.sent.binary_search(&message) {
            self.sent.insert(position, message);
        }
    }

    /// The latest grant with this token.
    pub(crate) fn past_of(&mut self, token_id: TokenId) -> &mut PastGrant {
        self.past.iter_mut().rfind(|past| past.token_id == token_id).unwrap()
    }

    pub(crate) fn end_grant(&mut self, record: &Record, end: End) {
        self.past_of(record.token.as_bytes()[0]).end = Some(end);
    }
}

pub(crate) fn nonce(call: Call) -> Nonce {
    let mut bytes = [0; 16];
    (bytes[0], bytes[1]) = (call.caller, call.life);
    Nonce::from_bytes(bytes)
}

pub(crate) fn token(token_id: TokenId) -> Token {
    let mut bytes = [0; 16];
    bytes[0] = token_id;
    Token::from_bytes(bytes)
}

/// The outcome of the effect under this token: no two runs have the same outcome.
pub(crate) fn outcome(token_id: TokenId) -> Outcome {
    const OUTCOMES: [&str; GRANTS_MAX + 2] = ["0", "1", "2", "3", "4", "5", "6", "7"];
    Outcome::kept(OUTCOMES[usize::from(token_id)])
}

pub(crate) fn operators_outcome() -> Outcome {
    Outcome::kept("operator")
}

/// What is left of an outcome that an operator erased.
pub(crate) fn erased_outcome() -> Outcome {
    Outcome::Tombstone("erased by an operator".to_owned())
}
