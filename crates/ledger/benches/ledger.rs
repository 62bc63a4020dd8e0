//! How fast the file ledger is, beside what is physically possible and beside Redis.
//!
//! ```text
//! cargo bench -p ichido-ledger --bench ledger -- [--quick] [NAME…]
//! NAME: claims one repeats scale reopen sweep
//! ```
//!
//! Only ratios mean much: each figure is measured beside its reference, in the same run, on the same disk (the current
//! directory's, or `ICHIDO_BENCH_DIR`). Redis is asked if `ICHIDO_BENCH_REDIS_URL` names one; it should have
//! `appendonly yes` and `appendfsync always`. A target that is missed is said so, and is no error.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::panic,
    reason = "a program for people"
)]

#[path = "ledger/benchmarks.rs"]
mod benchmarks;
#[path = "ledger/load.rs"]
mod load;
#[path = "ledger/raw_log.rs"]
mod raw_log;
#[allow(unreachable_pub, reason = "the other benchmarks have it in a library")]
#[path = "ledger/table.rs"]
mod table;

use table::Table;

/// What to run, and how much of it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// A short run.
    pub(crate) quick: bool,
    names: Vec<String>,
}

impl Plan {
    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| wanted == name)
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if let Some(("--child", rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        runtime.block_on(benchmarks::child(rest));
        return;
    }
    let names = arguments.iter().filter(|argument| !argument.starts_with("--")).cloned().collect();
    let plan = Plan { quick: arguments.iter().any(|argument| argument == "--quick"), names };
    let mut table = Table::default();
    runtime.block_on(async {
        if plan.wants("claims") {
            benchmarks::claims(&plan, &mut table).await;
        }
        if plan.wants("one") {
            benchmarks::one(&plan, &mut table).await;
        }
        if plan.wants("repeats") {
            benchmarks::repeats(&plan, &mut table).await;
        }
        if plan.wants("scale") {
            benchmarks::scale(&plan, &mut table).await;
        }
        if plan.wants("reopen") {
            benchmarks::reopen(&plan, &mut table).await;
        }
        if plan.wants("sweep") {
            benchmarks::sweep(&plan, &mut table).await;
        }
    });
    table.print();
}
