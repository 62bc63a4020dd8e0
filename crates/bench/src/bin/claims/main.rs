//! How fast events are checked over HTTP, beside a server of the same libraries that only parses and replies.
//!
//! ```text
//! claims-bench [--quick] [NAME…]        with `ichido` beside it; `cargo xtask bench claims` builds both
//! NAME: new repeat batch memory
//! ```
//!
//! Only ratios mean much: what is compared is measured in turn, round by round, and a figure is the median over the
//! rounds. The load is wrk's, with 64 connections; wrk and the server share the machine. Stores lie in the current
//! directory or in `ICHIDO_BENCH_DIR`. `ichido claims` has its default settings, and writes its log, a line for each event,
//! to /dev/null. A target that is missed is said so, and is no error.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a program for people"
)]

mod load;
mod measurements;
mod servers;

use ichido_bench::options::{self, Figure};

const FIGURES: [(&str, Figure); 4] = [
    ("new", measurements::new),
    ("repeat", measurements::repeat),
    ("batch", measurements::batch),
    ("memory", measurements::memory),
];

fn main() {
    options::run(&FIGURES, servers::run);
}
