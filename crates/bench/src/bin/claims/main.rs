//! Measures how fast events are checked over HTTP, compared with a server built on the same libraries that only
//! parses and replies.
//!
//! ```text
//! claims-bench [--quick] [NAME…]        needs `ichido` in the same directory; `cargo xtask bench claims` builds both
//! NAME: new repeat batch memory
//! ```
//!
//! Only ratios are meaningful: contenders are measured in turn, and each figure is the median over all rounds. wrk
//! generates the load over 64 connections, on the same machine as the server. Stores are in the current directory
//! or in `ICHIDO_BENCH_DIR`. `ichido claims` runs with default settings and writes its log, one line per event, to
//! /dev/null. A missed target is reported, but is not an error.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "an interactive program"
)]

mod load;
mod measurements;
mod servers;

use ichido_bench::options::{self, Measurement};

const MEASUREMENTS: [(&str, Measurement); 4] = [
    ("new", measurements::new),
    ("repeat", measurements::repeat),
    ("batch", measurements::batch),
    ("memory", measurements::memory),
];

fn main() {
    options::run(&MEASUREMENTS, servers::run);
}
