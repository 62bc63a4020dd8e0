//! How fast the console's pages are with much behind them, how soon a daemon is ready, and what looking costs.
//!
//! ```text
//! console-bench [--quick] [NAME…]        with `ichido` beside it; `cargo xtask bench console` builds both
//! NAME: pages ready watched demo
//! ```
//!
//! Pages are asked for one after the other, each on a new connection, and read to their end; what is printed is the
//! slowest of them. The daemon has its default settings, an embedded ledger, a gateway, and a receiver that is down.
//! Stores lie in the current directory or in `ICHIDO_BENCH_DIR`. A target that is missed is said so, and is no error.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a program for people"
)]

mod fixtures;
mod measurements;
mod viewers;

use ichido_bench::options::{self, Figure};
use ichido_bench::servers;

const FIGURES: [(&str, Figure); 4] = [
    ("pages", measurements::pages),
    ("ready", measurements::ready),
    ("watched", measurements::watched),
    ("demo", measurements::demo),
];

fn main() {
    options::run(&FIGURES, servers::run);
}
