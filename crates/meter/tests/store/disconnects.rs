//! A sender that disconnects while its batch is being counted.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode};
use ichido_core::SystemClock;
use ichido_meter::access::Tokens;
use ichido_meter::http::ServiceOptions;
use ichido_meter::{Access, service};
use ichido_usage::Profile;
use serde_json::json;
use tower_service::Service as _;

use crate::support::{Database, record};

fn post(body: &serde_json::Value) -> Request<axum::body::Body> {
    let request = Request::post("/v1/usage")
        .header("content-type", "application/json")
        .header("authorization", "Bearer tok-1");
    request.body(axum::body::Body::from(body.to_string())).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_is_counted_even_if_its_sender_disconnects() {
    let database = Database::postgres();
    let meter = database.open(Profile::FirstWins).await;
    let mut service = service(ServiceOptions {
        store: meter.store.clone(),
        access: Access::Tokens(Tokens::parse("t=tok-1").unwrap()),
        profile: Profile::FirstWins,
        body_max_bytes: 1 << 20,
        clock: Arc::new(SystemClock::default()),
    });
    let (schema, mut client) = database.client().await;
    let lock = client.transaction().await.unwrap();
    lock.batch_execute(&format!("LOCK TABLE {schema}.records IN EXCLUSIVE MODE")).await.unwrap();
    let body = json!({"batchIdempotencyKey": "k", "records": [record("e", 1, 1, "1")]});
    let sending = tokio::spawn(service.router.call(post(&body)));
    let waits = format!(
        "SELECT count(*) FROM pg_locks WHERE relation = '{schema}.records'::regclass AND NOT granted"
    );
    while lock.query_one(&waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    sending.abort();
    assert!(sending.await.unwrap_err().is_cancelled());
    lock.rollback().await.unwrap();
    // A retry waits for the first attempt, or comes after it.
    let again = service.router.call(post(&body)).await.unwrap();
    let is_first = again.status() == StatusCode::CREATED;
    assert!(is_first || again.status() == StatusCode::CONFLICT, "{again:?}");
    assert_eq!(meter.sum().await, (1, 15, "1".to_owned()));
    let receipt = loop {
        let receipt = meter.store.receipt("t", "k").await.unwrap();
        if let Some(receipt) = receipt.filter(|receipt| receipt.times == 2) {
            break receipt;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert!(receipt.first.answer.get().contains("\"inserted\":1"));
    service.close().await;
}
