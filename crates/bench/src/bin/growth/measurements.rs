//! The measurements.

use std::thread;
use std::time::Duration;

use ichido_bench::load::{Load, Run};
use ichido_bench::median::median;
use ichido_bench::options::Options;
use ichido_bench::processes::{Process, Settings, scratch};
use ichido_bench::rounds::{Contender, Series, Workload, in_turn_all};
use ichido_bench::table::Table;
use ichido_bench::wrk::fresh_name;

use crate::fill::fill;
use crate::plot::Plot;

const CONNECTIONS: u32 = 64;
const CPU: &str = "processor time of the gateway per request, µs";
const SERVERS: [(&str, &str); 2] =
    [("PostgreSQL", "ICHIDO_BENCH_POSTGRES_URL"), ("Redis", "ICHIDO_BENCH_REDIS_URL")];

fn file(dir: &tempfile::TempDir) -> String {
    format!("file:{}", dir.path().join("ledger").display())
}

/// Adds a figure to the table, and returns the processor time.
fn note(table: &mut Table, what: String, series: &Series) -> f64 {
    let cpu = median(series.cpu_us.clone());
    let (rate, p99) = (median(series.rates.clone()), median(series.p99s_ms.clone()));
    table.note(what, format!("{cpu:.1} µs CPU, {rate:.0}/s, p99 {p99:.1} ms"));
    cpu
}

fn one(options: &Options, workload: &impl Workload, process: &Process) -> Series {
    let contender = Contender { process, service: None };
    in_turn_all(options, workload, CONNECTIONS, &[contender]).remove(0)
}

/// A file ledger that grows. The requests that are measured add keys as well, so each step says how many keys there
/// are at least.
pub(crate) fn keys(options: &Options, table: &mut Table) {
    let dir = scratch();
    let service = Process::service();
    let most = if options.many < 1_000_000 { 1_000_000 } else { 10_000_000 };
    let steps =
        std::iter::successors(Some(10_000_u64), |keys| Some(keys * 10)).take_while(|keys| *keys <= most);
    let (mut filled, mut added) = (0, 0);
    let (mut new, mut replayed) = (Vec::new(), Vec::new());
    for keys in steps {
        let until = filled + keys.saturating_sub(filled + added);
        fill(&file(&dir), filled..until);
        filled = until;
        let gateway = Process::gateway(&service, &file(&dir), &Settings::default());
        let Run { name, requests: first } = first_run(&gateway);
        let series = one(options, &Load::New, &gateway);
        added += first + series.requests;
        new.push((keys as f64, note(table, format!("{keys} keys: first time"), &series)));
        let known = Load::Known(Run { name, requests: first });
        let series = one(options, &known, &gateway);
        replayed.push((keys as f64, note(table, format!("{keys} keys: replay of random keys"), &series)));
        table.note(format!("{keys} keys: memory of the gateway"), format!("{:.0} MB", gateway.resident_mb()));
    }
    let plot = Plot { title: "Keys in a file ledger", x: "keys before the measurement", y: CPU };
    plot.write("growth-keys", &[("first time", new), ("replay", replayed)]);
}

/// Sends requests until there are responses: a gateway accepts connections while it opens a large ledger.
fn first_run(gateway: &Process) -> Run {
    loop {
        let name = fresh_name();
        let requests = Load::New.send_named(&name, gateway, CONNECTIONS, Duration::from_secs(1)).requests;
        if requests > 0 {
            return Run { name, requests };
        }
    }
}

/// Several gateways that share a server ledger, and 64 connections.
pub(crate) fn gateways(options: &Options, table: &mut Table) {
    let mut lines = Vec::new();
    for (name, variable) in SERVERS {
        let Some(url) = std::env::var(variable).ok().filter(|url| !url.is_empty()) else {
            table.note(format!("gateways on {name}"), format!("not measured: {variable} is not set"));
            continue;
        };
        let service = Process::service();
        let mut points = Vec::new();
        for count in [1_u32, 2, 4, 8] {
            let gateways: Vec<_> =
                (0..count).map(|_| Process::gateway(&service, &url, &Settings::default())).collect();
            let mut series = Series::default();
            for _ in 0..options.rounds {
                round(&gateways, options.time, &mut series);
            }
            points.push((f64::from(count), note(table, format!("{count} gateways on one {name}"), &series)));
        }
        lines.push((name, points));
    }
    let plot = Plot { title: "Gateways that share a ledger, 64 connections together", x: "gateways", y: CPU };
    plot.write("growth-gateways", &lines);
}

/// Loads all gateways at the same time. The processor time is that of all of them, per request.
fn round(gateways: &[Process], time: Duration, series: &mut Series) {
    let before: f64 = gateways.iter().map(Process::cpu).sum();
    let connections = CONNECTIONS / u32::try_from(gateways.len()).unwrap();
    let results: Vec<_> = thread::scope(|scope| {
        let loads: Vec<_> = gateways
            .iter()
            .map(|gateway| scope.spawn(move || Load::New.send(gateway, connections, time)))
            .collect();
        loads.into_iter().map(|load| load.join().unwrap()).collect()
    });
    let used = gateways.iter().map(Process::cpu).sum::<f64>() - before;
    let requests: u64 = results.iter().map(|result| result.requests).sum();
    series.cpu_us.push(used * 1e6 / requests as f64);
    series.rates.push(results.iter().map(|result| result.rate).sum());
    series.p99s_ms.push(results.iter().map(|result| result.p99_ms).fold(0.0, f64::max));
}

/// Responses of different size on a file ledger.
pub(crate) fn responses(options: &Options, table: &mut Table) {
    let (mut new, mut replayed) = (Vec::new(), Vec::new());
    for (name, bytes) in [("1 KB", 1_000), ("100 KB", 100_000), ("1 MB", 1_000_000)] {
        let dir = scratch();
        let service = Process::service_of(bytes);
        let gateway = Process::gateway(&service, &file(&dir), &Settings::default());
        let series = one(options, &Load::New, &gateway);
        new.push((bytes as f64, note(table, format!("responses of {name}: first time"), &series)));
        Load::Same.send(&gateway, 1, Duration::from_secs(1));
        let series = one(options, &Load::Same, &gateway);
        replayed.push((bytes as f64, note(table, format!("responses of {name}: replay"), &series)));
    }
    let plot = Plot { title: "Size of the response, on a file ledger", x: "bytes of the response", y: CPU };
    plot.write("growth-responses", &[("first time", new), ("replay", replayed)]);
}

/// Callers with credentials of their own, on a file ledger.
pub(crate) fn tenants(options: &Options, table: &mut Table) {
    let dir = scratch();
    let service = Process::service();
    let gateway = Process::gateway(&service, &file(&dir), &Settings::default());
    Load::New.send(&gateway, CONNECTIONS, Duration::from_secs(1));
    let mut points = Vec::new();
    for tenants in [10, 1_000, 100_000] {
        let series = one(options, &Load::Tenants(tenants), &gateway);
        points.push((tenants as f64, note(table, format!("{tenants} tenants: first time"), &series)));
    }
    let plot =
        Plot { title: "Tenants, on a file ledger", x: "tenants, each with its own credentials", y: CPU };
    plot.write("growth-tenants", &[("first time", points)]);
}
