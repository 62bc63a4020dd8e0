//! Batches that arrive, or lie where you can see them.
//!
//! The core is pure: [`verdict::classify`] says what an exchange means ([`conflict::judge`] for a 409),
//! [`next_action::decide`] what happens next, [`bisect::Bisect`] which part of a refused batch is sent, [`lane::Lane`] whether
//! anything may go, [`rate_limiter::RateLimiter`] when. The [`store`] keeps
//! batches on disk from before the first request until they have arrived; the transport makes one request; the sender
//! joins them.

pub mod batch;
pub mod bisect;
pub mod conflict;
pub mod counters;
pub mod cron;
pub mod disk;
pub mod endpoint;
pub mod exchange;
mod gzip;
pub mod history;
pub mod input;
pub mod lane;
pub mod next_action;
pub mod notice;
pub mod notifier;
mod process_dir;
pub mod rate_limiter;
pub mod receipt;
pub mod record;
mod record_results;
pub mod redact;
pub mod request;
pub mod resend_window;
pub mod sender;
pub mod settings;
pub mod store;
pub mod time;
pub mod tls_roots;
pub mod token;
pub mod transport;
pub mod verdict;

pub use batch::{Batch, Batcher};
pub use record::{NotARecord, Record};
pub use record_results::RecordResult;
