//! What was asked and answered.

use std::collections::BTreeMap;

use ichido_core::mark::{self, Mark};
use ichido_core::{Claim, ClaimRequest, Record, Resolution, Resolved, Settle, Settled, Token};

/// One call of one client on one key.
#[derive(Clone, Debug)]
pub struct Operation<C, A> {
    /// Who asked.
    pub client: usize,
    /// What was asked.
    pub call: C,
    /// When, in microseconds of the recorder's clock.
    pub asked_us: u64,
    /// How it ended.
    pub end: End<A>,
}

/// How an operation ended.
#[derive(Clone, Debug)]
pub enum End<A> {
    /// With this answer, at this moment.
    Answered {
        /// The moment, in microseconds of the recorder's clock.
        at_us: u64,
        /// The answer.
        answer: A,
    },
    /// Nobody knows: it may happen at any moment after it was asked, or never.
    Open,
}

/// A call on a claim.
#[derive(Clone, Debug)]
pub enum ClaimCall {
    /// Someone asks for the key.
    Claim(Box<ClaimRequest>),
    /// A holder settles.
    Settle(Token, Settle),
    /// An operator resolves.
    Resolve(Resolution),
    /// Someone looks.
    Look,
}

/// The answer to a call on a claim.
#[derive(Clone, Debug)]
pub enum ClaimAnswer {
    /// To a claim.
    Claim(Claim),
    /// To a holder's word.
    Settle(Settled),
    /// To an operator's word.
    Resolve(Resolved),
    /// What was seen.
    Look(Option<Box<Record>>),
}

/// An operation on a claim.
pub type ClaimOperation = Operation<ClaimCall, ClaimAnswer>;
/// An operation on a mark.
pub type MarkOperation = Operation<mark::Request, Mark>;

/// Everything that was asked and answered, key by key.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Operations on claims, by key.
    pub claims: BTreeMap<String, Vec<ClaimOperation>>,
    /// Operations on marks, by key.
    pub marks: BTreeMap<String, Vec<MarkOperation>>,
}

/// The beginning of an identifier.
pub(super) fn short(id: &[u8; 16]) -> String {
    hex::encode(&id[..3])
}
