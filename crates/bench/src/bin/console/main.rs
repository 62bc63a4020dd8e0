//! Measures how fast the console's pages are with much data, how soon a daemon is ready, and what an open console
//! costs.
//!
//! ```text
//! console-bench [--quick] [NAME…]        needs `ichido` in the same directory; `cargo xtask bench console` builds both
//! NAME: pages history ready watched demo
//! ```
//!
//! Pages are requested one after another, each on a new connection, and read completely; the slowest is reported.
//! The daemon runs with default settings, an embedded ledger, a gateway, and a receiver that is down. Stores are in
//! the current directory or in `ICHIDO_BENCH_DIR`. A missed target is reported, but is not an error.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "an interactive program"
)]

mod fixtures;
mod measurements;
mod viewers;

use ichido_bench::options::{self, Measurement};
use ichido_bench::servers;

const MEASUREMENTS: [(&str, Measurement); 5] = [
    ("pages", measurements::pages),
    ("history", measurements::history),
    ("ready", measurements::ready),
    ("watched", measurements::watched),
    ("demo", measurements::demo),
];

fn main() {
    options::run(&MEASUREMENTS, servers::run);
}
