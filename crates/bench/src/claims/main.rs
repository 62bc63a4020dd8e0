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

mod figures;
mod load;
#[allow(dead_code, reason = "the gateway's benchmark uses the rest")]
#[path = "../parts.rs"]
mod parts;
#[path = "../rounds.rs"]
mod rounds;
mod servers;
#[allow(dead_code, reason = "the gateway's benchmark uses the rest")]
#[path = "../../../ledger/benches/ledger/table.rs"]
mod table;

use std::time::Duration;

use table::Table;

/// What to run, and how much of it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    /// How long each measurement takes.
    pub(crate) time: Duration,
    names: Vec<String>,
}

impl Plan {
    fn read(arguments: &[String]) -> Self {
        let names = arguments.iter().filter(|argument| !argument.starts_with("--")).cloned().collect();
        match arguments.iter().any(|argument| argument == "--quick") {
            true => Self { rounds: 5, time: Duration::from_secs(1), names },
            false => Self { rounds: 7, time: Duration::from_secs(3), names },
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| wanted == name)
    }
}

type Figure = fn(&Plan, &mut Table);

const FIGURES: [(&str, Figure); 4] = [
    ("new", figures::new),
    ("repeat", figures::repeat),
    ("batch", figures::batch),
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
