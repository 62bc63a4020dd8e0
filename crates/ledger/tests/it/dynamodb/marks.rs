//! Marks, and other consumers that share the table.

use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::AttributeValue;
use ichido_core::mark::{self, Mark};
use ichido_core::{Claim, Metadata, Timestamp};
use ichido_ledger::{Backend, Maintain};

use super::support::{START, Server, ask, clock, event, event_key, key, n, s};

/// `START` in whole seconds, and six hours later, rounded up.
const SECONDS: u64 = START.0 / 1000;
const TTL: u64 = SECONDS + 6 * 3600 + 1;

fn metadata() -> Metadata {
    let pairs = [("file_id", "F1"), ("channel_id", "C1"), ("user_id", "U1"), ("lambda_instance_id", "L1")];
    Metadata::new(pairs.map(|(name, value)| (name.to_owned(), value.to_owned()))).unwrap()
}

pub(crate) async fn marks_are_shared_with_other_consumers(server: Server) {
    let ledger = server.ledger(&clock()).await;
    let ours = mark::Request { metadata: metadata(), ..event("Ev1") };
    assert_eq!(ledger.mark(std::slice::from_ref(&ours)).await.unwrap(), [Mark::New]);
    let expected = [
        ("event_key", s("Ev1")),
        ("processed_at", n(SECONDS)),
        ("ttl", n(TTL)),
        ("file_id", s("F1")),
        ("channel_id", s("C1")),
        ("user_id", s("U1")),
        ("lambda_instance_id", s("L1")),
        ("ichido_nonce", s(&ours.nonce.to_string())),
    ];
    assert_eq!(server.item("Ev1").await, Some(expected.map(|(name, value)| (name.to_owned(), value)).into()));

    let put = server.client().await.put_item().table_name(&server.table).item("event_key", s("Ev1"));
    let refused = put.condition_expression("attribute_not_exists(event_key)").send().await.unwrap_err();
    assert_eq!(
        refused.code(),
        Some("ConditionalCheckFailedException"),
        "other consumers of the table see our mark"
    );

    let theirs =
        [("event_key", s("Ev2")), ("processed_at", n(SECONDS - 60)), ("ttl", n(TTL)), ("file_id", s("F2"))];
    server.put(&theirs).await;
    let seen = ledger.mark(&[event("Ev2")]).await.unwrap();
    let first_seen = Timestamp((SECONDS - 60) * 1000);
    let metadata = Metadata::new([("file_id".to_owned(), "F2".to_owned())]).unwrap();
    assert_eq!(seen, [Mark::Seen { first_seen, metadata }]);
}

pub(crate) async fn foreign_items_of_other_types_are_read(server: Server) {
    let ledger = server.ledger(&clock()).await;
    let odd = [
        ("event_key", s("Ev1")),
        ("processed_at", s("1799999999.75")),
        ("size", n(7)),
        ("bot", AttributeValue::Bool(false)),
        ("parts", AttributeValue::L(vec![n(1)])),
        ("ichido_nonce", n(1)),
    ];
    server.put(&odd).await;
    let seen = ledger.mark(&[event("Ev1")]).await.unwrap();
    let pairs = [("bot", "false"), ("size", "7")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let metadata = Metadata::new(pairs).unwrap();
    assert_eq!(
        seen,
        [Mark::Seen { first_seen: Timestamp(1_799_999_999_000), metadata }],
        "no ttl: kept for good"
    );
}

pub(crate) async fn expired_mark_is_new_again_before_the_server_removes_it(server: Server) {
    let clock = clock();
    let ledger = server.ledger(&clock).await;
    // Other consumers write a `ttl` of their own, which counts for us as well.
    server.put(&[("event_key", s("Ev1")), ("processed_at", n(SECONDS)), ("ttl", n(SECONDS + 10))]).await;
    clock.jump_to(Timestamp((SECONDS + 10) * 1000 - 1));
    assert!(matches!(ledger.mark(&[event("Ev1")]).await.unwrap()[..], [Mark::Seen { .. }]));
    clock.advance(1);
    assert_eq!(ledger.mark(&[event("Ev1")]).await.unwrap(), [Mark::New]);
    assert!(matches!(ledger.mark(&[event("Ev1")]).await.unwrap()[..], [Mark::Seen { .. }]));
}

pub(crate) async fn mark_that_looks_like_a_claim_does_not_collide(server: Server) {
    let ledger = server.ledger(&clock()).await;
    let request = ask("k1");
    let lookalike = event(&event_key(&key("k1")));
    assert_eq!(ledger.mark(std::slice::from_ref(&lookalike)).await.unwrap(), [Mark::New]);
    assert!(matches!(ledger.claim(&request).await.unwrap(), Claim::Granted(_)));
    assert!(matches!(ledger.mark(&[event(lookalike.key.text())]).await.unwrap()[..], [Mark::Seen { .. }]));
    let stored =
        server.item(&format!("ichido#mark#{}", lookalike.key.index())).await.expect("the escaped mark");
    assert_eq!(stored["ichido_key"], s(lookalike.key.text()));
    let stats = ledger.stats().await.unwrap();
    assert_eq!((stats.running, stats.marks), (Some(1), Some(1)));
}

pub(crate) async fn large_batch_is_answered_in_order(server: Server) {
    let ledger = server.ledger(&clock()).await;
    let first: Vec<_> = (0..200).filter(|i| i % 3 == 0).map(|i| event(&format!("Ev{i}"))).collect();
    assert!(ledger.mark(&first).await.unwrap().iter().all(|mark| *mark == Mark::New));
    let all: Vec<_> = (0..200).map(|i| event(&format!("Ev{i}"))).collect();
    let marks = ledger.mark(&all).await.unwrap();
    for (i, mark) in marks.iter().enumerate() {
        assert_eq!(*mark == Mark::New, i % 3 != 0, "event {i}");
    }
    assert!(ledger.mark(&all).await.unwrap().iter().zip(&marks).all(|(again, first)| again == first));
}
