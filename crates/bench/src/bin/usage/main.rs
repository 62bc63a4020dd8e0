//! How fast usage is named and summed, beside the first exporter's way of doing it, in Node; and how fast the meter counts it.
//!
//! ```text
//! usage-bench [--quick] [NAME…]        `cargo xtask bench usage` builds it and brings Node and PostgreSQL
//! NAME: ids aggregate export meter
//! ```
//!
//! Each measurement is a process of its own, so that its memory is its own; one thread works. What is compared is measured in turn, round by
//! round, and a figure is the median over the rounds. Both sides make the same rows by the same formula (`rows.rs`, `reference.mjs`), and
//! their results are compared before their times. The export is a process of the real command, from a PostgreSQL with Dify's
//! tables to a receiver that only counts. The meter gets new records from wrk over 64 connections, and shares the
//! machine with it; its stores lie in the current directory or in `ICHIDO_BENCH_DIR`. A target that is missed is said so, and is no error.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a program for people"
)]

mod export;
mod measurements;
mod meter;
mod roles;
mod rows;

use ichido_bench::options::{self, Figure};

/// The allocator of the command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const FIGURES: [(&str, Figure); 4] = [
    ("ids", measurements::ids),
    ("aggregate", measurements::aggregate),
    ("export", export::export),
    ("meter", meter::ingest),
];

fn main() {
    options::run(&FIGURES, roles::run);
}
