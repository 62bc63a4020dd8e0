//! Measures how fast the meter counts.

use ichido_bench::median::median;
use ichido_bench::options::Options;
use ichido_bench::processes::{Process, scratch};
use ichido_bench::table::Table;
use ichido_bench::wrk::{fresh_name, wrk};

use crate::export::SERVER;

const CONNECTIONS: u32 = 64;
const BATCH: u32 = 100;

/// Sends new records over HTTP, in batches of a hundred, each durable before the response.
pub(crate) fn ingest(options: &Options, table: &mut Table) {
    let dir = scratch();
    let file = format!("sqlite:{}", dir.path().join("meter.db").display());
    one(options, table, "SQLite", &file);
    match std::env::var(SERVER).ok().filter(|url| !url.is_empty()) {
        Some(url) => one(options, table, "PostgreSQL", &url),
        None => table.note("meter, 64: PostgreSQL", format!("not measured: {SERVER} is not set")),
    }
}

fn one(options: &Options, table: &mut Table, name: &str, db: &str) {
    let meter = Process::meter(db);
    let url = format!("http://{}/v1/usage", meter.address);
    let (mut rates, mut medians, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let (run, before) = (fresh_name(), meter.cpu());
        let seen =
            wrk(include_str!("meter.lua"), &[&run, &BATCH.to_string()], &url, CONNECTIONS, options.time);
        let records = seen.requests as f64 * f64::from(BATCH);
        rates.push(seen.rate * f64::from(BATCH));
        medians.push(seen.median_ms);
        cpu.push((meter.cpu() - before) * 1e6 / records);
    }
    table.note(
        format!("meter, 64: {name}, batches of 100"),
        format!(
            "{:.0} records/s, median {:.1} ms, {:.1} µs CPU a record, {:.0} MB",
            median(rates),
            median(medians),
            median(cpu),
            meter.resident_mb()
        ),
    );
}
