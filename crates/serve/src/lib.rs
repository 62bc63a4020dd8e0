//! What the long-running components share: an accept loop with limits, TLS, shutdown, problem details, readiness,
//! metrics and the ledger of the process.

mod client_io;
mod component;
mod connect;
pub mod descriptors;
mod failure;
pub mod ledger;
mod ledger_settings;
pub mod listener;
pub mod metrics;
pub mod problem;
mod readiness;
pub mod reload;
pub mod shutdown;
mod similar_settings;
pub mod stderr;
pub mod tls;
mod trusted_proxies;
mod visible;

pub use component::{Component, Work};
pub use connect::try_connect;
pub use failure::{ExitClass, Failure};
pub use ledger_settings::RawLedger;
pub use problem::Problem;
pub use readiness::{Audience, Probe, ProbeResult, Readiness};
pub use similar_settings::RawSimilar;
pub use trusted_proxies::TrustedProxies;
pub use visible::{is_invisible, visible, visible_lines, visible_log};
