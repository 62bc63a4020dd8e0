//! Many concurrent callers, and the same results as the rules.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ichido_core::{Claim, Outcome, Phase, Settle, Settled, Timestamp};
use ichido_ledger::postgres::Postgres;
use ichido_ledger::{Backend, Kind, Maintain};
use ichido_testkit::ledger_server::unique;

use super::TestSchema;
use crate::support::differential::agrees_with_the_rules;
use crate::support::{count_new, granted, key, mark_request, request};

#[tokio::test]
async fn random_calls_agree_with_the_rules() {
    let test_schema = TestSchema::new();
    let ledger = Arc::new(test_schema.ledger().await);
    let stories = (1..=8).map(|seed| {
        let ledger = ledger.clone();
        tokio::spawn(async move { agrees_with_the_rules(&*ledger, seed).await })
    });
    for story in stories.collect::<Vec<_>>() {
        story.await.unwrap();
    }
}

/// A call that neither wrote nor saw anything must be retried; it is not a grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_racers_on_each_key_have_one_winner() {
    const KEYS: usize = 100;
    const RACERS: usize = 50;
    let test_schema = TestSchema::new();
    let ledger = Arc::new(Postgres::connect(&format!("{}&pool=50", test_schema.url())).await.unwrap());
    let wins = Arc::new(AtomicUsize::new(0));
    for _ in 0..KEYS {
        let key = key("race");
        let racers = (0..RACERS).map(|_| {
            let (ledger, wins, request) = (ledger.clone(), wins.clone(), request(&key));
            tokio::spawn(async move {
                loop {
                    match ledger.claim(&request).await {
                        Ok(Claim::Granted(_)) => {
                            wins.fetch_add(1, Ordering::SeqCst);
                            break;
                        }
                        Ok(_) => break,
                        Err(error) => assert_eq!(*error.kind(), Kind::Contended, "{error:?}"),
                    }
                }
            })
        });
        for racer in racers.collect::<Vec<_>>() {
            racer.await.unwrap();
        }
    }
    assert_eq!(wins.load(Ordering::SeqCst), KEYS);
}

/// Callers who ask at the same time share commits. Each gets an answer of their own: of the callers of one key one is
/// granted, and a completion with another's token is refused among completions that are applied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_callers_share_commits() {
    const KEYS: usize = 400;
    let test_schema = TestSchema::new();
    let ledger = Arc::new(test_schema.ledger().await);
    let callers = (0..KEYS).map(|number| {
        let ledger = ledger.clone();
        tokio::spawn(async move {
            let key = key("shared");
            let [mine, other] = [request(&key), request(&key)];
            let claims = tokio::join!(ledger.claim(&mine), ledger.claim(&other));
            let token = match (&claims.0, &claims.1) {
                (Ok(Claim::Granted(grant)), Ok(Claim::Held { .. }) | Err(_))
                | (Ok(Claim::Held { .. }) | Err(_), Ok(Claim::Granted(grant))) => grant.token,
                other => panic!("{other:?}"),
            };
            let wrong = request(&key).token;
            let done = Settle::Complete(Outcome::kept(number.to_string()));
            let completions =
                tokio::join!(ledger.settle(&key, token, &done), ledger.settle(&key, wrong, &done));
            assert_eq!(completions.0.unwrap(), Settled::Applied);
            assert!(!matches!(completions.1, Ok(Settled::Applied)));
            assert_eq!(
                ledger.claim(&request(&key)).await.unwrap(),
                Claim::Done(Outcome::kept(number.to_string()))
            );
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    // Rows that one statement wrote have its transaction number.
    let commits = test_schema.count("SELECT count(DISTINCT xmin::text) FROM ichido.claims").await;
    assert!(commits < 200, "{KEYS} completions in {commits} commits");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_in_opposite_order_do_not_deadlock() {
    let test_schema = TestSchema::new();
    let ledger = Arc::new(test_schema.ledger().await);
    for round in 0..20 {
        let texts: Vec<_> = (0..100).map(|i| format!("{round}-{i}")).collect();
        let batch = |reversed: bool| {
            let mut requests: Vec<_> = texts.iter().map(|text| mark_request(text)).collect();
            if reversed {
                requests.reverse();
            }
            let ledger = ledger.clone();
            tokio::spawn(async move { count_new(&ledger.mark(&requests).await.unwrap()) })
        };
        let batches: Vec<_> = [false, true, false, true].map(batch).into_iter().collect();
        let mut new = 0;
        for batch in batches {
            new += batch.await.unwrap();
        }
        assert_eq!(new, texts.len());
    }
}

#[tokio::test]
async fn expired_doubt_is_swept_and_counted() {
    let test_schema = TestSchema::new();
    let ledger = test_schema.ledger().await;
    let (old, young) = (key("old"), key("young"));
    for key in [&old, &young] {
        let token = granted(&ledger, key).await.token;
        let _ = ledger.settle(key, token, &Settle::Doubt("timeout".to_owned())).await.unwrap();
    }
    let month = 31 * 86_400_000_i64;
    let index = old.index();
    let age = format!("UPDATE ichido.claims SET doubt_at = doubt_at - {month}, over_at = over_at - {month}");
    test_schema.execute(&format!("{age} WHERE index = '\\x{index}'")).await;
    assert_eq!(ledger.get(&old).await.unwrap(), None);
    let swept = ledger.sweep(10).await.unwrap();
    assert_eq!((swept.removed, swept.doubts_ended, swept.more), (1, 1, false));
    let kept = ledger.get(&young).await.unwrap().unwrap();
    assert!(matches!(kept.phase(Timestamp(kept.expires_at().0 - 1)), Phase::InDoubt(_)));
    assert_eq!(ledger.stats().await.unwrap().in_doubt, Some(1));
}

#[tokio::test]
async fn a_sweep_stops_at_its_limit() {
    let ledger = TestSchema::new().ledger().await;
    let marks: Vec<_> =
        (0..30).map(|_| ichido_core::mark::Request { retention_ms: 0, ..mark_request(&unique()) }).collect();
    ledger.mark(&marks).await.unwrap();
    let swept = ledger.sweep(20).await.unwrap();
    assert_eq!((swept.removed, swept.more), (20, true));
    let swept = ledger.sweep(20).await.unwrap();
    assert_eq!((swept.removed, swept.more), (10, false));
}
