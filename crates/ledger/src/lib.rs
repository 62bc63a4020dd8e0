//! Where claims live.
//!
//! [`Ledger`] is the handle that programs use; [`Backend`] is the seam that stores implement.
pub mod backend;
mod capabilities;
mod error;
mod listing;
pub mod memory;

pub use backend::{Backend, Maintain};
pub use capabilities::{Capabilities, Expiry, Fencing, Listing, Reach, StoreClock, Survives};
pub use error::{BoxError, Effect, Error, Kind, Result};
pub use listing::{Page, Query, StateName, Stats, Summary, Swept};

/// Doubt that ends is a warning, not silence.
pub(crate) fn warn_doubt_ended(record: &ichido_core::Record) {
    tracing::warn!(
        index = %record.key.index(),
        attempt = record.attempt,
        claimed_at = record.claimed_at.0,
        "a claim in doubt was never resolved; its 30 days are over and the key is free again"
    );
}
