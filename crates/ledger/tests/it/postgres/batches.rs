//! A batch that fails halfway must not claim that nothing happened.

use std::sync::Arc;
use std::time::Duration;

use ichido_core::mark::{self, Mark};
use ichido_ledger::{Backend, Effect, Kind};
use ichido_testkit::ledger_server::unique;

use super::TestSchema;
use crate::support::mark_request;

/// A mark by another process, as stored in the table.
fn insert(request: &mark::Request, nonce: &str) -> String {
    let (index, key) = (request.key.index(), request.key.text());
    format!(
        "INSERT INTO ichido.marks VALUES \
         ('\\x{index}', '{key}', '\\x{nonce}', 0, 9000000000000, '{{}}')"
    )
}

async fn assert_marked(ledger: &dyn Backend, request: &mark::Request) {
    let again = ledger.mark(&[mark_request(request.key.text())]).await.unwrap();
    assert!(matches!(again[..], [Mark::Seen { .. }]), "{again:?}");
}

/// Waits until `count` statements on this schema's marks wait for a lock.
async fn until_waiting(test_schema: &TestSchema, count: i64) {
    let waiting = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{}%'",
        test_schema.schema
    );
    let all = async {
        while test_schema.count(&waiting).await < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.unwrap();
}

/// The first round marks one key and gets no result for the other, which a concurrent commit hid from it. Before
/// the second round the table is renamed.
#[tokio::test]
async fn failed_second_round_leaves_the_effect_of_the_first_unknown() {
    let test_schema = TestSchema::new();
    let ledger = Arc::new(test_schema.ledger().await);
    let batch = [mark_request(&unique()), mark_request(&unique())];
    let in_schema = |sql: &str| sql.replace("ichido.", &format!("{}.", test_schema.schema));

    let other = test_schema.client().await;
    other.batch_execute("BEGIN").await.unwrap();
    other.batch_execute(&in_schema(&insert(&batch[1], "00112233445566778899aabbccddeeff"))).await.unwrap();
    let marking = tokio::spawn({
        let (ledger, batch) = (ledger.clone(), batch.clone());
        async move { ledger.mark(&batch).await }
    });
    until_waiting(&test_schema, 1).await;
    let renaming = test_schema.client().await;
    let rename = in_schema("ALTER TABLE ichido.marks RENAME TO taken_away");
    let renaming = tokio::spawn(async move { renaming.batch_execute(&rename).await });
    until_waiting(&test_schema, 2).await;
    other.batch_execute("COMMIT").await.unwrap();

    let error = marking.await.unwrap().unwrap_err();
    assert!(matches!(error.kind(), Kind::Schema(_)), "{error:?}");
    assert_eq!(error.effect(), Effect::Unknown, "{error:?}");
    renaming.await.unwrap().unwrap();
    test_schema.execute("ALTER TABLE ichido.taken_away RENAME TO marks").await;
    assert_marked(&*ledger, &batch[0]).await;
}

#[tokio::test]
async fn unreadable_mark_leaves_the_rest_of_its_batch_unknown() {
    let test_schema = TestSchema::new();
    let ledger = test_schema.ledger().await;
    let batch = [mark_request(&unique()), mark_request(&unique())];
    test_schema.execute(&insert(&batch[1], "0011")).await;
    let error = ledger.mark(&batch).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Corrupt(_)), "{error:?}");
    assert_eq!(error.effect(), Effect::Unknown, "{error:?}");
    assert_marked(&ledger, &batch[0]).await;
}
