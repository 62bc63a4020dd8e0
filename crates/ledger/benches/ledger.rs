//! Measures the file ledger against what the disk allows and against Redis, and the ledgers on PostgreSQL and Redis
//! against what these servers do without us.
//!
//! ```text
//! cargo bench -p ichido-ledger --bench ledger -- [--quick] [NAME…]
//! NAME: claims completions latency one repeats scale reopen sweep write-volume postgres redis
//! ```
//!
//! Only ratios are meaningful: each figure is measured next to its reference, in the same run, on the same disk
//! (that of the current directory, or of `ICHIDO_BENCH_DIR`). Contenders take turns, and a figure is the median over
//! all rounds. Redis is measured if `ICHIDO_BENCH_REDIS_URL` is set; that server should have `appendonly yes` and
//! `appendfsync always`. PostgreSQL is measured, next to pgbench, if `ICHIDO_BENCH_POSTGRES_URL` is set. A full run takes up to 8 GB of disk space. A missed target is reported, but is not an error.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::panic,
    reason = "a command-line program"
)]

#[path = "ledger/child.rs"]
mod child;
#[path = "ledger/fixture.rs"]
mod fixture;
#[path = "ledger/histogram.rs"]
mod histogram;
#[path = "ledger/load.rs"]
mod load;
#[path = "ledger/outcomes.rs"]
mod outcomes;
#[path = "ledger/process.rs"]
mod process;
#[path = "ledger/raw_log.rs"]
mod raw_log;
#[path = "ledger/records.rs"]
mod records;
#[path = "ledger/redis_peer.rs"]
mod redis_peer;
#[path = "ledger/rounds.rs"]
mod rounds;
#[path = "ledger/scale.rs"]
mod scale;
#[path = "ledger/servers.rs"]
mod servers;
#[path = "ledger/sweep.rs"]
mod sweep;
#[allow(unreachable_pub, reason = "the other benchmarks have it in a library")]
#[path = "ledger/table.rs"]
mod table;
#[path = "ledger/throughput.rs"]
mod throughput;
#[path = "ledger/write_volume.rs"]
mod write_volume;

use std::path::Path;

use table::Table;

const NAMES: [&str; 11] = [
    "claims",
    "completions",
    "latency",
    "one",
    "repeats",
    "scale",
    "reopen",
    "sweep",
    "write-volume",
    "postgres",
    "redis",
];
/// Shortens all measurements.
const QUICK: &str = "--quick";

/// What to run, and how much of it.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// A short run.
    pub(crate) quick: bool,
    pub(crate) rounds: u64,
    names: Vec<String>,
}

impl Options {
    fn read(arguments: &[String]) -> Self {
        let is_known = |argument: &str| argument == QUICK || NAMES.contains(&argument);
        if let Some(unknown) = arguments.iter().find(|argument| !is_known(argument)) {
            eprintln!("unknown argument {unknown}: expected {QUICK} or any of {}", NAMES.join(" "));
            std::process::exit(2);
        }
        let quick = arguments.iter().any(|argument| argument == QUICK);
        let names = arguments.iter().filter(|argument| *argument != QUICK).cloned().collect();
        Self { quick, rounds: if quick { 3 } else { 5 }, names }
    }

    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| wanted == name)
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if let Some(("--child", rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        runtime.block_on(run_child(rest));
        return;
    }
    let mut table = Table::default();
    runtime.block_on(measure(&Options::read(&arguments), &mut table));
    table.print();
}

async fn measure(options: &Options, table: &mut Table) {
    if options.wants("claims") {
        throughput::claims(options, table).await;
    }
    if options.wants("completions") {
        throughput::completions(options, table).await;
    }
    if options.wants("latency") {
        throughput::latency(options, table).await;
    }
    if options.wants("one") {
        throughput::one(options, table).await;
    }
    if options.wants("repeats") {
        throughput::repeats(options, table).await;
    }
    if options.wants("scale") {
        scale::scale(options, table).await;
    }
    if options.wants("reopen") {
        scale::reopen(options, table).await;
    }
    if options.wants("sweep") {
        sweep::sweep(options, table).await;
    }
    if options.wants("write-volume") {
        write_volume::write_volume(options, table).await;
    }
    if options.wants("postgres") {
        servers::postgres(options, table).await;
    }
    if options.wants("redis") {
        servers::redis(options, table).await;
    }
}

/// `--child ROLE DIR KEYS`
async fn run_child(arguments: &[String]) {
    let [role, dir, keys] = arguments else { panic!("--child ROLE DIR KEYS") };
    let (dir, keys) = (Path::new(dir), keys.parse().unwrap());
    match role.as_str() {
        "write" => write_volume::run_child(dir, keys).await,
        _ => scale::run_child(role, dir, keys).await,
    }
}
