//! How fast usage is named and summed, beside the first exporter's way of doing it, in Node; and how fast the meter counts it.
//!
//! ```text
//! usage-bench [--quick] [NAME…]        `cargo xtask bench usage` builds it and brings Node and PostgreSQL
//! NAME: ids aggregate export meter
//! ```
//!
//! Each measurement is a process of its own, so that its memory is its own; one thread works. What is compared is measured in turn, round by
//! round, and a figure is the median over the rounds. Both sides make the same rows by the same formula (`rows.rs`, `peer.mjs`), and
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

#[allow(dead_code, reason = "the benchmark of delivery uses the rest")]
#[path = "../delivery/command.rs"]
mod command;
mod export;
mod figures;
#[path = "../median.rs"]
mod median;
mod meter;
#[allow(dead_code, reason = "the other benchmarks use the rest")]
#[path = "../parts.rs"]
mod parts;
#[allow(dead_code, reason = "the other benchmarks use the rest")]
#[path = "../plan.rs"]
mod plan;
#[allow(dead_code, reason = "the benchmark of delivery uses the rest")]
#[path = "../delivery/receiver.rs"]
mod receiver;
mod roles;
mod rows;
#[path = "../../../ledger/benches/ledger/table.rs"]
mod table;
#[path = "../wrk.rs"]
mod wrk;

use plan::Figure;

/// The allocator of the command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const FIGURES: [(&str, Figure); 4] = [
    ("ids", figures::ids),
    ("aggregate", figures::aggregate),
    ("export", export::export),
    ("meter", meter::ingest),
];

fn main() {
    plan::run(&FIGURES, roles::run);
}
