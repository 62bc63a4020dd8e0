//! What the layer promises, one test for each promise.
//!
//! One or several layers ("instances") with a shared store wrap a service that counts its effects. Most tests run on the
//! embedded ledgers. Those where the ledger matters also run on PostgreSQL, Redis and DynamoDB: real servers, which
//! environment variables set by `cargo xtask test` point to. Tests check order and outcome. Where a duration is the
//! promise itself, a busy machine gets more than one attempt.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "anything unexpected fails the test")]

mod body_sizes;
mod callers;
mod completion_journal;
mod concurrency;
mod content;
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
mod simulation;
mod spans;
mod support;
mod takeovers;
mod tenants;
mod verdicts;
mod wait_mode;
