//! A server that asks to slow down, and batches that cost one round trip.

use std::time::Duration;

use ichido_core::Claim;
use ichido_core::mark::Mark;
use ichido_ledger::{Effect, Kind, Settings};
use ichido_testkit::ledger_server::LedgerServer;
use ichido_testkit::tcp_proxy::Fault;
use tokio::time::Instant;

use super::{claim, event, key, short_timeouts, warm};

fn throttle(times: usize) -> Fault {
    let body = "{\"__type\":\"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException\",\
                \"message\":\"injected\"}";
    Fault::Answer { to: "PutItem", times, status: 400, body: body.to_owned() }
}

#[tokio::test]
async fn throttled_claim_is_retried_with_growing_pauses() {
    let server = LedgerServer::dynamodb("ICHIDO_TEST_DYNAMODB_URL").await;
    let settings = Settings { backoff: Duration::from_millis(40), ..Settings::default() };
    let (proxy, ledger) = warm(&server, settings).await;
    proxy.set(throttle(3));
    let started = Instant::now();
    let answer = claim(&ledger, &ledger.request(key())).await;
    assert!(matches!(answer, Claim::Granted(_)), "{answer:?}");
    assert_eq!(proxy.faults(), 3);
    // Three pauses of 40, 80 and 160 ms, of which jitter may remove half.
    assert!(started.elapsed() >= Duration::from_millis(20 + 40 + 80), "{:?}", started.elapsed());
}

#[tokio::test]
async fn endless_throttling_is_its_own_error() {
    let server = LedgerServer::dynamodb("ICHIDO_TEST_DYNAMODB_URL").await;
    let (proxy, ledger) = warm(&server, short_timeouts()).await;
    proxy.set(throttle(usize::MAX));
    let error = ledger.claim(&ledger.request(key())).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (&Kind::Throttled, Effect::None), "{error:?}");
    assert!(error.is_outage());
    // Pauses of 25 ms that double: no storm of requests within one second.
    assert!((2..=8).contains(&proxy.faults()), "{} tries", proxy.faults());
}

async fn a_batch_is_one_round_trip(server: &LedgerServer) {
    let (proxy, ledger) = warm(server, Settings::default()).await;
    let batch: Vec<_> = (0..100).map(|_| ledger.mark_request(event())).collect();
    let before = proxy.requests();
    let marked = ledger.mark(&batch).await.unwrap();
    assert!(marked.iter().all(|marked| marked.mark == Mark::New));
    // A burst of bytes may arrive in two reads.
    let bursts = proxy.requests() - before;
    assert!((1..=2).contains(&bursts), "{bursts} bursts for 100 marks");
}

#[tokio::test]
async fn a_batch_of_a_hundred_marks_is_one_round_trip_on_postgres() {
    a_batch_is_one_round_trip(&LedgerServer::postgres().await).await;
}

#[tokio::test]
async fn a_batch_of_a_hundred_marks_is_one_round_trip_on_redis() {
    a_batch_is_one_round_trip(&LedgerServer::redis().await).await;
}
