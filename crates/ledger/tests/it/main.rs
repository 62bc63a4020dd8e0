//! The backends and the handle, on real servers: the contract, failing networks, crashes, and what is specific to each
//! backend. `cargo xtask test` sets the environment variables with the addresses of the servers.
//!
//! One program, because linking all backends takes long.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::wildcard_enum_match_arm,
    reason = "anything unexpected fails the test"
)]

mod conformance;
mod crash;
mod dynamodb;
mod fallback;
mod faults;
mod linearizability;
mod paused;
mod postgres;
mod redis;
mod support;
