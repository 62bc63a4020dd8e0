//! Measures how fast the gateway is, compared with a bare proxy built on the same library, with nginx, and with the
//! disk.
//!
//! ```text
//! gateway-bench [--quick] [NAME…]        needs `ichido` in the same directory; `cargo xtask bench gateway` builds both
//! NAME: first latency one history redis postgres replay pass layer start memory
//! ```
//!
//! Only ratios are meaningful: contenders are measured in turn, and each figure is the median over all rounds. wrk
//! generates the load; wrk, the proxy and the upstream share the machine. Stores are in the current directory or in
//! `ICHIDO_BENCH_DIR`. Redis and PostgreSQL are measured if `ICHIDO_BENCH_REDIS_URL` and `ICHIDO_BENCH_POSTGRES_URL` are set. The gateway runs with default settings
//! and writes its log, one line per keyed request, to /dev/null. A missed target is reported, but is not an error.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "an interactive program"
)]

mod ledger_alone;
mod measurements;
mod memory;

use ichido_bench::options::{self, Measurement};
use ichido_bench::servers;

const MEASUREMENTS: [(&str, Measurement); 11] = [
    ("first", measurements::first),
    ("latency", measurements::latency),
    ("one", measurements::one),
    ("history", measurements::history),
    ("redis", measurements::redis),
    ("postgres", measurements::postgres),
    ("replay", measurements::replay),
    ("pass", measurements::pass),
    ("layer", measurements::layer),
    ("start", measurements::start),
    ("memory", memory::memory),
];

fn main() {
    options::run(&MEASUREMENTS, servers::run);
}
