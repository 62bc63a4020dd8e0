//! The benchmarks.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use ichido_core::{Claim, Clock, ManualClock, Outcome, Settled, SystemClock, Timestamp};
use ichido_ledger::file::{File, FileSettings};
use ichido_ledger::{Ledger, Settings};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::Instant;

use crate::Options;
use crate::load::{Measurement, Until, request, run_load, run_load_each};
use crate::raw_log::RawLog;
use crate::table::Table;

fn scratch() -> tempfile::TempDir {
    let base = std::env::var_os("ICHIDO_BENCH_DIR").map_or_else(|| PathBuf::from("."), PathBuf::from);
    tempfile::Builder::new().prefix("ledger-bench-").tempdir_in(base).unwrap()
}

/// A ledger as programs use it: the store with the handle's deadlines and metrics.
fn open(dir: &std::path::Path) -> Ledger {
    open_at(dir, Arc::new(SystemClock::default()))
}

fn open_at(dir: &std::path::Path, clock: Arc<dyn Clock>) -> Ledger {
    let file = File::open(dir, FileSettings::default(), clock).unwrap();
    Ledger::new(Arc::new(file), Settings::default())
}

async fn claim_new(ledger: &Ledger, family: &str, number: u64) {
    let claim = ledger.claim(&request(family, number)).await.unwrap().claim;
    assert!(matches!(claim, Claim::Granted(_)), "{claim:?}");
}

async fn complete_new(ledger: &Ledger, family: &str, number: u64) {
    let request = request(family, number);
    assert!(matches!(ledger.claim(&request).await.unwrap().claim, Claim::Granted(_)));
    let outcome = Outcome::kept("x".repeat(200));
    assert_eq!(ledger.complete(&request.key, request.token, outcome).await.unwrap(), Settled::Applied);
}

async fn run_claims(ledger: &Ledger, family: &'static str, callers: u64, until: Until) -> Measurement {
    let ledger = ledger.clone();
    run_load(callers, until, move |number| {
        let ledger = ledger.clone();
        async move { claim_new(&ledger, family, number).await }
    })
    .await
}

async fn run_raw_log(callers: u64, until: Until) -> Measurement {
    let dir = scratch();
    let log = Arc::new(RawLog::start(&dir.path().join("log")));
    run_load(callers, until, move |number| {
        let log = log.clone();
        async move { assert!(log.claim(&request("raw", number)).await) }
    })
    .await
}

/// Redis, called by one program or by one program per caller.
struct Redis {
    client: redis::Client,
    shared: redis::aio::MultiplexedConnection,
    run: u32,
}

impl Redis {
    /// The Redis to compare with, if there is one.
    async fn find() -> Option<Self> {
        let client = redis::Client::open(std::env::var("ICHIDO_BENCH_REDIS_URL").ok()?).unwrap();
        let shared = client.get_multiplexed_async_connection().await.expect("ICHIDO_BENCH_REDIS_URL");
        Some(Self { client, shared, run: std::process::id() })
    }

    /// Callers in one program: their commands are sent together, and Redis syncs once for all that it has read.
    async fn one_connection(&self, callers: u64, until: Until, round: u64) -> f64 {
        self.run_load(callers, until, format!("one-{round}"), vec![self.shared.clone()]).await
    }

    /// Independent callers.
    async fn connection_each(&self, callers: u64, until: Until, round: u64) -> f64 {
        let mut connections = Vec::new();
        for _ in 0..callers {
            connections.push(self.client.get_multiplexed_async_connection().await.unwrap());
        }
        self.run_load(callers, until, format!("each-{round}"), connections).await
    }

    async fn run_load(
        &self,
        callers: u64,
        until: Until,
        family: String,
        connections: Vec<redis::aio::MultiplexedConnection>,
    ) -> f64 {
        let run = self.run;
        let each = run_load_each(callers, until, move |caller| {
            let redis = connections[usize::try_from(caller).unwrap() % connections.len()].clone();
            let family = family.clone();
            move |number| {
                let (mut redis, family) = (redis.clone(), family.clone());
                async move {
                    let mut set = redis::cmd("SET");
                    set.arg(format!("bench-{run}-{family}-{number}")).arg("v".repeat(100)).arg("NX");
                    let answer: Option<String> = set.query_async(&mut redis).await.unwrap();
                    assert_eq!(answer.as_deref(), Some("OK"));
                }
            }
        });
        each.await.rate
    }
}

/// Durable claims of 256 callers, next to the raw log and Redis. Rounds alternate, so that a busy moment affects
/// all.
pub(crate) async fn claims(options: &Options, table: &mut Table) {
    let until = Until::Time(Duration::from_secs(if options.quick { 2 } else { 5 }));
    let redis = Redis::find().await;
    let (mut raws, mut ours, mut ones, mut eachs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..3_u64 {
        raws.push(run_raw_log(256, until).await.rate);
        let dir = scratch();
        let ledger = open(dir.path());
        ours.push(run_claims(&ledger, "claims", 256, until).await.rate);
        ledger.close().await.unwrap();
        if let Some(redis) = &redis {
            ones.push(redis.one_connection(256, until, round).await);
            eachs.push(redis.connection_each(256, until, round).await);
        }
    }
    let (raw, our) = (median(raws), median(ours));
    table.note("raw log, 256 callers", format!("{raw:.0}/s"));
    table.note("file ledger, 256 callers", format!("{our:.0}/s"));
    table.at_least("file ledger / raw log, 256 callers", our / raw, "", 0.30);
    if redis.is_none() {
        table.note("Redis SET NX, appendfsync always, 256 callers", "not asked");
        return;
    }
    for (how, rates) in [("one connection", ones), ("256 connections", eachs)] {
        let redis = median(rates);
        table.note(format!("Redis SET NX, fsync always, 256 callers, {how}"), format!("{redis:.0}/s"));
        table.at_least(format!("file ledger / Redis, 256 callers, {how}"), our / redis, "", 3.0);
    }
}

/// Durable claims of one caller.
pub(crate) async fn one(options: &Options, table: &mut Table) {
    let until = Until::Time(Duration::from_secs(if options.quick { 1 } else { 3 }));
    let (mut raws, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        raws.push(run_raw_log(1, until).await.rate);
        let dir = scratch();
        let ledger = open(dir.path());
        ours.push(run_claims(&ledger, "one", 1, until).await.rate);
        ledger.close().await.unwrap();
    }
    let (raw, our) = (median(raws), median(ours));
    table.note("raw log, 1 caller", format!("{raw:.0}/s"));
    table.note("file ledger, 1 caller", format!("{our:.0}/s"));
    table.at_least("file ledger / raw log, 1 caller", our / raw, "", 0.8);
}

/// Claims on completed keys. Keys are created beforehand: hashing them is the caller's work, whatever the ledger.
pub(crate) async fn repeats(options: &Options, table: &mut Table) {
    let keys = 10_000;
    let dir = scratch();
    let ledger = open(dir.path());
    let filling = ledger.clone();
    run_load(256, Until::Calls(keys), move |number| {
        let ledger = filling.clone();
        async move { complete_new(&ledger, "done", number).await }
    })
    .await;
    let requests: Arc<Vec<_>> = Arc::new((0..keys).map(|number| request("done", number)).collect());
    let until = Until::Time(Duration::from_secs(if options.quick { 2 } else { 5 }));
    let asked = ledger.clone();
    let seen = run_load(256, until, move |number| {
        let (ledger, requests) = (asked.clone(), requests.clone());
        async move {
            let mut request = requests[usize::try_from(number % keys).unwrap()].clone();
            request.nonce = ichido_core::Nonce::from_bytes(u128::from(number).to_be_bytes());
            assert!(matches!(ledger.claim(&request).await.unwrap().claim, Claim::Done(_)));
        }
    })
    .await;
    ledger.close().await.unwrap();
    table.at_least("repeats, 256 callers", seen.rate, "/s", 500_000.0);
}

/// The latency of a claim when many are stored, and the memory that this takes.
pub(crate) async fn scale(options: &Options, table: &mut Table) {
    let many: u64 = if options.quick { 1_000_000 } else { 10_000_000 };
    let mut p99s = Vec::new();
    let mut rss = 0.0;
    for keys in [10_000, many] {
        let dir = scratch();
        let said = run_child(&["scale", dir.path().to_str().unwrap(), &keys.to_string()]).await;
        let numbers: Vec<f64> = said.split(' ').map(|number| number.parse().unwrap()).collect();
        table.note(format!("p99 of a claim, 64 callers, {keys} keys"), format!("{:.0} µs", numbers[0]));
        table.note(format!("claims while filling to {keys} keys"), format!("{:.0}/s", numbers[2]));
        p99s.push(numbers[0]);
        rss = numbers[1];
    }
    table.at_most(format!("p99 at {many} keys / p99 at 10000"), p99s[1] / p99s[0], "", 2.0);
    table.at_most(format!("memory at {many} keys"), rss, " MB", 600.0);
}

/// Opening after kill -9. The time depends on the length of the journal at that moment, so the fills end at moments
/// that are spread over the life of one journal.
pub(crate) async fn reopen(options: &Options, table: &mut Table) {
    let (keys, step, fills): (u64, u64, u64) =
        if options.quick { (100_000, 0, 1) } else { (1_000_000, 80_000, 4) };
    let mut times = Vec::new();
    for fill in 0..fills {
        let keys = keys + fill * step;
        let dir = scratch();
        // The child is killed as soon as it is done.
        run_child(&["fill", dir.path().to_str().unwrap(), &keys.to_string()]).await;
        let start = Instant::now();
        let ledger = open(dir.path());
        times.push(start.elapsed().as_secs_f64());
        let repeat = ledger.claim(&request("fill", keys - 1)).await.unwrap().claim;
        assert!(!matches!(repeat, Claim::Granted(_)), "{repeat:?}");
        ledger.close().await.unwrap();
        table.note(
            format!("opening after kill -9 at {keys} keys"),
            format!("{:.2} s", times[times.len() - 1]),
        );
    }
    let worst = times.into_iter().fold(0.0, f64::max);
    table.at_most(format!("opening after kill -9 from {keys} keys on, worst"), worst, " s", 0.5);
}

/// Claims during a sweep.
pub(crate) async fn sweep(options: &Options, table: &mut Table) {
    let keys: u64 = if options.quick { 50_000 } else { 500_000 };
    let dir = scratch();
    let clock = Arc::new(ManualClock::at(Timestamp(SystemClock::default().now().0)));
    let ledger = open_at(dir.path(), clock.clone());
    let filling = ledger.clone();
    run_load(256, Until::Calls(keys), move |number| {
        let ledger = filling.clone();
        async move { complete_new(&ledger, "old", number).await }
    })
    .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = run_claims(&ledger, "before", 64, Until::Time(Duration::from_secs(3))).await;
    clock.advance(86_400_000);
    let start = Instant::now();
    let sweeping = tokio::spawn({
        let ledger = ledger.clone();
        async move { (ledger.sweep(usize::MAX).await.unwrap(), start.elapsed()) }
    });
    let beside = ledger.clone();
    let watched = Arc::new(sweeping);
    let during =
        run_load(64, Until::Time(Duration::from_secs(if options.quick { 1 } else { 4 })), move |number| {
            let ledger = beside.clone();
            async move { claim_new(&ledger, "during", number).await }
        })
        .await;
    let (swept, took) = Arc::into_inner(watched).unwrap().await.unwrap();
    assert_eq!(swept.removed, keys);
    ledger.close().await.unwrap();
    table.note(format!("sweep of {keys} keys beside 64 callers"), format!("{:.1} s", took.as_secs_f64()));
    table.note("p99 of a claim before the sweep", format!("{:.0} µs", before.percentile_us(0.99)));
    table.note("p99 of a claim beside the sweep", format!("{:.0} µs", during.percentile_us(0.99)));
    let ratio = during.percentile_us(0.99) / before.percentile_us(0.99);
    table.at_most("p99 beside the sweep / before it", ratio, "", 3.0);
}

/// Runs this program again, and returns the line it prints.
async fn run_child(arguments: &[&str]) -> String {
    let mut child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .arg("--child")
        .args(arguments)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().expect("the child said nothing");
    // kill -9
    drop(child.kill().await);
    line
}

/// What a child does: `scale DIR KEYS` or `fill DIR KEYS`.
pub(crate) async fn child(arguments: &[String]) {
    let [what, dir, keys] = arguments else { panic!("--child scale|fill DIR KEYS") };
    let keys: u64 = keys.parse().unwrap();
    let ledger = open(std::path::Path::new(dir));
    let filled = run_claims(&ledger, "fill", 256, Until::Calls(keys)).await;
    if what == "scale" {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let seen = run_claims(&ledger, "more", 64, Until::Calls(200_000)).await;
        println!("{} {} {}", seen.percentile_us(0.99), resident_mb(), filled.rate);
    } else {
        println!("filled");
    }
    std::future::pending::<()>().await;
}

fn resident_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kb = peak.and_then(|text| text.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kb.unwrap_or(f64::NAN) / 1024.0
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
