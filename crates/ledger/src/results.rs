//! What the handle returns for a claim or a mark.

use ichido_core::Claim;
use ichido_core::mark::Mark;

/// The answer to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// What was answered.
    pub claim: Claim,
    /// The primary ledger was out, and the local one answered.
    pub degraded: bool,
}

/// The answer to a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    /// What was answered.
    pub mark: Mark,
    /// The primary ledger was out, and the local one answered.
    pub degraded: bool,
}
