//! The figures.

use ichido_bench::load::{Load, Run};
use ichido_bench::median::{median, ratio};
use ichido_bench::options::Plan;
use ichido_bench::processes::{Part, Settings, scratch, sync_ms, time_to_first_answer};
use ichido_bench::rounds::{Contender, Sends, Series, in_turn};
use ichido_bench::table::Table;
use ichido_bench::wrk::fresh_name;

const QUIET: Settings<'_> = Settings { log_level: Some("warn"), optional_key: false };

fn file(dir: &tempfile::TempDir) -> String {
    format!("file:{}", dir.path().join("ledger").display())
}

fn rate(series: &Series) -> String {
    format!("{:.0}/s, {:.0} µs CPU", median(series.rates.clone()), median(series.cpu_us.clone()))
}

/// The rates, and the processor time of the gateway by that of the service: the steadiest figure on a busy machine.
fn note(table: &mut Table, what: &str, name: &str, series: &Series) {
    table.note(format!("{what}: {name}"), rate(series));
    if !series.cpu_of_service.is_empty() {
        let cpu = median(series.cpu_of_service.clone());
        table.note(format!("{what}: CPU of {name} / of the service"), format!("{cpu:.2}"));
    }
}

/// First-time keyed requests, durable on the disk, beside the bare proxy.
pub(crate) fn first(plan: &Plan, table: &mut Table) {
    let (dir, quiet_dir, log_dir) = (scratch(), scratch(), scratch());
    let service = Part::service();
    let bare = Part::proxy(&service);
    let limit = Part::proxy_with_log(&service, log_dir.path());
    let gateway = Part::gateway(&service, &file(&dir), &Settings::default());
    let quiet = Part::gateway(&service, &file(&quiet_dir), &QUIET);
    for connections in [64, 256] {
        let what = format!("first time, file, {connections}");
        let parts = [&bare, &limit, &gateway, &quiet].map(|part| Contender { part, service: Some(&service) });
        let [theirs, limits, ours, quiets] = in_turn(plan, &Load::New, connections, parts);
        note(table, &what, "bare proxy", &theirs);
        note(table, &what, "bare proxy with two synced writes", &limits);
        note(table, &what, "gateway", &ours);
        table.at_least(format!("{what}: gateway / bare proxy"), ratio(&ours.rates, &theirs.rates), "", 0.55);
        let limit = ratio(&limits.rates, &theirs.rates);
        table.note(format!("{what}: bare proxy with two synced writes / bare"), format!("{limit:.2}"));
        let of_limit = ratio(&ours.rates, &limits.rates);
        table.note(format!("{what}: gateway / bare with two synced writes"), format!("{of_limit:.2}"));
        let quiet = ratio(&quiets.rates, &theirs.rates);
        table.note(format!("{what}: the same, LOG_LEVEL=warn"), format!("{quiet:.2}"));
    }
}

/// What a first-time request adds to the latency of a single caller, beside what the disk takes to sync.
pub(crate) fn one(plan: &Plan, table: &mut Table) {
    let dir = scratch();
    let service = Part::service();
    let bare = Part::proxy(&service);
    let gateway = Part::gateway(&service, &file(&dir), &Settings::default());
    let (mut theirs, mut ours, mut over, mut syncs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        let their = Load::New.send(&bare, 1, plan.time).median_ms;
        let before = sync_ms(dir.path());
        let our = Load::New.send(&gateway, 1, plan.time).median_ms;
        let sync = f64::midpoint(before, sync_ms(dir.path()));
        theirs.push(their);
        ours.push(our);
        syncs.push(sync);
        over.push(our - their - 2.0 * sync);
    }
    table.note("one connection: median, bare proxy", format!("{:.2} ms", median(theirs)));
    table.note("one connection: median, gateway on file", format!("{:.2} ms", median(ours)));
    table.note("one connection: write and fdatasync, median", format!("{:.2} ms", median(syncs)));
    table.at_most("one connection: added beyond two fdatasyncs", median(over), " ms", 0.2);
}

/// First-time keyed requests on Redis, beside the bare proxy.
pub(crate) fn redis(plan: &Plan, table: &mut Table) {
    let Ok(url) = std::env::var("ICHIDO_BENCH_REDIS_URL") else {
        table.note("first time, Redis", "not asked");
        return;
    };
    let service = Part::service();
    let bare = Part::proxy(&service);
    let gateway = Part::gateway(&service, &url, &Settings::default());
    let parts = [&bare, &gateway].map(|part| Contender { part, service: Some(&service) });
    let [theirs, ours] = in_turn(plan, &Load::New, 64, parts);
    note(table, "first time, Redis, 64", "gateway", &ours);
    table.at_least(
        "first time, Redis, 64: gateway / bare proxy",
        ratio(&ours.rates, &theirs.rates),
        "",
        0.35,
    );
}

/// Repeats of one key, beside nginx that asks the service each time.
pub(crate) fn replay(plan: &Plan, table: &mut Table) {
    let dir = scratch();
    let service = Part::service();
    let nginx = Part::nginx(&service);
    let gateway = Part::gateway(&service, &file(&dir), &Settings::default());
    let quiet_dir = scratch();
    let quiet = Part::gateway(&service, &file(&quiet_dir), &QUIET);
    for part in [&gateway, &quiet] {
        Load::Same.send(part, 1, plan.time);
    }
    let parts = [&nginx, &gateway, &quiet].map(|part| Contender { part, service: None });
    let [theirs, ours, quiets] = in_turn(plan, &Load::Same, 64, parts);
    table.note("replay, 64: nginx proxying", format!("{:.0}/s", median(theirs.rates.clone())));
    note(table, "replay, 64", "gateway", &ours);
    table.at_least("replay, 64: gateway / nginx proxying", ratio(&ours.rates, &theirs.rates), "", 1.4);
    let quiet = ratio(&quiets.rates, &theirs.rates);
    table.note("replay, 64: the same, LOG_LEVEL=warn", format!("{quiet:.2}"));
}

/// Requests without a key, beside the bare proxy.
pub(crate) fn pass(plan: &Plan, table: &mut Table) {
    let dir = scratch();
    let service = Part::service();
    let bare = Part::proxy(&service);
    let settings = Settings { optional_key: true, ..Settings::default() };
    let gateway = Part::gateway(&service, &file(&dir), &settings);
    for (name, what) in [("GET", Load::Get), ("POST", Load::Plain)] {
        let parts = [&bare, &gateway].map(|part| Contender { part, service: Some(&service) });
        let [theirs, ours] = in_turn(plan, &what, 64, parts);
        let what = format!("unkeyed {name}, 64");
        note(table, &what, "bare proxy", &theirs);
        note(table, &what, "gateway", &ours);
        table.at_least(format!("{what}: gateway / bare proxy"), ratio(&ours.rates, &theirs.rates), "", 0.95);
        let cpu = ratio(&ours.cpu_us, &theirs.cpu_us);
        table.note(format!("{what}: CPU per request, gateway / bare proxy"), format!("{cpu:.2}"));
    }
}

/// The layer inside a service, on memory, beside the same service without it.
pub(crate) fn layer(plan: &Plan, table: &mut Table) {
    let without = Part::role(&["axum"]);
    let mut rounds = (Vec::new(), Vec::new(), Vec::new());
    let one = plan.once();
    for _ in 0..plan.rounds {
        // A memory ledger has a bound, so each round has one of its own.
        let with = Part::role(&["axum-layer"]);
        let parts = [&without, &with].map(|part| Contender { part, service: None });
        let [theirs, ours] = in_turn(&one, &Load::New, 64, parts);
        rounds.0.push(ratio(&ours.rates, &theirs.rates));
        rounds.1.extend(ours.rates);
        rounds.2.push(ratio(&ours.cpu_us, &theirs.cpu_us));
    }
    table.note("layer in axum, memory, 64", format!("{:.0}/s", median(rounds.1)));
    table.note("layer in axum: CPU per request, with / without", format!("{:.2}", median(rounds.2)));
    table.at_least("layer in axum, memory, 64: with / without", median(rounds.0), "", 0.75);
}

/// From the start of the process to the first answer.
pub(crate) fn start(plan: &Plan, table: &mut Table) {
    let dir = scratch();
    let service = Part::service();
    // The first start makes the store.
    time_to_first_answer(&service, &file(&dir));
    let took =
        (0..plan.rounds * 3).map(|_| time_to_first_answer(&service, &file(&dir)).as_secs_f64() * 1000.0);
    table.at_most("start to first answer", median(took.collect()), " ms", 25.0);
}

/// What the gateway holds after many requests, and replays from the disk after it was started again.
pub(crate) fn memory(plan: &Plan, table: &mut Table) {
    let dir = scratch();
    let service = Part::service();
    let gateway = Part::gateway(&service, &file(&dir), &Settings::default());
    let fresh = gateway.resident_mb();
    let (mut sent, mut longest) = (0, None);
    while sent < plan.many {
        let name = fresh_name();
        let requests = Load::New.send_named(&name, &gateway, 256, plan.time * 10).requests;
        sent += requests;
        longest = Some(Run { name, requests });
    }
    table.note("memory before the first request", format!("{fresh:.0} MB"));
    table.at_most(format!("memory after {sent} keyed requests"), gateway.resident_mb(), " MB", 80.0);
    drop(gateway);
    let gateway = Part::gateway(&service, &file(&dir), &Settings::default());
    let known = Load::Known(longest.unwrap());
    let parts = [Contender { part: &gateway, service: None }];
    let one = plan.once();
    let [seen] = in_turn(&one, &known, 64, parts);
    note(table, "replay of random keys after a restart, 64", "gateway", &seen);
}
