//! What every listener of ichido needs: an accept loop with limits, TLS, shutdown, problem details, readiness and metrics.

mod client_io;
mod component;
pub mod descriptors;
mod failure;
pub mod ledger;
pub mod listener;
pub mod metrics;
pub mod problem;
mod reach;
mod readiness;
pub mod shutdown;
pub mod tls;
mod visible;

pub use client_io::ClientIo;
pub use component::{Component, Work};
pub use failure::{Code, Failure};
pub use problem::Problem;
pub use reach::reach;
pub use readiness::{Audience, Probe, Readiness, Verdict};
pub use visible::{is_invisible, visible, visible_lines, visible_log};
