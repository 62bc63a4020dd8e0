//! A batch that fails halfway does not say that nothing happened.

use std::sync::Arc;
use std::time::Duration;

use ichido_core::mark::{self, Mark};
use ichido_ledger::{Backend, Effect, Kind};

use crate::Place;
use crate::requests::{marking, unique};

/// A mark of somebody else, as it lies in the table.
fn insert(request: &mark::Request, nonce: &str) -> String {
    let (index, key) = (request.key.index(), request.key.text());
    format!(
        "INSERT INTO ichido.marks VALUES \
         ('\\x{index}', '{key}', '\\x{nonce}', 0, 9000000000000, '{{}}')"
    )
}

async fn assert_marked(ledger: &dyn Backend, request: &mark::Request) {
    let again = ledger.mark(&[marking(request.key.text())]).await.unwrap();
    assert!(matches!(again[..], [Mark::Seen { .. }]), "{again:?}");
}

/// Until so many statements on the place's marks wait for a lock.
async fn until_waiting(place: &Place, count: i64) {
    let waiting = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{}%'",
        place.schema
    );
    let all = async {
        while place.count(&waiting).await < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.unwrap();
}

/// The first round marks one key and is told nothing of the other, which a commit hid from it; before the second the
/// table is taken away.
#[tokio::test]
async fn what_the_first_round_marked_is_not_denied_by_the_second() {
    let place = Place::new();
    let ledger = Arc::new(place.ledger().await);
    let batch = [marking(&unique()), marking(&unique())];
    let in_place = |sql: &str| sql.replace("ichido.", &format!("{}.", place.schema));

    let other = place.client().await;
    other.batch_execute("BEGIN").await.unwrap();
    other.batch_execute(&in_place(&insert(&batch[1], "00112233445566778899aabbccddeeff"))).await.unwrap();
    let marking = tokio::spawn({
        let (ledger, batch) = (ledger.clone(), batch.clone());
        async move { ledger.mark(&batch).await }
    });
    until_waiting(&place, 1).await;
    let renaming = place.client().await;
    let rename = in_place("ALTER TABLE ichido.marks RENAME TO taken_away");
    let renaming = tokio::spawn(async move { renaming.batch_execute(&rename).await });
    until_waiting(&place, 2).await;
    other.batch_execute("COMMIT").await.unwrap();

    let error = marking.await.unwrap().unwrap_err();
    assert!(matches!(error.kind(), Kind::Schema(_)), "{error:?}");
    assert_eq!(error.effect(), Effect::Unknown, "{error:?}");
    renaming.await.unwrap().unwrap();
    place.execute("ALTER TABLE ichido.taken_away RENAME TO marks").await;
    assert_marked(&*ledger, &batch[0]).await;
}

#[tokio::test]
async fn an_unreadable_mark_says_nothing_of_the_rest_of_its_batch() {
    let place = Place::new();
    let ledger = place.ledger().await;
    let batch = [marking(&unique()), marking(&unique())];
    place.execute(&insert(&batch[1], "0011")).await;
    let error = ledger.mark(&batch).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Corrupt(_)), "{error:?}");
    assert_eq!(error.effect(), Effect::Unknown, "{error:?}");
    assert_marked(&ledger, &batch[0]).await;
}
