//! Ledgers on a server, next to what the server does without us.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ichido_ledger::postgres::Postgres;
use ichido_ledger::redis::Redis;
use ichido_ledger::{Backend, Ledger, Settings};

use crate::Options;
use crate::fixture::Store;
use crate::load::{Measurement, Until};
use crate::outcomes::Outcomes;
use crate::redis_peer;
use crate::rounds::{median, ratio};
use crate::table::Table;

const CALLERS: u64 = 256;
/// As many as a ledger has by default.
const CONNECTIONS: &str = "16";
const POSTGRES_URL: &str = "ICHIDO_BENCH_POSTGRES_URL";
const REDIS_URL: &str = "ICHIDO_BENCH_REDIS_URL";

/// Rows of one transaction, for the most that the server can do.
const ROWS: u32 = 128;

/// Inserts rows like those of claims.
const INSERT: &str = "
INSERT INTO ichido.claims (
    index, tenant, route, key, fingerprint, nonce, token, attempt, holder, lease_ms, retention_ms, metadata, renewals, state,
    claimed_at, renewed_at, doubt_at, over_at, version
) SELECT
    sha256(gen_random_uuid()::text::bytea), '', '', gen_random_uuid()::text::bytea, sha256(''), decode(md5(''), 'hex'),
    decode(md5(''), 'hex'), 1, 'process', 30000, 86400000, '{}', 0, 'running',
    1800000000000, 1800000000000, 1800000030000, 1800086430000, 1
FROM generate_series(1, :rows);
";

fn time(options: &Options) -> Duration {
    Duration::from_secs(if options.quick { 3 } else { 8 })
}

fn store(backend: impl Backend + 'static) -> Store {
    Store::Ledger(Ledger::new(Arc::new(backend), Settings::default()))
}

/// Keys that no earlier run used.
fn family(of: &str, round: u64) -> &'static str {
    format!("{of}-{}-{round}", std::process::id()).leak()
}

fn rates(rounds: &[Measurement]) -> Vec<f64> {
    rounds.iter().map(Measurement::rate).collect()
}

fn note(table: &mut Table, what: &str, rounds: &[Measurement]) {
    let cpu: Vec<_> = rounds.iter().map(Measurement::cpu_us).collect();
    let p99: Vec<_> = rounds.iter().map(|seen| seen.p99_us() / 1000.0).collect();
    let figures = (median(&rates(rounds)), median(&cpu), median(&p99));
    table.note(what, format!("{:.0}/s, {:.0} µs CPU, p99 {:.1} ms", figures.0, figures.1, figures.2));
}

/// Claims on PostgreSQL, next to pgbench, which inserts such rows one per transaction.
pub(crate) async fn postgres(options: &Options, table: &mut Table) {
    let Ok(url) = std::env::var(POSTGRES_URL) else {
        table.note("PostgreSQL", format!("not measured: {POSTGRES_URL} is not set"));
        return;
    };
    let store = store(Postgres::connect(&url).await.unwrap());
    let outcomes = Outcomes::of(1_024);
    let (mut ours, mut keyed, mut ones) = (Vec::new(), Vec::new(), Vec::new());
    let (mut theirs, mut most) = (Vec::new(), Vec::new());
    for round in 0..options.rounds {
        theirs.push(pgbench(&url, CONNECTIONS, 1, time(options)));
        most.push(pgbench(&url, "3", ROWS, time(options)));
        let until = || Until::Time(time(options));
        ours.push(store.run_claims(family("claims", round), CALLERS, until()).await);
        let requests = family("keyed", round);
        let request_of = move |number| crate::fixture::request(requests, number);
        keyed.push(store.run_keyed(CALLERS, until(), &outcomes, request_of).await);
        ones.push(store.run_claims(family("one", round), 1, until()).await);
    }
    table.note(
        format!("pgbench, {CONNECTIONS} connections, one row per transaction"),
        format!("{:.0}/s", median(&theirs)),
    );
    table.note(
        format!("pgbench, 3 connections, {ROWS} rows per transaction and no lookup"),
        format!("{:.0} rows/s", median(&most)),
    );
    note(table, "PostgreSQL ledger, claims, 256 callers", &ours);
    note(table, "PostgreSQL ledger, claims with completions of 1 KB, 256 callers", &keyed);
    note(table, "PostgreSQL ledger, claims, 1 caller", &ones);
    table.at_least(
        "PostgreSQL ledger / pgbench, claims, 256 callers",
        ratio(&rates(&ours), &theirs),
        "",
        5.0,
    );
}

/// Rows per second of pgbench.
fn pgbench(url: &str, connections: &str, rows: u32, time: Duration) -> f64 {
    let script = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(script.path(), INSERT).unwrap();
    let seconds = time.as_secs().to_string();
    let rows_each = format!("rows={rows}");
    let arguments =
        ["-n", "-M", "prepared", "-c", connections, "-j", "2", "-T", &seconds, "-D", &rows_each, "-f"];
    let output = Command::new("pgbench").args(arguments).arg(script.path()).arg(url).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let rate =
        text.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse::<f64>().ok());
    let rate = rate.map(|rate| rate * f64::from(rows));
    rate.unwrap_or_else(|| panic!("pgbench: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

/// Claims on Redis, next to a `SET NX` from as many connections as there are callers.
pub(crate) async fn redis(options: &Options, table: &mut Table) {
    let (Ok(url), Some(peer)) = (std::env::var(REDIS_URL), redis_peer::Redis::find().await) else {
        table.note("Redis", format!("not measured: {REDIS_URL} is not set"));
        return;
    };
    let store = store(Redis::connect(&url).await.unwrap());
    let (mut ours, mut theirs, mut shared) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..options.rounds {
        let until = Until::Time(time(options));
        theirs.push(peer.connection_each(CALLERS, until.clone(), 100 + round).await);
        shared.push(peer.one_connection(CALLERS, until.clone(), 100 + round).await);
        ours.push(store.run_claims(family("claims", round), CALLERS, until).await);
    }
    table.note("Redis SET NX, 256 connections", format!("{:.0}/s", median(&theirs)));
    table.note("Redis SET NX, 256 callers on one connection", format!("{:.0}/s", median(&shared)));
    note(table, "Redis ledger, claims, 256 callers", &ours);
    table.at_least("Redis ledger / SET NX, claims, 256 callers", ratio(&rates(&ours), &theirs), "", 1.0);
}
