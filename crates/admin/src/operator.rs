//! What operators do with claims, on a ledger of this process or through the process that holds it.
//!
//! The command line and the admin port both use [`Local`], and [`Audited`] for what must be recorded. The command line reaches another process's admin port with
//! [`Remote`]. So claims are found, shown and refused by the same rules everywhere.

mod audited;
mod claim_view;
mod find;
mod local;
mod refusal;
mod remote;
pub(crate) mod wire;

use std::path::Path;

use ichido_ledger::{Backup, Page, Query, Stats, Swept, Verified};

pub use self::audited::Audited;
pub use self::find::FoundClaim;
pub use self::local::Local;
pub use self::refusal::Refusal;
pub use self::remote::{ClientSettings, Remote};
pub use self::wire::{ClaimSelector, ClaimView, PAGE_MAX, ResolvedClaim};

/// A ledger as operators see it.
#[expect(async_fn_in_trait, reason = "only this workspace implements and calls it")]
pub trait Operator {
    /// Lists a page of claims. It may be shorter than requested and still have a cursor.
    async fn list(&self, query: &Query) -> Result<Page, Refusal>;
    /// Shows everything about a claim except its token.
    async fn show(&self, selector: &ClaimSelector) -> Result<ClaimView, Refusal>;
    /// Resolves a claim in doubt.
    async fn resolve(
        &self,
        selector: &ClaimSelector,
        resolve_as: &ResolveAs,
    ) -> Result<ResolvedClaim, Refusal>;
    /// Releases a key. With `force`, even while its lease is valid.
    async fn release(&self, selector: &ClaimSelector, force: bool) -> Result<ResolvedClaim, Refusal>;
    /// Removes expired records, one step at a time.
    async fn sweep_step(&self) -> Result<Swept, Refusal>;
    /// Counts what is stored.
    async fn stats(&self) -> Result<Stats, Refusal>;
    /// Reads and checks everything that is stored.
    async fn verify(&self) -> Result<Verified, Refusal>;
    /// Copies the store to a new directory. The path is absolute, and on the machine of the process that has the store open.
    async fn backup(&self, to: &Path) -> Result<Backup, Refusal>;
    /// Reclaims all space that expired and replaced records take.
    async fn compact(&self) -> Result<Swept, Refusal>;
}

/// How a claim in doubt is resolved.
#[derive(Clone, PartialEq, Eq)]
pub enum ResolveAs {
    /// The effect happened. Retries get this outcome, or learn that the response was not kept.
    Done(Option<String>),
    /// The effect did not happen.
    Absent,
}

/// Prints only the length of the outcome: it may contain personal data.
impl std::fmt::Debug for ResolveAs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Done(outcome) => write!(f, "Done({} bytes)", outcome.as_ref().map_or(0, String::len)),
            Self::Absent => f.write_str("Absent"),
        }
    }
}
