//! Shared by the benchmarks: the processes that are measured, those they are compared with, the load, and the table
//! of results.
//!
//! A benchmark is a program under `src/bin`. `cargo xtask bench NAME` builds and runs it.
#![allow(
    missing_docs,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "for interactive programs"
)]

pub mod command;
pub mod load;
pub mod log;
pub mod median;
pub mod options;
pub mod processes;
pub mod receiver;
pub mod records;
pub mod rounds;
pub mod servers;
#[path = "../../ledger/benches/ledger/table.rs"]
pub mod table;
pub mod wrk;
