//! The figures.

use ichido_bench::median::{median, ratio};
use ichido_bench::options::Plan;
use ichido_bench::processes::{Part, scratch};
use ichido_bench::rounds::{Contender, Sends, Series, in_turn};
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

/// Single checks of events, beside a route that parses and replies.
fn singles(plan: &Plan, table: &mut Table, what: &str, load: &Load, target: Option<f64>) {
    let (dir, quiet_dir, log_dir) = (scratch(), scratch(), scratch());
    let bare = Part::role(&["parse"]);
    let limit = Part::role(&["parse", &log_dir.path().join("log").display().to_string()]);
    let claims = Part::claims(&file(&dir), None);
    let quiet = Part::claims(&file(&quiet_dir), Some("warn"));
    let parts = [&bare, &limit, &claims, &quiet].map(|part| Contender { part, service: None });
    let [theirs, limits, ours, quiets] = in_turn(plan, load, CONNECTIONS, parts);
    note(table, what, "parse and reply", &theirs);
    note(table, what, "parse, one synced write, reply", &limits);
    note(table, what, "claims", &ours);
    let rates = ratio(&ours.rates, &theirs.rates);
    match target {
        Some(target) => table.at_least(format!("{what}: claims / parse and reply"), rates, "", target),
        None => table.note(format!("{what}: claims / parse and reply"), format!("{rates:.2}")),
    }
    let limit = ratio(&limits.rates, &theirs.rates);
    table.note(format!("{what}: with one synced write / parse and reply"), format!("{limit:.2}"));
    let quiet = ratio(&quiets.rates, &theirs.rates);
    table.note(format!("{what}: claims with LOG_LEVEL=warn"), format!("{quiet:.2}"));
}

/// Events that are new, durable on the disk before they are answered.
pub(crate) fn new(plan: &Plan, table: &mut Table) {
    singles(plan, table, "new, file, 64", &Load::New { batch: 1 }, Some(0.7));
}

/// Events that were seen before.
pub(crate) fn repeat(plan: &Plan, table: &mut Table) {
    singles(plan, table, "repeats, file, 64", &Load::Same, None);
}

/// New events, a hundred in a call, beside single ones.
pub(crate) fn batch(plan: &Plan, table: &mut Table) {
    let (single_dir, batch_dir) = (scratch(), scratch());
    let single = Part::claims(&file(&single_dir), None);
    let batched = Part::claims(&file(&batch_dir), None);
    let (mut singles, mut batches) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        let mut one = || {
            singles.push(Load::New { batch: 1 }.send(&single, CONNECTIONS, plan.time).rate);
        };
        let mut many = || {
            let calls = Load::New { batch: BATCH }.send(&batched, CONNECTIONS, plan.time).rate;
            batches.push(calls * f64::from(BATCH));
        };
        match round % 2 {
            0 => (one(), many()),
            _ => (many(), one()),
        };
    }
    table.note("batch, file, 64: events in single calls", format!("{:.0}/s", median(singles.clone())));
    table.note("batch, file, 64: events in calls of 100", format!("{:.0}/s", median(batches.clone())));
    table.at_least("batch, file, 64: calls of 100 / single calls", ratio(&batches, &singles), "×", 10.0);
}

/// The same in memory: what the disk has no part in.
pub(crate) fn memory(plan: &Plan, table: &mut Table) {
    let bare = Part::role(&["parse"]);
    let (mut rates, mut ratios) = (Vec::new(), Vec::new());
    let one = plan.once();
    for _ in 0..plan.rounds {
        // A memory ledger has a bound, so each round has one of its own.
        let claims = Part::claims("memory:?bound=10000000", None);
        let parts = [&bare, &claims].map(|part| Contender { part, service: None });
        let [theirs, ours] = in_turn(&one, &Load::New { batch: 1 }, CONNECTIONS, parts);
        ratios.push(ratio(&ours.rates, &theirs.rates));
        rates.extend(ours.rates);
    }
    table.note("new, memory, 64: claims", format!("{:.0}/s", median(rates)));
    table.note("new, memory, 64: claims / parse and reply", format!("{:.2}", median(ratios)));
}
