//! The layer's promises, each a named test.
//!
//! A service that counts its effects stands behind one or several layers ("instances") that share a store. Most tests
//! run on the embedded ledgers; those where the ledger matters run on PostgreSQL, Redis and DynamoDB too, which are
//! real servers given by environment variables that `cargo xtask test` sets. Tests look at order and outcome; where a
//! duration is the promise itself, a busy machine gets more than one try.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what is unexpected fails the test")]

mod body_sizes;
mod callers;
mod completion_journal;
mod concurrency;
mod content_encoding;
mod events;
mod failures;
mod fingerprints;
mod key_sources;
mod leases;
mod limits;
mod observe_mode;
mod outages;
mod policy;
mod protocol;
mod random_histories;
mod replays;
mod resolutions;
mod support;
mod takeovers;
mod tenants;
mod verdicts;
mod wait_mode;

#[path = "../../../ledger/tests/support/lossy_proxy.rs"]
mod lossy_proxy;
#[path = "../../../ledger/tests/support/servers.rs"]
mod servers;
