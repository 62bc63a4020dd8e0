//! What operators do with claims: one set of verbs, on an open ledger or through the process that holds it.
//!
//! The command line and the admin port both work through [`Local`]; [`Remote`] is the command line's way to an admin
//! port. So a claim is found, shown and refused by the same rules wherever the operator stands.

mod claim_view;
mod find;
mod local;
mod refusal;
mod remote;
pub(crate) mod wire;

use ichido_ledger::{Page, Query, Stats, Swept};

pub use self::find::FoundClaim;
pub use self::local::Local;
pub use self::refusal::Refusal;
pub use self::remote::Remote;
pub use self::wire::{ClaimSelector, ClaimView, PAGE_MAX, ResolvedClaim};

/// A ledger as operators see it.
pub trait Operator {
    /// A page of claims; it may be shorter than asked for, and yet have a cursor.
    async fn list(&self, query: &Query) -> Result<Page, Refusal>;
    /// Everything about a claim but its token.
    async fn show(&self, selector: &ClaimSelector) -> Result<ClaimView, Refusal>;
    /// Says how a claim in doubt ended.
    async fn resolve(
        &self,
        selector: &ClaimSelector,
        resolve_as: &ResolveAs,
    ) -> Result<ResolvedClaim, Refusal>;
    /// Gives a key back; with `force` also while its lease is good.
    async fn release(&self, selector: &ClaimSelector, force: bool) -> Result<ResolvedClaim, Refusal>;
    /// One step of removing what is over.
    async fn sweep_step(&self) -> Result<Swept, Refusal>;
    /// How much is stored.
    async fn stats(&self) -> Result<Stats, Refusal>;
}

/// An operator's word on a claim in doubt.
#[derive(Clone, PartialEq, Eq)]
pub enum ResolveAs {
    /// The effect happened. Repeats are answered with this text, or told that the answer was not kept.
    Done(Option<String>),
    /// The effect did not happen.
    Absent,
}

/// Prints the length of the outcome only: it may hold personal data.
impl std::fmt::Debug for ResolveAs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Done(outcome) => write!(f, "Done({} bytes)", outcome.as_ref().map_or(0, String::len)),
            Self::Absent => f.write_str("Absent"),
        }
    }
}
