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

mod figures;
mod load;
mod parts;
mod rounds;
mod servers;
#[path = "../../ledger/benches/ledger/table.rs"]
mod table;

use std::time::Duration;

use table::Table;

/// What to run, and how much of it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    /// How long each measurement takes.
    pub(crate) time: Duration,
    /// Keyed requests before memory is looked at.
    pub(crate) many: u64,
    names: Vec<String>,
}

impl Plan {
    fn read(arguments: &[String]) -> Self {
        let names = arguments.iter().filter(|argument| !argument.starts_with("--")).cloned().collect();
        match arguments.iter().any(|argument| argument == "--quick") {
            true => Self { rounds: 5, time: Duration::from_secs(1), many: 500_000, names },
            false => Self { rounds: 7, time: Duration::from_secs(3), many: 5_000_000, names },
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| wanted == name)
    }
}

type Figure = fn(&Plan, &mut Table);

const FIGURES: [(&str, Figure); 8] = [
    ("first", figures::first),
    ("one", figures::one),
    ("redis", figures::redis),
    ("replay", figures::replay),
    ("pass", figures::pass),
    ("layer", figures::layer),
    ("start", figures::start),
    ("memory", figures::memory),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, role @ ..] = arguments.as_slice()
        && first == servers::ROLE
    {
        return servers::run(role);
    }
    let plan = Plan::read(&arguments);
    let mut table = Table::default();
    for (name, figure) in FIGURES {
        if plan.wants(name) {
            figure(&plan, &mut table);
        }
    }
    table.print();
}
