//! Batches that arrive, or lie where you can see them.
//!
//! The core is pure: [`verdict::classify`] says what an exchange means ([`conflict::judge`] for a 409),
//! [`step::step`] what happens next, [`bisect::Bisect`] which part of a refused batch is sent, [`lane::Lane`] whether
//! anything may go, [`pace::Pace`] when. The [`store`] keeps
//! batches on disk from before the first request until they have arrived; the transport makes one request; the sender
//! joins them.

pub mod alarm;
pub mod batch;
pub mod bisect;
pub mod conflict;
pub mod counters;
pub mod cron;
pub mod disk;
pub mod endpoint;
pub mod exchange;
pub mod files;
mod gzip;
pub mod history;
pub mod input;
pub mod lane;
pub mod mask;
pub mod notice;
mod own;
pub mod pace;
pub mod receipt;
pub mod record;
pub mod request;
mod results;
pub mod sender;
pub mod settings;
pub mod step;
pub mod store;
pub mod time;
pub mod token;
pub mod transport;
pub mod trust;
pub mod verdict;
pub mod window;

pub use batch::{Batch, Cutter, batch_key};
pub use record::{NotARecord, Record};
pub use results::Fate;
