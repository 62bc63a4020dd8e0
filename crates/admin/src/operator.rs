//! What operators do with claims and events, on a ledger of this process or through the process that holds it.
//!
//! The command line and the admin port both use [`Local`], and [`Audited`] for what must be recorded. The command line reaches another process's admin port with
//! [`Remote`]. So claims are found, shown and refused by the same rules everywhere.

mod ask;
mod audited;
mod claim_view;
pub(crate) mod control;
pub(crate) mod doubt_wire;
mod find;
mod local;
pub(crate) mod questions;
mod refusal;
mod remote;
mod triage;
pub(crate) mod wire;

use std::path::Path;

use ichido_core::Outcome;
use ichido_ledger::{Backup, MarkPage, MarkQuery, MarkSummary, Page, Query, Stats, Swept, Verified};

pub(crate) use self::ask::describe;
pub use self::audited::Audited;
pub use self::doubt_wire::{AskedClaim, Confirmed, SeenClaim, SeenResult};
pub use self::find::FoundClaim;
pub use self::local::Local;
pub use self::refusal::Refusal;
pub use self::remote::{ClientSettings, Remote};
pub use self::triage::{GROUPS_MAX, Group, SCANNED_MAX, Triage, TriageFilter};
pub use self::wire::{
    ClaimSelector, ClaimView, ErasedEvent, EventView, PAGE_MAX, ResolveKind, ResolvedClaim,
};

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
    /// Asks the service behind a claim whether its effect happened, and resolves the claim if that was confirmed.
    async fn ask(
        &self,
        selector: &ClaimSelector,
        confirmed: Option<&Confirmed>,
    ) -> Result<AskedClaim, Refusal>;
    /// Shows claims in doubt, oldest first, and how many there are.
    async fn triage(&self, filter: &TriageFilter, limit: usize) -> Result<Triage, Refusal>;
    /// Resolves several claims in doubt, at most [`PAGE_MAX`], each if it is still the one that was seen.
    async fn resolve_all(
        &self,
        claims: &[SeenClaim],
        resolve_as: &ResolveAs,
        reason: Option<&str>,
    ) -> Result<Vec<SeenResult>, Refusal>;
    /// Releases a key. With `force`, even while its lease is valid.
    async fn release(&self, selector: &ClaimSelector, force: bool) -> Result<ResolvedClaim, Refusal>;
    /// Forgets a completed claim whose effect did not happen.
    async fn forget(&self, selector: &ClaimSelector, reason: &str) -> Result<ResolvedClaim, Refusal>;
    /// Erases what callers wrote in a completed claim. Retries learn that its outcome was not kept.
    async fn erase(&self, selector: &ClaimSelector, reason: &str) -> Result<ResolvedClaim, Refusal>;
    /// Erases what callers wrote in the mark of an event. It stays marked.
    async fn erase_event(&self, key: &str, reason: &str) -> Result<ErasedEvent, Refusal>;
    /// Lists a page of events that are marked. It may be shorter than requested and still have a cursor.
    async fn list_events(&self, query: &MarkQuery) -> Result<MarkPage, Refusal>;
    /// Shows an event that is marked, and how often it was repeated.
    async fn show_event(&self, key: &str) -> Result<EventView, Refusal>;
    /// Forgets an event, so that it is new again. Returns it as it was.
    async fn forget_event(&self, key: &str, reason: Option<&str>) -> Result<MarkSummary, Refusal>;
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

/// The instance that first saw an event, if the caller named it in the metadata, as bots that share a table do.
pub fn instance(event: &MarkSummary) -> Option<&str> {
    event.metadata.iter().find(|(name, _)| *name == "lambda_instance_id").map(|(_, value)| value)
}

/// The longest reason in the audit log, in characters.
pub const REASON_CHARS_MAX: usize = 1024;

/// Whether a text can be the reason of an action.
pub fn is_reason(text: &str) -> bool {
    (1..=REASON_CHARS_MAX).contains(&text.chars().count())
}

/// How a claim in doubt is resolved.
#[derive(Clone, PartialEq, Eq)]
pub enum ResolveAs {
    /// The effect happened. Retries get this outcome, or learn that the response was not kept.
    Done(Option<String>),
    /// The effect did not happen.
    Absent,
}

impl ResolveAs {
    /// Without the outcome.
    pub fn kind(&self) -> ResolveKind {
        match self {
            ResolveAs::Done(_) => ResolveKind::Done,
            ResolveAs::Absent => ResolveKind::Absent,
        }
    }
}

impl From<ResolveKind> for ResolveAs {
    fn from(kind: ResolveKind) -> Self {
        match kind {
            ResolveKind::Done => ResolveAs::Done(None),
            ResolveKind::Absent => ResolveAs::Absent,
        }
    }
}

/// How a claim in doubt ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The effect happened, with this outcome.
    Done(Outcome),
    /// The effect did not happen.
    Absent,
}

impl From<&ResolveAs> for Ending {
    fn from(resolve_as: &ResolveAs) -> Self {
        match resolve_as {
            ResolveAs::Done(Some(outcome)) => Self::Done(Outcome::kept(outcome.as_bytes().to_vec())),
            ResolveAs::Done(None) => Self::Done(Outcome::Tombstone("resolved by an operator".to_owned())),
            ResolveAs::Absent => Self::Absent,
        }
    }
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
