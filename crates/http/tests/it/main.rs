//! The layer's promises, each a named test.
//!
//! A service that counts its effects stands behind one or several layers ("instances") that share a store. Most tests
//! run on the embedded ledgers; those where the ledger matters run on PostgreSQL, Redis and DynamoDB too, which are
//! real servers given by environment variables that `cargo xtask test` sets. Tests look at order and outcome; where a
//! duration is the promise itself, a busy machine gets more than one try.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what is unexpected fails the test")]

mod around_the_effect;
mod bounds;
mod callers;
mod codings;
mod completion_journal;
mod concurrency;
mod events;
mod fingerprints;
mod histories;
mod leases;
mod observe;
mod operators;
mod outages;
mod protocol;
mod published;
mod replays;
mod sizes;
mod sources;
mod statuses;
mod support;
mod takeovers;
mod tenants;
mod waiting;

#[path = "../../../ledger/tests/support/lossy_proxy.rs"]
mod lossy_proxy;
#[path = "../../../ledger/tests/support/servers.rs"]
mod servers;
