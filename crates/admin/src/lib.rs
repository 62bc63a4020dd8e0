//! The admin port: is the process alive, is it ready, what does it count; the claim API ([`api`]), and an operator's view
//! of the claims.
//!
//! Whoever reaches this port may end doubts and give keys back, so it is on loopback, or demands a token. A browser on
//! the same machine is no operator: calls under a foreign name or from a foreign page are refused ([`auth`]).
//!
//! A process binds first ([`AdminPort::bind`]), opens its ledger under [`AdminPort::reach`], so that `ichido ledger …` finds the
//! port through the store, and then serves ([`AdminPort::serve`]).

mod api;
mod audit;
mod auth;
mod browser;
mod console;
pub mod delivery_control;
mod json_object;
mod limits;
pub mod operator;
mod server;
mod state;

pub use self::audit::AUDIT;
pub use self::auth::{AdminToken, Gate};
pub use self::server::AdminPort;
pub use self::state::{Admin, Bodies, ClaimApi, ConsoleOptions, Health, LogKeys, UsageSource};
