//! Fills a directory with a large ledger, a large spool, and the settings of a daemon for both.

use std::path::Path;

use ichido_bench::records;
use ichido_core::{Claim, Clock, Key, Outcome, Settled, SystemClock};
use ichido_history::{RawHistory, Recorder};
use ichido_ledger::{Ledger, Settings, open};
use rusqlite::Connection;

/// The receiver. Nothing listens there, so the spool does not change.
pub(crate) const ENVIRONMENT: [(&str, &str); 5] = [
    ("DATA_DIR", "data"),
    ("EXTERNAL_API_ENDPOINT", "http://127.0.0.1:9/v1/usage"),
    ("EXTERNAL_API_TOKEN", "bench-token"),
    ("EXTERNAL_API_ALLOW_HTTP_LOOPBACK", "true"),
    ("NOTIFY_CHANNEL", "log"),
];

/// Writes settings for a gateway and a sender. Nothing listens at the upstream.
pub(crate) fn settings(dir: &Path) {
    let text = "[ledger]\nurl = \"file:ledger\"\n\n[gateway]\nlisten = \"127.0.0.1:0\"\nupstream = \"http://127.0.0.1:9\"\n";
    std::fs::write(dir.join("ichido.toml"), text).unwrap();
}

/// Fills the spool.
pub(crate) fn spool(dir: &Path, files: u64) {
    records::fill(&dir.join("data"), files, 1);
}

/// Fills the ledger: one claim in a hundred is in doubt, the others are done.
pub(crate) fn ledger(dir: &Path, claims: usize) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let url = format!("file:{}", dir.join("ledger").display());
    runtime.block_on(async {
        let ledger = open(&url, Settings::default()).await.unwrap();
        let callers = 256;
        let tasks = (0..callers).map(|caller| {
            let ledger = ledger.clone();
            tokio::spawn(async move {
                for number in (caller..claims).step_by(callers) {
                    one(&ledger, number).await;
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        ledger.close().await.unwrap();
    });
}

/// The rows that ten million decisions leave within 30 days: five routes with a hundred sources each, of which 300 are counted by
/// day, three results, an hour of fallback a day, and the newest 200,000 decisions one by one.
const HISTORY: &str = "
WITH RECURSIVE
    hour(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM hour WHERE n < 719),
    route(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM route WHERE n < 4),
    source(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM source WHERE n < 99),
    result(name, count) AS (VALUES ('new', 12), ('duplicate', 2), ('completed', 14))
INSERT INTO hours (hour, route, source, result, degraded, count, latency_us, latency_max_us)
    SELECT :hour - hour.n, 'POST /route-' || route.n, 'channel-' || (route.n * 100 + source.n), result.name, hour.n % 24 = 3,
        result.count + (hour.n * 7 + source.n) % 5 - 2, result.count * 300, 2000 + (hour.n * 31 + source.n * 7) % 9000
    FROM hour, route, source, result;
INSERT INTO totals SELECT hour, result, degraded, sum(count), sum(latency_us), max(latency_max_us) FROM hours GROUP BY 1, 2, 3;
INSERT INTO days
    SELECT hour / 24, iif(CAST(substr(source, 9) AS INTEGER) < 300, source, '(other)'), result, sum(count) FROM hours GROUP BY 1, 2, 3;
WITH RECURSIVE decision(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM decision WHERE n < 200000)
INSERT INTO decisions (at, tag, key, route, source, result, latency_us, degraded, request_id)
    SELECT :hour * 3600000 - 200000 + n, random(), 'key-' || n, 'POST /route-1', 'channel-' || (n % 100), 'new', 300, 0, 'request-' || n
    FROM decision;
";

/// Fills a history. Returns its size in bytes.
pub(crate) fn history(dir: &Path) -> u64 {
    let clock = std::sync::Arc::new(SystemClock::default());
    let hour = clock.now().0 / 3_600_000;
    let raw = RawHistory { dir: dir.join("data/history"), ..RawHistory::default() };
    let recorder = Recorder::start(raw.check("bench".to_owned(), clock).unwrap().unwrap()).unwrap();
    let path = recorder.path().to_owned();
    // The tables are there once it is closed.
    drop(recorder);
    let database = Connection::open(&path).unwrap();
    database.execute_batch(&HISTORY.replace(":hour", &hour.to_string())).unwrap();
    let decisions: i64 = database.query_row("SELECT sum(count) FROM totals", [], |row| row.get(0)).unwrap();
    assert!(decisions >= 10_000_000, "{decisions}");
    database.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    path.metadata().unwrap().len()
}

async fn one(ledger: &Ledger, number: usize) {
    let key = Key::unscoped(format!("order-{number:07}")).unwrap();
    let Claim::Granted(grant) = ledger.claim(&ledger.request(key.clone())).await.unwrap().claim else {
        panic!("{number} was claimed before")
    };
    let settled = match number % 100 {
        0 => ledger.declare_in_doubt(&key, grant.token, "timeout").await.unwrap(),
        _ => ledger.complete(&key, grant.token, Outcome::kept("{\"id\":1}")).await.unwrap(),
    };
    assert_eq!(settled, Settled::Applied);
}
