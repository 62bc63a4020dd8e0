//! The world of the model: one key, its record, the callers, what is on the wire, and what really happened.

use ichido_core::{
    Caller as Credentials, ClaimRequest, Fingerprint, Holder, InDoubtPolicy, Key, Metadata, Nonce, Outcome,
    Record, Token,
};

use crate::flaws::Rules;

/// A tick is long enough for a lease to lapse.
pub(crate) const LEASE_MS: u64 = 1;
/// A takeover waits one tick longer than the lease.
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
    /// One entry per caller: which of the requests it makes under the key.
    pub(crate) callers: Vec<u8>,
    /// The credentials of each caller.
    pub(crate) credentials: Vec<u8>,
    /// How many lives a caller has: after each it forgets everything and asks under a new nonce.
    pub(crate) lives: u8,
    /// How often the clock may advance.
    pub(crate) ticks: u64,
    /// How many words the operator may say.
    pub(crate) words: u8,
    pub(crate) retention_ms: u64,
    pub(crate) tokens: Tokens,
    pub(crate) key: Key,
}

/// Where the token of a claim comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tokens {
    /// Every delivery brings a token of its own, as when a server draws one for each request it receives.
    PerDelivery,
    /// Every delivery of one call brings the same token, as when a backend repeats its own write.
    PerCall,
}

/// One call of one caller; it is the nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Call {
    pub(crate) caller: u8,
    pub(crate) life: u8,
}

/// A small number that stands for a token.
pub(crate) type Mint = u8;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now: u64,
    /// What the ledger remembers of the key.
    pub(crate) record: Option<Record>,
    pub(crate) callers: Vec<Caller>,
    /// Every request that was ever sent. Any of them may arrive at any time, any number of times, or never.
    pub(crate) sent: Vec<Message>,
    pub(crate) words_left: u8,
    /// What really happened; the ledger does not see it.
    pub(crate) past: Vec<Past>,
    /// The first outcome that the ledger said was recorded.
    pub(crate) kept: Option<Kept>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    pub(crate) life: u8,
    pub(crate) at: Place,
}

/// How far a caller has come in its present life.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Idle,
    /// Waits for an answer to its claim, and asks again under the same nonce.
    Asking,
    /// Was granted; `repaired` if the first reply was lost and the nonce brought it again.
    Holding {
        mint: Mint,
        ran: bool,
        repaired: bool,
    },
    /// Ran the effect, said so, and waits for the ledger to agree.
    Completing {
        mint: Mint,
    },
    Finished(Told),
}

/// The last thing that a caller learned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Told {
    Done(Outcome),
    Mismatch,
    CallerChanged,
    Completed { mint: Mint },
    Refused,
    Released,
}

/// A request on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Message {
    Claim(Call),
    Word(Mint, Word),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Word {
    Renew,
    Complete,
    Release,
    Doubt,
}

/// One grant as it really went.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Past {
    pub(crate) mint: Mint,
    pub(crate) call: Call,
    /// The effect was run under this grant.
    pub(crate) ran: bool,
    pub(crate) end: Option<End>,
}

/// How a grant ceased to be the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    /// Its holder gave it back.
    Released,
    /// It was in doubt, and a caller with the policy `retry` took over.
    TakenOver,
    /// The operator said that the effect did not happen.
    Resolved,
    /// Its retention was over.
    Expired,
    /// Nobody said anything. The rules must never do this.
    Silently,
}

/// An outcome that the ledger said it recorded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kept {
    pub(crate) outcome: Outcome,
    pub(crate) mint: Mint,
    pub(crate) at: u64,
}

impl Setting {
    pub(crate) fn fingerprint(&self, caller: u8) -> Fingerprint {
        Fingerprint::from_bytes([self.callers[usize::from(caller)] + 1; 32])
    }

    pub(crate) fn credentials(&self, caller: u8) -> Option<Credentials> {
        Some(Credentials::from_bytes([self.credentials[usize::from(caller)]; 32]))
    }

    /// What a caller asks for, with a token that is used if it is granted.
    pub(crate) fn request(&self, call: Call, mint: Mint) -> ClaimRequest {
        ClaimRequest {
            key: self.key.clone(),
            fingerprint: self.fingerprint(call.caller),
            caller: self.credentials(call.caller),
            nonce: nonce(call),
            token: token(mint),
            lease_ms: LEASE_MS,
            retention_ms: self.retention_ms,
            holder: Holder::Remote,
            metadata: Metadata::default(),
            in_doubt: self.in_doubt,
        }
    }

    /// No operator, no takeover, no end of retention: nothing can excuse a second effect.
    pub(crate) fn is_strict(&self) -> bool {
        self.words == 0 && self.in_doubt == InDoubtPolicy::Reject && self.retention_ms > self.ticks
    }
}

impl World {
    /// Something is sent once; from then on it may arrive at any time.
    pub(crate) fn send(&mut self, message: Message) {
        if let Err(place) = self.sent.binary_search(&message) {
            self.sent.insert(place, message);
        }
    }

    /// The latest grant of a token.
    pub(crate) fn past_of(&mut self, mint: Mint) -> &mut Past {
        self.past.iter_mut().rfind(|past| past.mint == mint).unwrap()
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

pub(crate) fn token(mint: Mint) -> Token {
    let mut bytes = [0; 16];
    bytes[0] = mint;
    Token::from_bytes(bytes)
}

/// What the effect answers when it is run under this token: no two runs answer alike.
pub(crate) fn outcome(mint: Mint) -> Outcome {
    const ANSWERS: [&str; GRANTS_MAX + 2] = ["0", "1", "2", "3", "4", "5", "6", "7"];
    Outcome::kept(ANSWERS[usize::from(mint)])
}

pub(crate) fn operators_outcome() -> Outcome {
    Outcome::kept("operator")
}
