//! Effect and outcome in one commit.

use std::sync::Arc;
use std::time::Duration;

use ichido_core::{Claim, ClaimRequest, CurrentState, InDoubtPolicy, Key, Outcome, Settle, Settled, Token};
use ichido_ledger::postgres::{NotRecorded, Postgres};
use ichido_ledger::{Backend, Kind};
use tokio_postgres::Client;

use super::TestSchema;
use crate::support::{self, claim, grant, granted, key, request};

struct Shop {
    test_schema: TestSchema,
    ledger: Postgres,
    client: Client,
}

impl Shop {
    async fn open() -> Self {
        let test_schema = TestSchema::new();
        let ledger = test_schema.ledger().await;
        test_schema.execute("CREATE TABLE ichido.orders (id bigint)").await;
        let client = test_schema.client().await;
        Self { test_schema, ledger, client }
    }

    /// The effect and its outcome, in a transaction that is still open.
    async fn order(
        &mut self,
        key: &Key,
        token: Token,
    ) -> Result<tokio_postgres::Transaction<'_>, NotRecorded> {
        let transaction = self.client.transaction().await.unwrap();
        let insert = format!("INSERT INTO {}.orders VALUES (17)", self.test_schema.schema);
        transaction.execute(&insert, &[]).await.unwrap();
        self.ledger.complete_in(&transaction, key, token, &Outcome::kept("ordered")).await?;
        Ok(transaction)
    }

    async fn orders(&self) -> i64 {
        self.test_schema.count("SELECT count(*) FROM ichido.orders").await
    }
}

#[tokio::test]
async fn commit_includes_effect_and_outcome() {
    let (mut shop, key) = (Shop::open().await, key("order"));
    let token = granted(&shop.ledger, &key).await.token;
    shop.order(&key, token).await.unwrap().commit().await.unwrap();
    assert_eq!(claim(&shop.ledger, &request(&key)).await, Claim::Done(Outcome::kept("ordered")));
    assert_eq!(shop.orders().await, 1);
}

#[tokio::test]
async fn rollback_leaves_neither_effect_nor_outcome() {
    let (mut shop, key) = (Shop::open().await, key("order"));
    let token = granted(&shop.ledger, &key).await.token;
    shop.order(&key, token).await.unwrap().rollback().await.unwrap();
    assert!(matches!(claim(&shop.ledger, &request(&key)).await, Claim::Held { .. }));
    assert_eq!(shop.orders().await, 0);
}

#[tokio::test]
async fn stale_token_records_nothing() {
    let (mut shop, key) = (Shop::open().await, key("order"));
    let zombie = granted(&shop.ledger, &key).await.token;
    let _ = shop.ledger.settle(&key, zombie, &Settle::Doubt("gone".to_owned())).await.unwrap();
    let retry = ClaimRequest { in_doubt: InDoubtPolicy::Retry { silent_ms: 0 }, ..request(&key) };
    let winner = grant(claim(&shop.ledger, &retry).await);
    assert_eq!(winner.attempt, 2);
    let refused = shop.order(&key, zombie).await.err().unwrap();
    assert!(matches!(refused, NotRecorded::Stale(CurrentState::Running)), "{refused:?}");
    assert!(matches!(claim(&shop.ledger, &request(&key)).await, Claim::Held { .. }));
    assert_eq!(shop.orders().await, 0);
}

#[tokio::test]
async fn a_second_transaction_with_the_same_token_is_refused() {
    let (mut shop, key) = (Shop::open().await, key("order"));
    let token = granted(&shop.ledger, &key).await.token;
    shop.order(&key, token).await.unwrap().commit().await.unwrap();
    let refused = shop.order(&key, token).await.err().unwrap();
    assert!(matches!(refused, NotRecorded::Stale(CurrentState::Done(_))), "{refused:?}");
    assert_eq!(shop.orders().await, 1);
}

#[tokio::test]
async fn killed_connection_leaves_neither_effect_nor_outcome() {
    let (mut shop, key) = (Shop::open().await, key("order"));
    let token = granted(&shop.ledger, &key).await.token;
    let transaction = shop.order(&key, token).await.unwrap();
    let pid: i32 = transaction.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let killer = TestSchema::new().client().await;
    killer.execute("SELECT pg_terminate_backend($1)", &[&pid]).await.unwrap();
    transaction.commit().await.unwrap_err();
    assert!(matches!(claim(&shop.ledger, &request(&key)).await, Claim::Held { .. }));
    assert_eq!(shop.orders().await, 0);
}

#[tokio::test]
async fn a_claim_is_answered_while_its_completion_is_not_committed() {
    let (mut shop, key) = (Shop::open().await, key("order"));
    let token = granted(&shop.ledger, &key).await.token;
    let other = Postgres::connect(&shop.test_schema.url()).await.unwrap();
    let waits = TestSchema { schema: shop.test_schema.schema.clone() };
    let transaction = shop.order(&key, token).await.unwrap();
    assert!(matches!(claim(&other, &request(&key)).await, Claim::Held { .. }));
    // Another settlement of the claim waits, and then finds that its snapshot is out of date.
    let renewal = tokio::spawn({
        let key = key.clone();
        async move { (other.settle(&key, token, &Settle::Renew { lease_ms: 1 }).await, other) }
    });
    waits.waits_for_a_lock().await;
    transaction.commit().await.unwrap();
    let (waited, other) = renewal.await.unwrap();
    assert_eq!(*waited.unwrap_err().kind(), Kind::Contended);
    assert_eq!(claim(&other, &request(&key)).await, Claim::Done(Outcome::kept("ordered")));
}

/// Callers who complete at the same time share a statement. It must not wait for an application's transaction.
#[tokio::test]
async fn completions_of_others_do_not_wait_for_a_transaction() {
    let (mut shop, key) = (Shop::open().await, key("order"));
    let token = granted(&shop.ledger, &key).await.token;
    let ledger = Arc::new(Postgres::connect(&shop.test_schema.url()).await.unwrap());
    let transaction = shop.order(&key, token).await.unwrap();
    let done = Settle::Complete(Outcome::kept("done"));
    // Each of them takes a connection of the pool, which has 16.
    let blocked: Vec<_> = (0..8)
        .map(|_| {
            let (ledger, key, done) = (ledger.clone(), key.clone(), done.clone());
            tokio::spawn(async move { ledger.settle(&key, token, &done).await })
        })
        .collect();
    let others = (0..50).map(|_| {
        let (ledger, done) = (ledger.clone(), done.clone());
        tokio::spawn(async move {
            let key = support::key("other");
            let token = granted(&*ledger, &key).await.token;
            ledger.settle(&key, token, &done).await.unwrap()
        })
    });
    for other in others.collect::<Vec<_>>() {
        let settled = tokio::time::timeout(Duration::from_secs(60), other).await;
        assert_eq!(settled.expect("it waits for the transaction").unwrap(), Settled::Applied);
    }
    assert!(blocked.iter().all(|blocked| !blocked.is_finished()), "the transaction is still open");
    transaction.commit().await.unwrap();
    for blocked in blocked {
        // It was completed by the transaction, with the same token, so a retry would be told that it is.
        match blocked.await.unwrap() {
            Ok(settled) => assert_eq!(settled, Settled::Applied),
            Err(error) => assert_eq!(*error.kind(), Kind::Contended),
        }
    }
}
