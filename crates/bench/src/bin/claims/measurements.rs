//! The measurements.

use ichido_bench::median::{median, ratio};
use ichido_bench::options::Options;
use ichido_bench::processes::{Process, scratch};
use ichido_bench::rounds::{Contender, Series, Workload, in_turn};
use ichido_bench::table::Table;

use crate::load::Load;

const CONNECTIONS: u32 = 64;
const BATCH: u32 = 100;

fn file(dir: &tempfile::TempDir) -> String {
    format!("file:{}", dir.path().join("ledger").display())
}

fn note(table: &mut Table, what: &str, name: &str, series: &Series) {
    let (rate, cpu) = (median(series.rates.clone()), median(series.cpu_us.clone()));
    table.note(format!("{what}: {name}"), format!("{rate:.0}/s, {cpu:.0} µs CPU"));
}

/// Checks single events, compared with a route that parses and replies. Returns the rate relative to that of the same
/// route with one synced write.
fn singles(options: &Options, table: &mut Table, what: &str, load: &Load) -> f64 {
    let (dir, quiet_dir, log_dir) = (scratch(), scratch(), scratch());
    let bare = Process::role(&["parse"]);
    let limit = Process::role(&["parse", &log_dir.path().join("log").display().to_string()]);
    let claims = Process::claims(&file(&dir), None);
    let quiet = Process::claims(&file(&quiet_dir), Some("warn"));
    let contenders = [&bare, &limit, &claims, &quiet].map(|process| Contender { process, service: None });
    let [theirs, limits, ours, quiets] = in_turn(options, load, CONNECTIONS, contenders);
    note(table, what, "parse and reply", &theirs);
    note(table, what, "parse, one synced write, reply", &limits);
    note(table, what, "claims", &ours);
    let rates = ratio(&ours.rates, &theirs.rates);
    table.note(format!("{what}: claims / parse and reply"), format!("{rates:.2}"));
    let limit = ratio(&limits.rates, &theirs.rates);
    table.note(format!("{what}: with one synced write / parse and reply"), format!("{limit:.2}"));
    let quiet = ratio(&quiets.rates, &theirs.rates);
    table.note(format!("{what}: claims with LOG_LEVEL=warn"), format!("{quiet:.2}"));
    ratio(&ours.rates, &limits.rates)
}

/// New events, durable on disk before the response.
pub(crate) fn new(options: &Options, table: &mut Table) {
    let of_limit = singles(options, table, "new, file, 64", &Load::New { batch: 1 });
    table.at_least("new, file, 64: claims / parse, one synced write, reply", of_limit, "", 0.9);
}

/// Events that were seen before.
pub(crate) fn repeat(options: &Options, table: &mut Table) {
    singles(options, table, "duplicates, file, 64", &Load::Same);
}

/// New events, a hundred per call, compared with single ones.
pub(crate) fn batch(options: &Options, table: &mut Table) {
    let (single_dir, batch_dir) = (scratch(), scratch());
    let single = Process::claims(&file(&single_dir), None);
    let batched = Process::claims(&file(&batch_dir), None);
    let (mut singles, mut batches) = (Vec::new(), Vec::new());
    for round in 0..options.rounds {
        let mut one = || {
            singles.push(Load::New { batch: 1 }.send(&single, CONNECTIONS, options.time).rate);
        };
        let mut many = || {
            let calls = Load::New { batch: BATCH }.send(&batched, CONNECTIONS, options.time).rate;
            batches.push(calls * f64::from(BATCH));
        };
        match round % 2 {
            0 => (one(), many()),
            _ => (many(), one()),
        };
    }
    table.note("batch, file, 64: events in single calls", format!("{:.0}/s", median(singles.clone())));
    table.note("batch, file, 64: events in calls of 100", format!("{:.0}/s", median(batches.clone())));
    table.at_least("batch, file, 64: calls of 100 / single calls", ratio(&batches, &singles), "×", 8.0);
}

/// New events in memory, without the influence of the disk.
pub(crate) fn memory(options: &Options, table: &mut Table) {
    let bare = Process::role(&["parse"]);
    let (mut rates, mut ratios) = (Vec::new(), Vec::new());
    let one = options.once();
    for _ in 0..options.rounds {
        // The capacity of a memory ledger is limited, so each round has its own.
        let claims = Process::claims("memory:?bound=10000000", None);
        let contenders = [&bare, &claims].map(|process| Contender { process, service: None });
        let [theirs, ours] = in_turn(&one, &Load::New { batch: 1 }, CONNECTIONS, contenders);
        ratios.push(ratio(&ours.rates, &theirs.rates));
        rates.extend(ours.rates);
    }
    table.note("new, memory, 64: claims", format!("{:.0}/s", median(rates)));
    table.note("new, memory, 64: claims / parse and reply", format!("{:.2}", median(ratios)));
}
