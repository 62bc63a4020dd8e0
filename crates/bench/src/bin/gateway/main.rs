//! How fast the gateway is, beside a bare proxy of the same library, beside nginx, and beside the disk.
//!
//! ```text
//! gateway-bench [--quick] [NAME…]        with `ichido` beside it; `cargo xtask bench gateway` builds both
//! NAME: first one redis replay pass layer start memory
//! ```
//!
//! Only ratios mean much: what is compared is measured in turn, round by round, and a figure is the median over the
//! rounds. The load is wrk's; wrk, the proxy and the service behind share the machine. Stores lie in the current
//! directory or in `ICHIDO_BENCH_DIR`. Redis is asked if `ICHIDO_BENCH_REDIS_URL` names one. The gateway has its default
//! settings, and writes its log, a line for each keyed request, to /dev/null. A target that is missed is said so, and is no error.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a program for people"
)]

mod measurements;

use ichido_bench::options::{self, Figure};
use ichido_bench::servers;

const FIGURES: [(&str, Figure); 8] = [
    ("first", measurements::first),
    ("one", measurements::one),
    ("redis", measurements::redis),
    ("replay", measurements::replay),
    ("pass", measurements::pass),
    ("layer", measurements::layer),
    ("start", measurements::start),
    ("memory", measurements::memory),
];

fn main() {
    options::run(&FIGURES, servers::run);
}
