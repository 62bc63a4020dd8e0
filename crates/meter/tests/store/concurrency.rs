//! Concurrent senders.

use std::sync::Arc;

use ichido_meter::outcome::Outcome;
use ichido_usage::Profile;
use serde_json::json;

use crate::support::{Database, batch, record};

pub(crate) async fn concurrent_batches_are_counted_once(database: Database) {
    // Two meters, sixteen senders, and overlapping records in different orders.
    let meters = [database.open(Profile::FirstWins).await, database.open(Profile::FirstWins).await];
    let senders = (0..16_usize).map(|sender| {
        let store = meters[sender % 2].store.clone();
        tokio::spawn(async move {
            let mut inserted = 0;
            for round in 0..10_usize {
                let mut records: Vec<_> =
                    (0..20).map(|id| record(&format!("e{}", (round * 7 + id) % 60), 1, 1, "0.1")).collect();
                if sender % 3 == 0 {
                    records.reverse();
                }
                let batch = batch(
                    "t",
                    &json!({"batchIdempotencyKey": format!("b{round}"), "records": records}),
                    Profile::FirstWins,
                );
                let outcomes = store.count(Arc::new(batch)).await.unwrap();
                assert!(
                    outcomes.iter().all(|outcome| matches!(outcome, Outcome::Inserted | Outcome::Duplicate))
                );
                inserted += outcomes.iter().filter(|outcome| **outcome == Outcome::Inserted).count();
            }
            inserted
        })
    });
    let senders: Vec<_> = senders.collect();
    let mut inserted = 0;
    for sender in senders {
        inserted += sender.await.unwrap();
    }
    assert_eq!(inserted, 60, "each record is new to exactly one sender");
    assert_eq!(meters[0].sum().await, (60, 900, "6".to_owned()));
    let receipt = meters[0].store.receipt("t", "b0").await.unwrap().unwrap();
    assert_eq!(receipt.times, 16);
}

pub(crate) async fn concurrent_upserts_converge(database: Database) {
    let meters =
        [database.open(Profile::UpsertByEventId).await, database.open(Profile::UpsertByEventId).await];
    let senders = (1..=12_usize).map(|export| {
        let meter = meters[export % 2].clone();
        tokio::spawn(async move {
            let requests = u64::try_from(export).unwrap();
            let mut records: Vec<_> =
                (0..30).map(|id| record(&format!("e{id}"), 1, requests, &requests.to_string())).collect();
            if export % 2 == 0 {
                records.reverse();
            }
            meter.export(i64::try_from(export).unwrap(), &records).await
        })
    });
    let senders: Vec<_> = senders.collect();
    for sender in senders {
        sender.await.unwrap();
    }
    // The last export stays, whatever the order of arrival.
    assert_eq!(meters[0].sum().await, (30 * 12, 30 * 12 * 15, (30 * 12).to_string()));
}
