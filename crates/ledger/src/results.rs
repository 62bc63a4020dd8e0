//! Results of the handle's claims and marks.

use ichido_core::Claim;
use ichido_core::mark::Mark;

/// The result of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The ledger's answer.
    pub claim: Claim,
    /// The primary was unreachable, and the fallback answered.
    pub degraded: bool,
}

/// The result of a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    /// The ledger's answer.
    pub mark: Mark,
    /// The primary was unreachable, and the fallback answered.
    pub degraded: bool,
}
