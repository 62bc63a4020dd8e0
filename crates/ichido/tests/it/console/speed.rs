//! How long pages take, with much behind them.

use std::time::{Duration, Instant};

use ichido_core::{Claim, Key, Outcome, Settled};
use ichido_ledger::{Ledger, Settings, open};

use crate::serving::Serving;

/// Pages answer within this.
const LIMIT: Duration = Duration::from_millis(50);

/// Fills a ledger: one in a hundred is in doubt, the rest is done.
async fn fill(url: &str, claims: usize) {
    let ledger = open(url, Settings::default()).await.unwrap();
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
}

async fn one(ledger: &Ledger, number: usize) {
    let key = Key::unscoped(format!("order-{number:07}")).unwrap();
    let Claim::Granted(grant) = ledger.claim(&ledger.request(key.clone())).await.unwrap().claim else {
        panic!()
    };
    let settled = match number % 100 {
        0 => ledger.doubt(&key, grant.token, "timeout").await.unwrap(),
        _ => ledger.complete(&key, grant.token, Outcome::kept("{\"id\":1}")).await.unwrap(),
    };
    assert_eq!(settled, Settled::Applied);
}

/// The quickest of some answers, and the slowest.
fn spread(claims: &Serving, path: &str) -> (Duration, Duration) {
    let mut times: Vec<Duration> = (0..20)
        .map(|_| {
            let began = Instant::now();
            assert_eq!(claims.get(path).status, 200, "{path}");
            began.elapsed()
        })
        .collect();
    times.sort();
    (times[0], times[19])
}

#[allow(clippy::print_stderr, reason = "for whoever measures")]
fn pages_are_quick(claims: usize) {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(fill(&format!("file:{}", dir.path().join("ledger").display()), claims));
    let serving = Serving::claims(dir.path(), "file:ledger", None);
    for path in [
        "/",
        "/claims",
        "/claims?state=in-doubt",
        "/claims?state=done",
        "/claims?prefix=order-0012345",
        "/claims?state=in-doubt&prefix=order-00123",
        "/claims/one?key=order-0000100",
    ] {
        let (quickest, slowest) = spread(&serving, path);
        eprintln!("{claims} claims: {path} took {quickest:?} to {slowest:?}");
        assert!(quickest < LIMIT, "{path} took {quickest:?}");
    }
}

#[test]
fn twenty_thousand_claims_do_not_keep_a_page_waiting() {
    pages_are_quick(20_000);
}

/// Filling takes a minute: run by hand, with `--ignored --nocapture`.
#[test]
#[ignore = "filling the ledger takes a minute"]
fn a_million_claims_do_not_keep_a_page_waiting() {
    pages_are_quick(1_000_000);
}
