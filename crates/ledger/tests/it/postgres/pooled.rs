//! Behind PgBouncer: a transaction runs on whichever server connection is free, so a prepared statement is unknown
//! on the next one, or belongs to another client.

use std::sync::Arc;

use ichido_core::{Claim, Outcome, Settle, Settled};
use ichido_ledger::postgres::Postgres;
use ichido_ledger::{Backend, Kind, Maintain};
use ichido_testkit::ledger_server::unique;
use ichido_testkit::pgbouncer::PgBouncer;

use super::TestSchema;
use crate::support::differential::agrees_with_the_rules;
use crate::support::{granted, key, mark_request, request};

/// Callers, which share a few connections to the server.
const CALLERS: usize = 1_200;
const SERVERS: usize = 4;

/// Claims and completes a key, and claims again: every call must succeed.
async fn claim_and_complete(ledger: &Postgres) {
    let key = key("pooled");
    let token = granted(ledger, &key).await.token;
    let done = Settle::Complete(Outcome::kept("done"));
    assert_eq!(ledger.settle(&key, token, &done).await.unwrap(), Settled::Applied);
    let again = ledger.claim(&request(&key)).await.unwrap();
    assert!(matches!(again, Claim::Done(_)), "{again:?}");
}

async fn all_at_once(ledgers: &[Arc<Postgres>], callers: usize) {
    let calls = (0..callers).map(|number| {
        let ledger = ledgers[number % ledgers.len()].clone();
        tokio::spawn(async move { claim_and_complete(&ledger).await })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_transaction_mode_every_claim_succeeds() {
    let test_schema = TestSchema::new();
    let pooler = PgBouncer::start("transaction", SERVERS);
    let url = format!("{}&pool=24", pooler.url(&test_schema.schema));
    let mut ledgers = Vec::new();
    for _ in 0..2 {
        ledgers.push(Arc::new(Postgres::connect(&url).await.unwrap()));
    }
    all_at_once(&ledgers, CALLERS).await;
    let done = test_schema.count("SELECT count(*) FROM ichido.claims WHERE state = 'done'").await;
    assert_eq!(done, i64::try_from(CALLERS).unwrap());
    // Everything else that a ledger does.
    agrees_with_the_rules(&*ledgers[0], 7).await;
    let marks: Vec<_> = (0..300).map(|_| mark_request(&unique())).collect();
    assert_eq!(ledgers[1].mark(&marks).await.unwrap().len(), 300);
    assert_eq!(ledgers[1].stats().await.unwrap().marks, Some(300));
    ledgers[0].sweep(1_000).await.unwrap();
    ledgers[0].init().await.unwrap();
    let warnings = ledgers[0].check().await.unwrap();
    assert!(warnings.iter().any(|warning| warning.contains("a pooler in transaction mode")), "{warnings:?}");
}

/// A probe that keeps a transaction open would wait for itself.
#[tokio::test]
async fn a_pool_of_one_connection_is_enough() {
    let pooler = PgBouncer::start("transaction", 1);
    let ledger = Postgres::connect(&pooler.url(&TestSchema::new().schema)).await.unwrap();
    claim_and_complete(&ledger).await;
}

#[tokio::test]
async fn in_session_mode_and_without_a_pooler_statements_are_prepared() {
    let pooler = PgBouncer::start("session", 60);
    for url in [pooler.url(&TestSchema::new().schema), TestSchema::new().url()] {
        let ledger = Postgres::connect(&url).await.unwrap();
        claim_and_complete(&ledger).await;
        assert_eq!(ledger.check().await.unwrap(), Vec::<String>::new(), "{url}");
    }
}

#[tokio::test]
async fn setting_overrides_the_probe() {
    let pooler = PgBouncer::start("transaction", SERVERS);
    let off = Postgres::connect(&format!("{}&prepared=off", TestSchema::new().url())).await.unwrap();
    claim_and_complete(&off).await;
    assert_eq!(off.check().await.unwrap(), Vec::<String>::new());
    // With "on" it fails sooner or later, and the error says what to change.
    let url = format!("{}&pool=24&prepared=on", pooler.url(&TestSchema::new().schema));
    let on = Arc::new(Postgres::connect(&url).await.unwrap());
    let mut failure = None;
    while failure.is_none() {
        let calls = (0..48).map(|_| {
            let ledger = on.clone();
            tokio::spawn(async move { ledger.claim(&request(&key("named"))).await })
        });
        for call in calls.collect::<Vec<_>>() {
            failure = failure.or(call.await.unwrap().err());
        }
    }
    let warnings = on.check().await.unwrap_or_else(|error| vec![error.to_string()]);
    assert!(warnings[0].contains("prepared=on"), "{warnings:?}");
    let failure = failure.unwrap();
    assert!(matches!(failure.kind(), Kind::Settings(text) if text.contains("prepared=on")), "{failure:?}");
}

#[tokio::test]
async fn statement_mode_is_refused_with_the_setting_to_change() {
    let pooler = PgBouncer::start("statement", SERVERS);
    let error = Postgres::connect(&pooler.url(&TestSchema::new().schema)).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Settings(text) if text.contains("pool_mode")), "{error:?}");
}

/// The probe found a session per connection; then an operator changed the mode and reloaded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_of_the_poolers_mode_is_noticed() {
    let test_schema = TestSchema::new();
    let pooler = PgBouncer::start("session", 60);
    let ledger =
        Arc::new(Postgres::connect(&format!("{}&pool=24", pooler.url(&test_schema.schema))).await.unwrap());
    all_at_once(std::slice::from_ref(&ledger), 100).await;
    assert_eq!(ledger.check().await.unwrap(), Vec::<String>::new());
    pooler.switch("transaction");
    // Nothing changes until a name is unknown for the first time.
    while ledger.check().await.unwrap().is_empty() {
        all_at_once(std::slice::from_ref(&ledger), 100).await;
    }
    all_at_once(&[ledger], 200).await;
}
