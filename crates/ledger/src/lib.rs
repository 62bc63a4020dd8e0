//! Where claims live.
//!
//! [`Ledger`] is the handle that programs use; [`Backend`] is the seam that stores implement. [`open()`] turns a URL into
//! a ledger. The handle holds what must be the same for all: retry, deadline, metrics, renewal, waiting, fallback.
//!
//! ```
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use ichido_core::Key;
//! use ichido_ledger::{Failure, open, Settings};
//!
//! let ledger = open("memory:", Settings::default()).await?;
//! let order = ledger.once(Key::unscoped("order-17")?, || async { Ok::<_, Failure<std::io::Error>>("placed".to_owned()) }).await?;
//! assert_eq!(order.into_inner(), "placed");
//! # Ok(()) }
//! ```

pub mod backend;
mod batch;
mod capabilities;
#[cfg(feature = "conformance")]
pub mod conformance;
mod deferred;
#[cfg(feature = "dynamodb")]
pub mod dynamodb;
mod error;
mod fallback;
#[cfg(feature = "file")]
pub mod file;
mod guard;
mod handle;
mod index_map;
mod listing;
pub mod memory;
mod meters;
mod once;
mod open;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
mod renewal;
mod settings;
mod waiters;
mod within;

pub use backend::{Backend, Local, Maintain};
pub use capabilities::{Capabilities, Expiry, Fencing, Listing, Reach, StoreClock, Survives};
pub use error::{BoxError, Effect, Error, Kind, Result};
pub use fallback::{Conflict, ConflictKind, FallbackSettings, FallbackStatus};
pub use handle::{Claimed, Ledger, Marked};
pub use listing::{Page, Query, StateName, Stats, Summary, Swept};
pub use once::{Failure, Once, OnceError};
pub use open::{OpenOptions, open, open_backend, open_local, open_or_wait};
pub use renewal::Renewal;
pub use settings::Settings;
pub use within::{Late, Within, within};

/// Doubt that ends is a warning, not silence.
pub(crate) fn warn_doubt_ended(record: &ichido_core::Record) {
    tracing::warn!(
        index = %record.key.index(),
        attempt = record.attempt,
        claimed_at = record.claimed_at.0,
        "a claim in doubt was never resolved; its 30 days are over and the key is free again"
    );
}
