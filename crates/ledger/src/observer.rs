//! What the handle decides, for whoever keeps a history of it.

use std::fmt;
use std::time::Duration;

use ichido_core::{Key, MarkKey, Metadata, Timestamp};

/// Gets every decision of a ledger.
pub trait Observer: Send + Sync + fmt::Debug + 'static {
    /// Notes a decision. It is called before the caller gets its answer, so it must be quick and cannot fail.
    fn decided(&self, decision: &Decision<'_>);
}

/// A decision about a key.
#[derive(Clone, Copy, Debug)]
pub struct Decision<'a> {
    /// When it was made.
    pub at: Timestamp,
    /// What it is about.
    pub subject: Subject<'a>,
    /// The metadata of the caller, if the call has any.
    pub metadata: Option<&'a Metadata>,
    /// What was decided, as one word.
    pub result: &'static str,
    /// A reason, or which operator did it, if there is one.
    pub detail: Option<&'a str>,
    /// How long the ledger took.
    pub latency: Duration,
    /// Whether the fallback decided.
    pub is_degraded: bool,
}

/// The key of a decision.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// A claim.
    Claim(&'a Key),
    /// An event.
    Mark(&'a MarkKey),
}
