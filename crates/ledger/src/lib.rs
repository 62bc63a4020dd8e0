//! Ledgers: stores of claims and marks.
//!
//! [`Ledger`] is the handle that programs use, and [`Backend`] is the interface that stores implement. [`open()`]
//! opens a ledger by its URL. The handle implements what is the same for all stores: deadlines, retries, metrics,
//! lease renewal, waiting and the fallback.
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
mod capabilities;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod coalesce;
#[cfg(feature = "conformance")]
pub mod conformance;
mod content;
mod deferred;
#[cfg(feature = "dynamodb")]
pub mod dynamodb;
mod error;
mod fallback;
#[cfg(feature = "file")]
pub mod file;
mod index_map;
mod lazy_timeout;
mod ledger;
mod listing;
#[cfg(feature = "file")]
pub mod log;
mod mark_batch;
pub mod memory;
mod metrics;
mod observer;
mod once;
mod open;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
mod renewal;
mod results;
mod retry;
mod settings;
#[cfg(feature = "simulation")]
pub mod simulation;
mod stats;
mod waiters;

pub use backend::{Backend, LocalBackend, Maintain};
pub use capabilities::{Capabilities, Expiry, Fencing, Listing, Reach, StoreClock, Survives, Sweeping};
pub use content::{
    CONTENT_KEYS_MAX, CheckedEvent, ContentCheck, ContentHit, ContentKey, ContentMode, Event, EventResult,
};
pub use error::{BoxError, Effect, Error, Kind, Result};
pub use fallback::FallbackSettings;
pub use lazy_timeout::{Elapsed, LazyTimeout, lazy_timeout};
pub use ledger::Ledger;
pub use listing::{MarkPage, MarkQuery, MarkSummary, Page, Query, StateName, Summary};
pub use observer::{Decision, Observer, Subject};
pub use once::{Failure, Once, OnceError};
pub use open::{OpenOptions, open, open_backend, open_local, open_or_defer};
pub use renewal::Renewal;
pub use results::{Claimed, Marked};
pub use settings::Settings;
pub use stats::{Backup, Conflict, ConflictKind, FallbackStatus, Stats, Swept, Verified};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
