//! Durable claims and completions, next to the raw log and Redis, and replies that need no write.

use std::sync::Arc;
use std::time::Duration;

use ichido_core::{Claim, Nonce};

use crate::Options;
use crate::fixture::{Store, open, request, scratch};
use crate::load::{Measurement, Until, run_load};
use crate::outcomes::Outcomes;
use crate::redis_peer::Redis;
use crate::rounds::{median, ratio};
use crate::table::Table;

/// Claims that are open at once while completions are measured.
const OPEN_AT_ONCE: u64 = 4_096;
const KB: usize = 1_024;

/// The rounds of the ledger and of the raw log.
#[derive(Default)]
struct Rounds {
    ours: Vec<Measurement>,
    raws: Vec<Measurement>,
}

impl Rounds {
    fn ratio(&self, figure: impl Fn(&Measurement) -> f64 + Copy) -> f64 {
        ratio(&figures(&self.ours, figure), &figures(&self.raws, figure))
    }

    fn note(&self, table: &mut Table, what: &str, unit: &str, figure: impl Fn(&Measurement) -> f64 + Copy) {
        for (name, rounds) in [("raw log", &self.raws), ("file ledger", &self.ours)] {
            let median = median(&figures(rounds, figure));
            let decimals = if median < 100.0 { 2 } else { 0 };
            table.note(format!("{name}, {what}"), format!("{median:.decimals$}{unit}"));
        }
    }

    /// One more round of claims on a new store each.
    async fn add_claims(&mut self, callers: u64, until: Until) {
        let dirs = [scratch(), scratch()];
        self.raws.push(claims_on(Store::raw_log(dirs[0].path()), callers, until.clone()).await);
        self.ours.push(claims_on(Store::ledger(dirs[1].path()), callers, until).await);
    }
}

fn figures(rounds: &[Measurement], figure: impl Fn(&Measurement) -> f64) -> Vec<f64> {
    rounds.iter().map(figure).collect()
}

async fn claims_on(store: Store, callers: u64, until: Until) -> Measurement {
    let seen = store.run_claims("claims", callers, until).await;
    store.close().await;
    seen
}

/// Durable claims of 256 callers.
pub(crate) async fn claims(options: &Options, table: &mut Table) {
    let until = Until::Time(Duration::from_secs(if options.quick { 2 } else { 5 }));
    let redis = Redis::find().await;
    let (mut rounds, mut ones, mut eachs) = (Rounds::default(), Vec::new(), Vec::new());
    for round in 0..options.rounds {
        rounds.add_claims(256, until.clone()).await;
        if let Some(redis) = &redis {
            ones.push(redis.one_connection(256, until.clone(), round).await);
            eachs.push(redis.connection_each(256, until.clone(), round).await);
        }
    }
    rounds.note(table, "claims, 256 callers", "/s", Measurement::rate);
    let of_raw = rounds.ratio(Measurement::rate);
    table.at_least("file ledger / raw log, claims, 256 callers", of_raw, "", 0.75);
    table.note(
        "raw log, CPU per claim",
        format!("{:.2} µs", median(&figures(&rounds.raws, Measurement::cpu_us))),
    );
    let cpu = median(&figures(&rounds.ours, Measurement::cpu_us));
    table.at_most("file ledger, CPU per claim", cpu, " µs", 4.0);
    if redis.is_none() {
        table.note("Redis", "not measured: ICHIDO_BENCH_REDIS_URL is not set");
        return;
    }
    let ours = figures(&rounds.ours, Measurement::rate);
    let redis = |connections| format!("Redis SET NX, fsync always, 256 callers, {connections}");
    table.note(redis("one connection"), format!("{:.0}/s", median(&ones)));
    table.note("file ledger / Redis, one connection", format!("{:.2}", ratio(&ours, &ones)));
    table.note(redis("256 connections"), format!("{:.0}/s", median(&eachs)));
    table.at_least("file ledger / Redis, 256 callers, 256 connections", ratio(&ours, &eachs), "", 3.0);
}

/// Completions of 1 KB by 256 callers.
pub(crate) async fn completions(options: &Options, table: &mut Table) {
    let time = Duration::from_secs(if options.quick { 1 } else { 4 });
    let outcomes = Outcomes::of(KB);
    let mut rounds = Rounds::default();
    for _ in 0..options.rounds {
        let dirs = [scratch(), scratch()];
        rounds.raws.push(completions_on(Store::raw_log(dirs[0].path()), time, &outcomes).await);
        rounds.ours.push(completions_on(Store::ledger(dirs[1].path()), time, &outcomes).await);
    }
    rounds.note(table, "completions of 1 KB, 256 callers", "/s", Measurement::rate);
    let of_raw = rounds.ratio(Measurement::rate);
    table.at_least("file ledger / raw log, completions of 1 KB, 256 callers", of_raw, "", 0.7);
    let raw = median(&figures(&rounds.raws, Measurement::cpu_us));
    table.note("raw log, CPU per completion of 1 KB", format!("{raw:.2} µs"));
    let cpu = median(&figures(&rounds.ours, Measurement::cpu_us));
    table.at_most("file ledger, CPU per completion of 1 KB", cpu, " µs", 7.0);
}

/// Alternates between claims and completions, and measures the completions: so few claims are open at once, as in
/// a real store.
async fn completions_on(store: Store, time: Duration, outcomes: &Outcomes) -> Measurement {
    let mut seen = Measurement::default();
    let mut numbers = 0..;
    while seen.seconds < time.as_secs_f64() {
        let requests = numbers.by_ref().take(OPEN_AT_ONCE as usize).map(|number| request("done", number));
        let requests: Arc<[_]> = requests.collect();
        store.run_claims_of(&requests, 256).await;
        seen.merge(&store.run_completions_of(&requests, 256, outcomes).await);
    }
    store.close().await;
    seen
}

/// The latency of a claim of 64 callers.
pub(crate) async fn latency(options: &Options, table: &mut Table) {
    let until = Until::Time(Duration::from_secs(if options.quick { 1 } else { 3 }));
    let mut rounds = Rounds::default();
    for _ in 0..options.rounds + 2 {
        rounds.add_claims(64, until.clone()).await;
    }
    rounds.note(table, "p50 of a claim, 64 callers", " µs", |seen| seen.latencies.percentile_us(0.5));
    rounds.note(table, "p99 of a claim, 64 callers", " µs", Measurement::p99_us);
    table.at_most(
        "p99 of a claim, 64 callers / p99 of the raw log",
        rounds.ratio(Measurement::p99_us),
        "",
        2.0,
    );
}

/// Durable claims of one caller.
pub(crate) async fn one(options: &Options, table: &mut Table) {
    let until = Until::Time(Duration::from_secs(if options.quick { 1 } else { 3 }));
    let mut rounds = Rounds::default();
    for _ in 0..options.rounds + 2 {
        rounds.add_claims(1, until.clone()).await;
    }
    rounds.note(table, "claims, 1 caller", "/s", Measurement::rate);
    table.at_least("file ledger / raw log, claims, 1 caller", rounds.ratio(Measurement::rate), "", 0.8);
}

/// Claims on completed keys. Keys are created beforehand: hashing them is the caller's work, whatever the ledger.
pub(crate) async fn repeats(options: &Options, table: &mut Table) {
    let keys = 10_000;
    let dir = scratch();
    let ledger = open(dir.path());
    let store = Store::Ledger(ledger.clone());
    let requests: Arc<[_]> = (0..keys).map(|number| request("done", number)).collect();
    store.run_claims_of(&requests, 256).await;
    store.run_completions_of(&requests, 256, &Outcomes::of(200)).await;
    let until = Until::Time(Duration::from_secs(if options.quick { 2 } else { 5 }));
    let asked = ledger.clone();
    let seen = run_load(256, until, move |number| {
        let (ledger, requests) = (asked.clone(), requests.clone());
        async move {
            let mut request = requests[usize::try_from(number % keys).unwrap()].clone();
            request.nonce = Nonce::from_bytes(u128::from(number).to_be_bytes());
            assert!(matches!(ledger.claim(&request).await.unwrap().claim, Claim::Done(_)));
        }
    })
    .await;
    ledger.close().await.unwrap();
    table.at_least("repeats, 256 callers", seen.rate(), "/s", 500_000.0);
}
