//! Listing and sweeping by scanning.

use std::collections::HashSet;

use ichido_core::{Outcome, Settle};
use ichido_ledger::redis::Redis;
use ichido_ledger::{Backend, Maintain, Query, StateName, Summary, Swept};
use ichido_testkit::ledger_server::unique;
use ichido_testkit::required_env;
use redis::AsyncCommands;

use super::TestNamespace;
use super::layout::{SINCE, time};
use crate::support::{granted, key, request};

async fn list(ledger: &Redis, query: Query) -> Vec<String> {
    list_claims(ledger, query).await.into_iter().map(|claim| claim.key).collect()
}

/// All pages: on a server with many other keys, some are empty.
async fn list_claims(ledger: &Redis, query: Query) -> Vec<Summary> {
    let mut query = query;
    let mut listed = Vec::new();
    loop {
        let page = ledger.list(&query).await.unwrap();
        assert!(page.claims.len() <= query.limit);
        listed.extend(page.claims);
        query.cursor = page.cursor;
        if query.cursor.is_none() {
            return listed;
        }
    }
}

#[tokio::test]
async fn a_long_list_has_every_claim_once() {
    let namespace = TestNamespace::new();
    let cluster =
        format!("{}?cluster=true&prefix={}", required_env("ICHIDO_TEST_REDIS_CLUSTER_URL"), namespace.prefix);
    for ledger in [namespace.ledger().await, Redis::connect(&cluster).await.unwrap()] {
        let keys: Vec<_> = (0..1_500).map(|_| key("many")).collect();
        for key in &keys {
            ledger.claim(&request(key)).await.unwrap();
        }
        let expected: HashSet<_> = keys.iter().map(|key| key.text().to_owned()).collect();
        for limit in [70, 10_000] {
            let listed = list(&ledger, Query { limit, ..Query::default() }).await;
            assert_eq!(listed.len(), expected.len());
            assert_eq!(listed.into_iter().collect::<HashSet<_>>(), expected);
        }
    }
}

#[tokio::test]
async fn pattern_characters_in_a_prefix_are_escaped() {
    let (run, server) = (unique(), required_env("ICHIDO_TEST_REDIS_URL"));
    let strange = Redis::connect(&format!("{server}?prefix={run}[a*]%5C:")).await.unwrap();
    let plain = Redis::connect(&format!("{server}?prefix={run}a:")).await.unwrap();
    let (one, other) = (key("one"), key("other"));
    granted(&strange, &one).await;
    granted(&plain, &other).await;
    let query = Query { limit: 10, ..Query::default() };
    assert_eq!(list(&strange, query.clone()).await, [one.text()]);
    assert_eq!(list(&plain, query).await, [other.text()]);
}

#[tokio::test]
async fn listing_reads_sizes_of_outcomes_only() {
    let (ledger, key) = (TestNamespace::new().ledger().await, key("large"));
    let token = granted(&ledger, &key).await.token;
    let _ = ledger.settle(&key, token, &Settle::Complete(Outcome::kept(vec![7; 12_345]))).await.unwrap();
    let query = Query { limit: 10, state: Some(StateName::Done), ..Query::default() };
    let sizes: Vec<_> = list_claims(&ledger, query).await.iter().map(|claim| claim.outcome_bytes).collect();
    assert_eq!(sizes, [Some(12_345)]);
}

#[tokio::test]
async fn expired_doubt_is_swept_and_counted() {
    let namespace = TestNamespace::new();
    let (ledger, mut client) = (namespace.ledger().await, namespace.client().await);
    let keys: Vec<_> = (0..25).map(|_| key("old")).collect();
    let young = key("young");
    for key in keys.iter().chain([&young]) {
        let token = granted(&ledger, key).await.token;
        let _ = ledger.settle(key, token, &Settle::Doubt("timeout".to_owned())).await.unwrap();
    }
    for key in &keys {
        let () = client.setrange(namespace.claim(key), SINCE, time(1) + &time(2)).await.unwrap();
    }
    let mut total = Swept { more: true, ..Swept::default() };
    while total.more {
        let swept = ledger.sweep(20).await.unwrap();
        assert!(swept.removed <= 20 && swept.doubts_ended == swept.removed, "{swept:?}");
        total.removed += swept.removed;
        total.more = swept.more;
    }
    assert_eq!(total.removed, 25);
    assert!(ledger.get(&young).await.unwrap().is_some());
    assert_eq!(ledger.get(&keys[0]).await.unwrap(), None);
}
