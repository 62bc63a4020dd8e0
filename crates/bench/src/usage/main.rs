//! How fast usage is named and summed, beside the first exporter's way of doing it, in Node.
//!
//! ```text
//! usage-bench [--quick] [NAME…]        `cargo xtask bench usage` builds it and brings Node
//! NAME: ids aggregate
//! ```
//!
//! Each measurement is a process of its own, so that its memory is its own; one thread works. What is compared is measured in turn, round by
//! round, and a figure is the median over the rounds. Both sides make the same rows by the same formula (`rows.rs`, `peer.mjs`), and
//! their results are compared before their times. A target that is missed is said so, and is no error.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a program for people"
)]

mod figures;
#[path = "../middle.rs"]
mod middle;
#[allow(dead_code, reason = "the other benchmarks use the rest")]
#[path = "../plan.rs"]
mod plan;
mod roles;
mod rows;
#[path = "../../../ledger/benches/ledger/table.rs"]
mod table;

use plan::Figure;

/// The allocator of the command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const FIGURES: [(&str, Figure); 2] = [("ids", figures::ids), ("aggregate", figures::aggregate)];

fn main() {
    plan::run(&FIGURES, roles::run);
}
