//! How fast batches leave the disk and the input, and what the copy on disk costs.
//!
//! ```text
//! delivery-bench [--quick] [NAME…]       with `ichido` beside it; `cargo xtask bench delivery` builds both
//! NAME: scan resend many send
//! ```
//!
//! Each figure is of whole processes of the real command, from start to exit, with default settings, their log (a line
//! for each batch) written to /dev/null. The receiver is a small server in the benchmark, on plain HTTP over loopback
//! (`EXTERNAL_API_ALLOW_HTTP_LOOPBACK`); it reads each body, counts keys, and answers 200. It shares the machine with
//! the sender. Directories lie in the current directory or in `ICHIDO_BENCH_DIR`. A figure is the median over the
//! rounds. Memory is the most that was resident at any moment. A target that is missed is said so, and is no error.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a program for people"
)]

mod baseline;
mod measurements;

use ichido_bench::options::{self, Figure};

const FIGURES: [(&str, Figure); 4] = [
    ("scan", measurements::scan),
    ("resend", measurements::resend),
    ("many", measurements::many),
    ("send", measurements::send),
];

fn main() {
    options::run(&FIGURES, baseline::run);
}
