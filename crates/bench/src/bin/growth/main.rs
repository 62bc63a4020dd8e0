//! Measures how the cost of a keyed request grows: with the keys in the ledger, with the gateways that share one, with
//! the size of responses and with the number of tenants. Plots the results.
//!
//! ```text
//! growth-bench [--quick] [NAME…]        `cargo xtask bench growth` builds it and provides Redis and PostgreSQL
//! NAME: keys gateways responses tenants
//! ```
//!
//! The figure is processor time of the gateways per request, because the rate is bounded by what else the two share:
//! wrk, the service and the store run on the same machine. Both are printed; each is the median over all rounds. Plots
//! are written to `ICHIDO_BENCH_PLOTS` if it is set. `--quick` stops at a million keys.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "an interactive program"
)]

mod fill;
mod measurements;
mod plot;

use ichido_bench::options::{self, Measurement};
use ichido_bench::servers;

const MEASUREMENTS: [(&str, Measurement); 4] = [
    ("keys", measurements::keys),
    ("gateways", measurements::gateways),
    ("responses", measurements::responses),
    ("tenants", measurements::tenants),
];

fn main() {
    options::run(&MEASUREMENTS, servers::run);
}
