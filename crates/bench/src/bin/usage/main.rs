//! Measures how fast ids are generated and usage is aggregated, compared with Node, and how fast the meter counts.
//!
//! ```text
//! usage-bench [--quick] [NAME…]        `cargo xtask bench usage` builds it and provides Node and PostgreSQL
//! NAME: ids aggregate export meter
//! ```
//!
//! Each measurement runs in its own single-threaded process, so that its memory can be measured. Contenders are
//! measured in turn, and each figure is the median over all rounds. Both sides generate the same rows with the same
//! formula (`rows.rs`, `reference.mjs`), and their results are compared before their times. The export is a process
//! of the real command, from a PostgreSQL with Dify's tables to a receiver that only counts. wrk sends new records
//! to the meter over 64 connections, on the same machine. Stores are in the current directory or in
//! `ICHIDO_BENCH_DIR`. A missed target is reported, but is not an error.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "an interactive program"
)]

mod export;
mod measurements;
mod meter;
mod roles;
mod rows;

use ichido_bench::options::{self, Measurement};

/// The allocator that the command uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MEASUREMENTS: [(&str, Measurement); 4] = [
    ("ids", measurements::ids),
    ("aggregate", measurements::aggregate),
    ("export", export::export),
    ("meter", meter::ingest),
];

fn main() {
    options::run(&MEASUREMENTS, roles::run);
}
