//! The admin port of a process: health, metrics, the claim API, operator actions and the console.
//!
//! Whoever reaches this port can resolve and release claims. It therefore listens on loopback or requires a token. A
//! browser on the same machine is not an operator: requests for a foreign host name or from a foreign page are refused
//! (module `auth`).
//!
//! A process first binds the port ([`AdminPort::bind`]), then opens its ledger under [`AdminPort::reachable_address`],
//! so that `ichido ledger …` can find the port through the store, and then serves ([`AdminPort::serve`]).

mod api;
mod audit;
pub mod audit_log;
mod auth;
mod browser;
mod console;
pub mod delivery_control;
mod doubt;
pub mod erase;
mod export_state;
mod histories;
mod json_object;
mod limits;
pub mod operator;
mod server;
mod settings;
pub mod slo;
mod state;
pub mod trace;

pub use self::audit_log::AUDIT;
pub use self::auth::{Access, Gate, Tokens, TrustedUser};
pub use self::doubt::{DoubtHints, HintReceiver, hints, settle_doubts};
pub use self::export_state::{ExportSearch, ExportState, Exported};
pub use self::histories::Histories;
pub use self::server::{AdminPort, serve_router};
pub use self::settings::{ConsoleSettings, ConsoleUrl, RawAdmin, RawClaims, RawConsole, Settings};
pub use self::state::{Admin, Bodies, ClaimApi, ClaimSettings, ConsoleOptions, Health, LogKeys, UsageSource};
