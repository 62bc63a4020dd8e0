//! Measures the file ledger against what the disk allows and against Redis.
//!
//! ```text
//! cargo bench -p ichido-ledger --bench ledger -- [--quick] [NAME…]
//! NAME: claims one repeats scale reopen sweep
//! ```
//!
//! Only ratios are meaningful: each figure is measured next to its reference, in the same run, on the same disk
//! (that of the current directory, or of `ICHIDO_BENCH_DIR`). Redis is measured if `ICHIDO_BENCH_REDIS_URL` is set;
//! that server should have `appendonly yes` and `appendfsync always`. A missed target is reported, but is not an
//! error.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::panic,
    reason = "a command-line program"
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
pub(crate) struct Options {
    /// A short run.
    pub(crate) quick: bool,
    names: Vec<String>,
}

impl Options {
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
    let options = Options { quick: arguments.iter().any(|argument| argument == "--quick"), names };
    let mut table = Table::default();
    runtime.block_on(async {
        if options.wants("claims") {
            benchmarks::claims(&options, &mut table).await;
        }
        if options.wants("one") {
            benchmarks::one(&options, &mut table).await;
        }
        if options.wants("repeats") {
            benchmarks::repeats(&options, &mut table).await;
        }
        if options.wants("scale") {
            benchmarks::scale(&options, &mut table).await;
        }
        if options.wants("reopen") {
            benchmarks::reopen(&options, &mut table).await;
        }
        if options.wants("sweep") {
            benchmarks::sweep(&options, &mut table).await;
        }
    });
    table.print();
}
