//! The measurements.

use ichido_bench::load::Load;
use ichido_bench::median::{median, ratio};
use ichido_bench::options::Options;
use ichido_bench::processes::{Process, Settings, scratch, sync_ms, time_to_first_response};
use ichido_bench::rounds::{Contender, Series, Workload, in_turn};
use ichido_bench::table::Table;

use crate::ledger_alone;

const QUIET: Settings<'_> = Settings { log_level: Some("warn"), optional_key: false, no_history: false };

pub(crate) fn file(dir: &tempfile::TempDir) -> String {
    format!("file:{}", dir.path().join("ledger").display())
}

fn rate(series: &Series) -> String {
    format!("{:.0}/s, {:.0} µs CPU", median(series.rates.clone()), median(series.cpu_us.clone()))
}

/// Adds the rates, and the gateway's processor time divided by the upstream's: the most stable figure on a busy
/// machine.
pub(crate) fn note(table: &mut Table, what: &str, name: &str, series: &Series) {
    table.note(format!("{what}: {name}"), rate(series));
    if !series.cpu_of_service.is_empty() {
        let cpu = median(series.cpu_of_service.clone());
        table.note(format!("{what}: CPU of {name} / of the service"), format!("{cpu:.2}"));
    }
}

/// First-time keyed requests, durable on disk, compared with the bare proxy.
pub(crate) fn first(options: &Options, table: &mut Table) {
    let (dir, quiet_dir, log_dir) = (scratch(), scratch(), scratch());
    let service = Process::service();
    let bare = Process::proxy(&service);
    let limit = Process::proxy_with_log(&service, log_dir.path());
    let gateway = Process::gateway(&service, &file(&dir), &Settings::default());
    let quiet = Process::gateway(&service, &file(&quiet_dir), &QUIET);
    for connections in [64, 256] {
        let what = format!("first time, file, {connections}");
        let contenders =
            [&bare, &limit, &gateway, &quiet].map(|process| Contender { process, service: Some(&service) });
        let [theirs, limits, ours, quiets] = in_turn(options, &Load::New, connections, contenders);
        note(table, &what, "bare proxy", &theirs);
        note(table, &what, "bare proxy with two synced writes", &limits);
        note(table, &what, "gateway", &ours);
        table.at_least(format!("{what}: gateway / bare proxy"), ratio(&ours.rates, &theirs.rates), "", 0.55);
        let limit = ratio(&limits.rates, &theirs.rates);
        table.note(format!("{what}: bare proxy with two synced writes / bare"), format!("{limit:.2}"));
        let of_limit = ratio(&ours.rates, &limits.rates);
        table.at_least(format!("{what}: gateway / bare with two synced writes"), of_limit, "", 0.85);
        let quiet = ratio(&quiets.rates, &theirs.rates);
        table.note(format!("{what}: gateway with LOG_LEVEL=warn"), format!("{quiet:.2}"));
    }
}

/// The p99 of first-time keyed requests, compared with the bare proxy that writes and syncs as often.
pub(crate) fn latency(options: &Options, table: &mut Table) {
    let (dir, log_dir) = (scratch(), scratch());
    let service = Process::service();
    let limit = Process::proxy_with_log(&service, log_dir.path());
    let gateway = Process::gateway(&service, &file(&dir), &Settings::default());
    for connections in [16, 64] {
        let what = format!("first time, file, {connections}");
        let contenders = [&limit, &gateway].map(|process| Contender { process, service: None });
        let [limits, ours] = in_turn(options, &Load::New, connections, contenders);
        for (name, series) in [("bare proxy with two synced writes", &limits), ("gateway", &ours)] {
            let (p50, p99) = (median(series.medians_ms.clone()), median(series.p99s_ms.clone()));
            table.note(format!("{what}: p50, p99, {name}"), format!("{p50:.2}, {p99:.2} ms"));
        }
        let of_limit = ratio(&ours.p99s_ms, &limits.p99s_ms);
        table.at_most(format!("{what}: p99, gateway / bare with two synced writes"), of_limit, "", 2.0);
    }
}

/// The latency that a first-time request adds for a single caller, compared with the time that the disk takes to
/// sync.
pub(crate) fn one(options: &Options, table: &mut Table) {
    let dir = scratch();
    let service = Process::service();
    let bare = Process::proxy(&service);
    let gateway = Process::gateway(&service, &file(&dir), &Settings::default());
    let (mut theirs, mut ours, mut over, mut syncs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let their = Load::New.send(&bare, 1, options.time).median_ms;
        let before = sync_ms(dir.path());
        let our = Load::New.send(&gateway, 1, options.time).median_ms;
        let sync = f64::midpoint(before, sync_ms(dir.path()));
        theirs.push(their);
        ours.push(our);
        syncs.push(sync);
        over.push(our - their - 2.0 * sync);
    }
    table.note("one connection: median, bare proxy", format!("{:.2} ms", median(theirs)));
    table.note("one connection: median, gateway on file", format!("{:.2} ms", median(ours)));
    table.note("one connection: write and fdatasync, median", format!("{:.2} ms", median(syncs)));
    table.at_most("one connection: added beyond two fdatasyncs", median(over), " ms", 0.15);
}

/// First-time keyed requests with the history, compared with none.
pub(crate) fn history(options: &Options, table: &mut Table) {
    let (dir, other_dir) = (scratch(), scratch());
    let service = Process::service();
    let recording = Process::gateway(&service, &file(&dir), &Settings::default());
    let settings = Settings { no_history: true, ..Settings::default() };
    let without = Process::gateway(&service, &file(&other_dir), &settings);
    // The difference is smaller than the noise of one round.
    let mut options = options.clone();
    options.rounds *= 3;
    let contenders = [&without, &recording].map(|process| Contender { process, service: Some(&service) });
    let [theirs, ours] = in_turn(&options, &Load::New, 64, contenders);
    note(table, "history, 64", "gateway without it", &theirs);
    note(table, "history, 64", "gateway", &ours);
    table.at_least("history, 64: gateway with / without", ratio(&ours.rates, &theirs.rates), "", 0.97);
    let cpu = ratio(&ours.cpu_us, &theirs.cpu_us);
    table.note("history, 64: CPU per request, with / without", format!("{cpu:.3}"));
}

/// First-time keyed requests on Redis.
pub(crate) fn redis(options: &Options, table: &mut Table) {
    on_server(options, table, "Redis", "ICHIDO_BENCH_REDIS_URL", 0.45);
}

/// First-time keyed requests on PostgreSQL.
pub(crate) fn postgres(options: &Options, table: &mut Table) {
    on_server(options, table, "PostgreSQL", "ICHIDO_BENCH_POSTGRES_URL", 0.25);
}

/// First-time keyed requests on a server ledger, compared with the bare proxy.
fn on_server(options: &Options, table: &mut Table, name: &str, variable: &str, target: f64) {
    let Ok(url) = std::env::var(variable) else {
        table.note(format!("first time, {name}"), format!("not measured: {variable} is not set"));
        return;
    };
    let service = Process::service();
    let bare = Process::proxy(&service);
    let gateway = Process::gateway(&service, &url, &Settings::default());
    let what = format!("first time, {name}, 64");
    let contenders = [&bare, &gateway].map(|process| Contender { process, service: Some(&service) });
    let [theirs, ours] = in_turn(options, &Load::New, 64, contenders);
    let alone = (0..options.rounds).map(|_| ledger_alone::rate(&url, 64, options.time));
    let alone = median(alone.collect());
    note(table, &what, "bare proxy", &theirs);
    note(table, &what, "gateway", &ours);
    table.at_least(format!("{what}: gateway / bare proxy"), ratio(&ours.rates, &theirs.rates), "", target);
    let bound = alone / median(theirs.rates);
    table.note(format!("{what}: the ledger without HTTP / bare proxy"), format!("{alone:.0}/s = {bound:.2}"));
}

/// Replays of one key, compared with nginx, which asks the upstream each time.
pub(crate) fn replay(options: &Options, table: &mut Table) {
    let dir = scratch();
    let service = Process::service();
    let nginx = Process::nginx(&service);
    let gateway = Process::gateway(&service, &file(&dir), &Settings::default());
    let quiet_dir = scratch();
    let quiet = Process::gateway(&service, &file(&quiet_dir), &QUIET);
    let responder = Process::role(&["axum"]);
    for process in [&gateway, &quiet] {
        Load::Same.send(process, 1, options.time);
    }
    let contenders =
        [&nginx, &gateway, &quiet, &responder].map(|process| Contender { process, service: None });
    let [theirs, ours, quiets, bound] = in_turn(options, &Load::Same, 64, contenders);
    table.note("replay, 64: nginx proxying", format!("{:.0}/s", median(theirs.rates.clone())));
    note(table, "replay, 64", "gateway", &ours);
    table.at_least("replay, 64: gateway / nginx proxying", ratio(&ours.rates, &theirs.rates), "", 1.6);
    let quiet = ratio(&quiets.rates, &theirs.rates);
    table.note("replay, 64: gateway with LOG_LEVEL=warn", format!("{quiet:.2}"));
    let bound = ratio(&bound.rates, &theirs.rates);
    table.note("replay, 64: an axum service that only responds / nginx proxying", format!("{bound:.2}"));
}

/// Requests without a key, compared with the bare proxy.
pub(crate) fn pass(options: &Options, table: &mut Table) {
    let dir = scratch();
    let service = Process::service();
    let bare = Process::proxy(&service);
    let settings = Settings { optional_key: true, ..Settings::default() };
    let gateway = Process::gateway(&service, &file(&dir), &settings);
    let quiet_dir = scratch();
    let quiet =
        Process::gateway(&service, &file(&quiet_dir), &Settings { log_level: QUIET.log_level, ..settings });
    for (name, what) in [("GET", Load::Get), ("POST", Load::Plain)] {
        let contenders =
            [&bare, &gateway, &quiet].map(|process| Contender { process, service: Some(&service) });
        let [theirs, ours, quiets] = in_turn(options, &what, 64, contenders);
        let what = format!("unkeyed {name}, 64");
        note(table, &what, "bare proxy", &theirs);
        note(table, &what, "gateway", &ours);
        table.at_least(format!("{what}: gateway / bare proxy"), ratio(&ours.rates, &theirs.rates), "", 0.97);
        let cpu = ratio(&ours.cpu_us, &theirs.cpu_us);
        table.note(format!("{what}: CPU per request, gateway / bare proxy"), format!("{cpu:.2}"));
        let quiet = ratio(&quiets.rates, &theirs.rates);
        table.note(format!("{what}: gateway with LOG_LEVEL=warn"), format!("{quiet:.2}"));
    }
}

/// The layer inside a service, on a memory ledger, compared with the same service without it.
pub(crate) fn layer(options: &Options, table: &mut Table) {
    let without = Process::role(&["axum"]);
    let mut rounds = (Vec::new(), Vec::new(), Vec::new());
    let one = options.once();
    for _ in 0..options.rounds {
        // The capacity of a memory ledger is limited, so each round has its own.
        let with = Process::role(&["axum-layer"]);
        let contenders = [&without, &with].map(|process| Contender { process, service: None });
        let [theirs, ours] = in_turn(&one, &Load::New, 64, contenders);
        rounds.0.push(ratio(&ours.rates, &theirs.rates));
        rounds.1.extend(ours.rates);
        rounds.2.push(ratio(&ours.cpu_us, &theirs.cpu_us));
    }
    table.note("layer in axum, memory, 64", format!("{:.0}/s", median(rounds.1)));
    table.note("layer in axum: CPU per request, with / without", format!("{:.2}", median(rounds.2)));
    table.at_least("layer in axum, memory, 64: with / without", median(rounds.0), "", 0.75);
}

/// Measures the time from process start to the first response.
pub(crate) fn start(options: &Options, table: &mut Table) {
    let dir = scratch();
    let service = Process::service();
    // The first start creates the store.
    time_to_first_response(&service, &file(&dir));
    let took =
        (0..options.rounds * 3).map(|_| time_to_first_response(&service, &file(&dir)).as_secs_f64() * 1000.0);
    table.at_most("start to first response", median(took.collect()), " ms", 25.0);
}
