//! What statements and budgets need of every store.

use std::sync::Arc;

use ichido_meter::batch::{Batch, Context};
use ichido_meter::budget::{Announcement, Budget, Limit};
use ichido_meter::repeats::{Repeats, RepeatsQuery};
use ichido_meter::statement::{Month, Usage, compare};
use ichido_usage::Profile;
use serde_json::{Value, json};

use crate::support::{Database, Meter, record, with};

fn november() -> Month {
    "2025-11".parse().unwrap()
}

async fn repeats(meter: &Meter, month: &str, app: Option<&str>) -> Repeats {
    let query = RepeatsQuery { tenant: "t".to_owned(), month: month.to_owned(), app: app.map(str::to_owned) };
    meter.store.repeats(&query).await.unwrap()
}

async fn count_at(meter: &Meter, at: i64, records: &[Value]) {
    let context = Context { tenant: "t", key: None, received_at: at, profile: meter.profile };
    let batch = Batch::read(json!({"records": records}).to_string().as_bytes(), &context).unwrap();
    meter.store.count(Arc::new(batch)).await.unwrap();
}

pub(crate) async fn repeated_records_are_counted_by_month_and_app(database: Database) {
    let meter = database.open(Profile::UpsertByEventId).await;
    let other_app = with(record("b", 2, 1, "1"), "/metadata/source_app_id", "app-2");
    let october = with(record("o", 1, 1, "1"), "/usage_date", "2025-10-31");
    meter.count("k", &[record("a", 1, 2, "1"), other_app.clone(), october.clone()]).await;
    assert_eq!(repeats(&meter, "2025-11", None).await, Repeats::default());
    meter.count("k", &[record("a", 1, 2, "1"), other_app, october]).await;
    meter.count("l", &[record("a", 1, 3, "1"), record("a", 1, 1, "1"), record("bad", 99, 1, "1")]).await;
    let expected = Repeats { duplicates: 2, stale: 1, replaced: 1, ..Repeats::default() };
    assert_eq!(repeats(&meter, "2025-11", None).await, expected);
    assert_eq!(repeats(&meter, "2025-11", Some("app-1")).await, Repeats { duplicates: 1, ..expected });
    assert_eq!(repeats(&meter, "2025-10", None).await.refused(), 1);
    let first_wins = database.open(Profile::FirstWins).await;
    first_wins.count("m", &[record("a", 1, 9, "1")]).await;
    assert_eq!(repeats(&meter, "2025-11", None).await.conflicts, 1);
}

pub(crate) async fn statement_says_what_was_counted_later_and_what_was_replaced(database: Database) {
    let meter = database.open(Profile::UpsertByEventId).await;
    let jpy = with(record("j", 3, 1, "120"), "/currency", "JPY");
    let other_app = with(record("x", 2, 1, "7"), "/metadata/source_app_id", "app-2");
    count_at(&meter, 1_000, &[record("a", 1, 1, "0.10"), record("b", 30, 2, "0.2"), jpy, other_app]).await;
    count_at(&meter, 1_000, &[with(record("d", 1, 1, "9"), "/usage_date", "2025-12-01")]).await;
    let read = |after| Usage::read(&*meter.store, "t", november(), Some("app-1"), after);
    let first = read(None).await.unwrap();
    assert_eq!(first.usage.rows.len(), 2, "{first:?}");
    let totals = first.usage.totals().unwrap();
    let sums: Vec<_> = totals.iter().map(|total| (&*total.currency, total.sums.cost.as_str())).collect();
    assert_eq!(sums, [("JPY", "120"), ("USD", "0.3")]);

    count_at(&meter, 2_000, &[record("a", 1, 1, "0.10")]).await;
    let same = read(Some(1_500)).await.unwrap();
    assert_eq!((same.usage.digest(), compare(&first.usage, &same)), (first.usage.digest(), vec![]));

    count_at(&meter, 3_000, &[record("b", 30, 5, "0.5"), record("c", 2, 1, "0.05")]).await;
    let later = read(Some(1_500)).await.unwrap();
    assert_ne!(later.usage.digest(), first.usage.digest());
    let [change] = &compare(&first.usage, &later)[..] else { panic!("{later:?}") };
    assert_eq!((change.counted_later, change.replaced, change.cost_difference.as_str()), (1, 1, "0.35"));
    assert_eq!(change.total_tokens_difference, 60);
}

pub(crate) async fn budget_notice_is_remembered_once(database: Database) {
    let meter = database.open(Profile::FirstWins).await;
    meter.count("k", &[record("a", 1, 1, "79.99"), record("b", 30, 1, "0.01")]).await;
    meter.count("l", &[with(record("c", 1, 1, "50"), "/metadata/source_app_id", "app-2")]).await;
    let budget = |app: Option<&str>, amount: &str| Budget {
        tenant: "t".to_owned(),
        app: app.map(str::to_owned),
        limit: Limit::Cost { amount: amount.parse().unwrap(), currency: "USD".to_owned() },
    };
    let day = november().last();
    let status = budget(Some("app-1"), "100").status(&*meter.store, day).await.unwrap();
    assert_eq!((status.used.as_str(), status.percent, status.month.as_str()), ("80", 80, "2025-11"));
    assert_eq!(budget(None, "100").status(&*meter.store, day).await.unwrap().percent, 130);
    let [reached]: [Announcement; 1] = status.reached().collect::<Vec<_>>().try_into().unwrap();
    assert!(meter.store.announced("2025-11").await.unwrap().is_empty());
    for _ in 0..2 {
        meter.store.note_announced(&reached, 1).await.unwrap();
        let reopened = database.open(Profile::FirstWins).await;
        assert_eq!(reopened.store.announced("2025-11").await.unwrap(), std::slice::from_ref(&reached));
    }
    assert!(meter.store.announced("2025-12").await.unwrap().is_empty());
}
