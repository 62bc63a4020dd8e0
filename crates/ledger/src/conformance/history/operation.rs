//! Calls and their results.

use std::collections::BTreeMap;

use ichido_core::mark::{self, Mark};
use ichido_core::{Claim, ClaimRequest, Record, Resolution, Resolved, Settle, Settled, Token, to_hex};

/// One call by one client on one key.
#[derive(Clone, Debug)]
pub struct Operation<C, A> {
    /// Which client called.
    pub client: usize,
    /// The call.
    pub call: C,
    /// When it was called, in microseconds of the recorder's clock.
    pub asked_us: u64,
    /// How it ended.
    pub end: End<A>,
}

/// How an operation ended.
#[derive(Clone, Debug)]
pub enum End<A> {
    /// With this result, at this time.
    Answered {
        /// The time, in microseconds of the recorder's clock.
        at_us: u64,
        /// The result.
        answer: A,
    },
    /// Unknown: it may take effect at any moment after the call, or never.
    Open,
}

/// A call on a claim.
#[derive(Clone, Debug)]
pub enum ClaimCall {
    /// A client claims the key.
    Claim(Box<ClaimRequest>),
    /// A holder settles the claim.
    Settle(Token, Settle),
    /// An operator resolves the claim.
    Resolve(Resolution),
    /// A client reads the record.
    Get,
}

/// The result of a call on a claim.
#[derive(Clone, Debug)]
pub enum ClaimAnswer {
    /// Of a claim.
    Claim(Claim),
    /// Of a settlement.
    Settle(Settled),
    /// Of a resolution.
    Resolve(Resolved),
    /// The record that was read.
    Get(Option<Box<Record>>),
}

/// An operation on a claim.
pub type ClaimOperation = Operation<ClaimCall, ClaimAnswer>;
/// An operation on a mark.
pub type MarkOperation = Operation<mark::Request, Mark>;

/// All calls and results, by key.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Operations on claims, by key.
    pub claims: BTreeMap<String, Vec<ClaimOperation>>,
    /// Operations on marks, by key.
    pub marks: BTreeMap<String, Vec<MarkOperation>>,
}

/// The beginning of an identifier.
pub(super) fn short(id: &[u8; 16]) -> String {
    to_hex(&id[..3])
}
