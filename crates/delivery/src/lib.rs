//! Delivers batches of records to an HTTP receiver, or keeps them where an operator can see them.
//!
//! The decisions are pure functions: [`verdict::classify`] interprets an exchange ([`conflict::judge`] a 409),
//! [`next_action::decide`] chooses what to do next, [`bisect::Bisect`] picks the part of a rejected batch to send,
//! [`lane::Lane`] says whether anything may be sent, and [`rate_limiter::RateLimiter`] says when.
//!
//! The [`store`] keeps a batch on disk from before the first request until the receiver has it. The [`transport`]
//! makes one request. The [`sender`] combines them.

mod batch;
pub mod bisect;
pub mod conflict;
pub mod counters;
pub mod cron;
pub mod disk;
pub mod endpoint;
pub mod erase;
pub mod exchange;
mod gzip;
pub mod history;
pub mod input;
mod invalid;
pub mod lane;
pub mod next_action;
pub mod notice;
pub mod notifier;
mod process_dir;
pub mod rate_limiter;
pub mod receipt;
mod record;
mod record_results;
pub mod redact;
pub mod request;
pub mod resend_window;
pub mod schedule;
pub mod sender;
pub mod settings;
pub mod slo;
pub mod store;
pub mod time;
pub mod tls_roots;
pub mod token;
pub mod transport;
pub mod verdict;

pub use batch::{Batch, Batcher};
pub use record::{NotARecord, Record};
pub use record_results::RecordResult;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
