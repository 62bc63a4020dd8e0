//! Measures how fast batches are read from disk and input and sent, and what the copy on disk costs.
//!
//! ```text
//! delivery-bench [--quick] [NAME…]       needs `ichido` in the same directory; `cargo xtask bench delivery` builds both
//! NAME: scan resend many send far receipts trace
//! ```
//!
//! Each figure covers whole processes of the real command, from start to exit, with default settings and their log
//! (one line per batch) written to /dev/null. The receiver is a small server in the benchmark, on plain HTTP over
//! loopback (`EXTERNAL_API_ALLOW_HTTP_LOOPBACK`); it reads each body, counts keys, and responds 200. It shares the
//! machine with the sender. Directories are in the current directory or in `ICHIDO_BENCH_DIR`. A figure is the
//! median over all rounds. Memory is the peak resident size. A missed target is reported, but is not an error.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "an interactive program"
)]

mod baseline;
mod measurements;
mod receipts;

use ichido_bench::options::{self, Measurement};

const MEASUREMENTS: [(&str, Measurement); 7] = [
    ("scan", measurements::scan),
    ("resend", measurements::resend),
    ("many", measurements::many),
    ("send", measurements::send),
    ("far", measurements::far),
    ("receipts", receipts::cost),
    ("trace", receipts::trace),
];

fn main() {
    options::run(&MEASUREMENTS, baseline::run);
}
