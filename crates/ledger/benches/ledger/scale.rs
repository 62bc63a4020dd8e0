//! A ledger that holds many keys: latency, memory, disk space, pauses while it grows, and opening after a crash.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ichido_core::Claim;
use tokio::time::Instant;

use crate::Options;
use crate::child::{self, Child};
use crate::fixture::{Store, open, request, scratch};
use crate::load::{Measurement, Until};
use crate::outcomes::Outcomes;
use crate::process::{directory_mb, peak_resident_mb, resident_mb};
use crate::rounds::{median, ratio};
use crate::table::Table;

const FEW: u64 = 10_000;
const MILLION: u64 = 1_000_000;
/// Calls of one measurement. All together must not make a small ledger a large one.
const CALLS: u64 = 50_000;
const OUTCOME_BYTES: usize = 200;

/// The latency of a claim when many are stored, and what storing them takes.
pub(crate) async fn scale(options: &Options, table: &mut Table) {
    let many = if options.quick { MILLION } else { 10 * MILLION };
    let dir = scratch();
    let mut large = Child::start("scale", dir.path(), many);
    let filled = Filled::of(&mut large).await;
    let (mut fews, mut manys, mut few_mb) = (Vec::new(), Vec::new(), 0.0);
    for _ in 0..options.rounds + 2 {
        let small_dir = scratch();
        let mut small = Child::start("scale", small_dir.path(), FEW);
        few_mb = Filled::of(&mut small).await.resident_mb;
        fews.push(small.ask::<1>().await[0]);
        small.kill().await;
        manys.push(large.ask::<1>().await[0]);
    }
    large.kill().await;
    for (keys, p99s) in [(FEW, &fews), (many, &manys)] {
        table.note(format!("p99 of a claim, 64 callers, {keys} keys"), format!("{:.0} µs", median(p99s)));
    }
    table.at_most(format!("p99 at {many} keys / p99 at {FEW}"), ratio(&manys, &fews), "", 1.3);
    filled.note(table, many, few_mb);
    let raw_keys = many.min(MILLION);
    let [raw_us] = Child::start("raw-log", scratch().path(), raw_keys).figures().await;
    table.note(
        format!("longest claim of a probing caller, raw log, {raw_keys} keys"),
        format!("{:.1} ms", raw_us / 1e3),
    );
    let seconds = time_to_open(dir.path(), many).await;
    let limit = if many > MILLION { 1.0 } else { 0.15 };
    table.at_most(format!("opening after kill -9 at {many} keys"), seconds, " s", limit);
}

/// What filling a ledger took.
struct Filled {
    rate: f64,
    longest_us: f64,
    resident_mb: f64,
    peak_mb: f64,
    directory_mb: f64,
}

impl Filled {
    async fn of(child: &mut Child) -> Self {
        let [rate, longest_us, resident_mb, peak_mb, directory_mb] = child.figures().await;
        Self { rate, longest_us, resident_mb, peak_mb, directory_mb }
    }

    /// `few_mb` is the memory of a ledger with few keys.
    fn note(&self, table: &mut Table, keys: u64, few_mb: f64) {
        table.note(format!("filling to {keys} keys, 256 callers"), format!("{:.0} keys/s", self.rate));
        let per_key = (self.resident_mb - few_mb) * 1024.0 * 1024.0 / (keys - FEW) as f64;
        let mb = few_mb + per_key * (10 * MILLION - FEW) as f64 / (1024.0 * 1024.0);
        let how = if keys < 10 * MILLION { format!(", projected from {keys}") } else { String::new() };
        table.note(
            format!("memory at {keys} keys (peak; per key)"),
            format!("{:.0} MB ({:.0}; {per_key:.0} B)", self.resident_mb, self.peak_mb),
        );
        table.at_most(format!("memory at {} keys{how}", 10 * MILLION), mb, " MB", 450.0);
        table.note(
            format!("directory after {keys} claims and completions"),
            format!("{:.0} MB ({:.0} B/key)", self.directory_mb, self.directory_mb * 1e6 / keys as f64),
        );
        let what = format!("longest claim of a probing caller while filling to {keys}");
        table.at_most(what, self.longest_us / 1e3, " ms", 20.0);
    }
}

/// Opening after kill -9. The time may depend on what was written since the last checkpoint, so the fills end at
/// different moments.
pub(crate) async fn reopen(options: &Options, table: &mut Table) {
    let (keys, step, fills) = if options.quick { (MILLION / 10, 0, 1) } else { (MILLION, 80_000, 4) };
    let mut worst: f64 = 0.0;
    for fill in 0..fills {
        let keys = keys + fill * step;
        let dir = scratch();
        let mut filling = Child::start("fill", dir.path(), keys);
        filling.figures::<1>().await;
        filling.kill().await;
        let seconds = time_to_open(dir.path(), keys).await;
        table.note(format!("opening after kill -9 at {keys} keys"), format!("{seconds:.3} s"));
        worst = worst.max(seconds);
    }
    table.at_most(format!("opening after kill -9 from {keys} keys on, worst"), worst, " s", 0.15);
}

/// The files are in the page cache.
async fn time_to_open(dir: &Path, keys: u64) -> f64 {
    let [seconds] = Child::start("open", dir, keys).figures().await;
    seconds
}

/// What a child does.
pub(crate) async fn run_child(role: &str, dir: &Path, keys: u64) {
    match role {
        "open" => open_and_check(dir, keys).await,
        "raw-log" => {
            let (_, probe) = fill(&Store::raw_log(dir), keys).await;
            child::answer(&[probe.latencies.longest_us()]);
        }
        "fill" => {
            fill(&Store::ledger(dir), keys).await;
            // The parent kills it now: the ledger must not be closed.
            child::answer(&[0.0]);
            std::future::pending::<()>().await;
        }
        "scale" => fill_and_measure(dir, keys).await,
        _ => panic!("unknown role {role}"),
    }
}

async fn open_and_check(dir: &Path, keys: u64) {
    let start = Instant::now();
    let ledger = open(dir);
    let seconds = start.elapsed().as_secs_f64();
    let repeat = ledger.claim(&request("fill", keys - 1)).await.unwrap().claim;
    assert!(!matches!(repeat, Claim::Granted(_)), "{repeat:?}");
    child::answer(&[seconds]);
    ledger.close().await.unwrap();
}

/// Answers with the figures of [`Filled`], then with a p99 each time it is asked.
async fn fill_and_measure(dir: &Path, keys: u64) {
    let store = Store::ledger(dir);
    let (filled, probe) = fill(&store, keys).await;
    // Work that the fill left behind is not the work of the claims that are measured next.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let longest = probe.latencies.longest_us();
    child::answer(&[filled.rate(), longest, resident_mb(), peak_resident_mb(), directory_mb(dir)]);
    let outcomes = Outcomes::of(OUTCOME_BYTES);
    for round in 0.. {
        child::wait_for_question().await;
        let next = move |number| request("more", round * CALLS + number);
        let seen = store.run_keyed(64, Until::Calls(CALLS), &outcomes, next).await;
        child::answer(&[seen.p99_us()]);
    }
}

/// Claims and completes keys, while one more caller claims and completes others. Returns what each saw.
async fn fill(store: &Store, keys: u64) -> (Measurement, Measurement) {
    let (filled, outcomes) = (Arc::new(AtomicBool::new(false)), Outcomes::of(OUTCOME_BYTES));
    let probing = tokio::spawn({
        let (store, until, outcomes) = (store.clone(), Until::Stopped(filled.clone()), outcomes.clone());
        async move { store.run_keyed(1, until, &outcomes, |number| request("probe", number)).await }
    });
    let seen = store.run_keyed(256, Until::Calls(keys), &outcomes, |number| request("fill", number)).await;
    filled.store(true, Ordering::Relaxed);
    (seen, probing.await.unwrap())
}
