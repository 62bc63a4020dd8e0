//! What every store must guarantee.

use ichido_meter::report::{GroupBy, PageQuery, ReportQuery};
use ichido_meter::{Error, Options, open};
use ichido_usage::Profile;
use serde_json::json;

use crate::support::{Database, record, with};

pub(crate) use crate::concurrency::{concurrent_batches_are_counted_once, concurrent_upserts_converge};
pub(crate) use crate::statements::{
    budget_notice_is_remembered_once, repeated_records_are_counted_by_month_and_app,
    statement_says_what_was_counted_later_and_what_was_replaced,
};

pub(crate) async fn repeated_batch_is_counted_once(database: Database) {
    let meter = database.open(Profile::FirstWins).await;
    let records: Vec<_> = (0..100).map(|id| record(&format!("e{id}"), 1, 2, "0.0000001")).collect();
    assert_eq!(meter.count("k", &records).await, vec!["inserted"; 100]);
    let before = meter.sum().await;
    assert_eq!(before, (200, 3000, "0.00001".to_owned()));
    assert_eq!(meter.count("k", &records).await, vec!["duplicate"; 100]);
    // The same records under another key, in another order, with a new one.
    let mut mixed: Vec<_> = records.iter().rev().take(50).cloned().collect();
    mixed.push(record("new", 1, 1, "0"));
    assert_eq!(
        meter.count("other", &mixed).await.iter().filter(|outcome| **outcome == "inserted").count(),
        1
    );
    assert_eq!(meter.sum().await, (201, 3015, before.2));
}

pub(crate) async fn repeated_record_within_a_batch_is_counted_once(database: Database) {
    let meter = database.open(Profile::FirstWins).await;
    let one = record("e", 1, 1, "1");
    let outcomes = meter.count("k", &[one.clone(), one.clone(), record("e", 1, 2, "1")]).await;
    assert_eq!(outcomes, ["inserted", "duplicate", "conflict"]);
    assert_eq!(meter.sum().await, (1, 15, "1".to_owned()));
    let upserting = database.open(Profile::UpsertByEventId).await;
    let outcomes =
        upserting.count("k", &[record("f", 1, 1, "1"), record("f", 1, 3, "1"), record("f", 1, 2, "1")]).await;
    assert_eq!(outcomes, ["inserted", "updated", "stale"]);
    assert_eq!(meter.sum().await, (4, 60, "2".to_owned()));
}

pub(crate) async fn different_content_under_the_same_id_is_a_conflict_and_the_first_stays(
    database: Database,
) {
    let meter = database.open(Profile::FirstWins).await;
    meter.count("k", &[record("e", 1, 1, "1.50")]).await;
    assert_eq!(meter.count("k", &[record("e", 1, 1, "1.51")]).await, ["conflict"]);
    assert_eq!(meter.count("k", &[with(record("e", 1, 1, "1.5"), "/currency", "EUR")]).await, ["conflict"]);
    assert_eq!(
        meter.count("k", &[with(record("e", 1, 1, "1.5"), "/metadata/source_app_name", "B")]).await,
        ["duplicate"]
    );
    assert_eq!(meter.sum().await, (1, 15, "1.5".to_owned()));
}

pub(crate) async fn invalid_record_does_not_affect_the_others(database: Database) {
    let meter = database.open(Profile::FirstWins).await;
    let outcomes = meter.count("k", &[record("a", 1, 1, "1"), json!({"x": 1}), record("b", 1, 1, "1")]).await;
    assert_eq!(outcomes, ["inserted", "invalid", "inserted"]);
    assert_eq!(meter.count("k", &[json!({})]).await, ["invalid"]);
    assert_eq!(meter.sum().await, (2, 30, "2".to_owned()));
}

pub(crate) async fn tenants_are_isolated(database: Database) {
    let meter = database.open(Profile::FirstWins).await;
    let body = json!({"batchIdempotencyKey": "k", "records": [record("e", 1, 1, "1")]});
    assert_eq!(meter.count_for("t", body.clone()).await, ["inserted"]);
    assert_eq!(meter.count_for("u", body).await, ["inserted"]);
    assert_eq!(meter.sum().await, (1, 15, "1".to_owned()));
    assert!(meter.store.receipt("v", "k").await.unwrap().is_none());
}

pub(crate) async fn sums_are_exact_and_currencies_are_not_mixed(database: Database) {
    let meter = database.open(Profile::FirstWins).await;
    let records = [
        record("a", 1, 1, "0.1"),
        record("b", 1, 1, "0.2"),
        record("c", 1, 1, "999999999999.9999999"),
        record("d", 1, 1, "0.00000000000000000001"),
        with(record("e", 1, 1, "5"), "/currency", "JPY"),
        with(record("f", 1, 1, "7"), "/metadata/aggregation_method", "monthly_sum"),
    ];
    meter.count("k", &records).await;
    let sums = meter.sums(&[]).await;
    let costs: Vec<_> = sums
        .iter()
        .map(|sum| {
            (sum.aggregation_method.as_str(), sum.currency.as_str(), sum.cost_actual.as_str(), sum.records)
        })
        .collect();
    assert_eq!(
        costs,
        [
            ("daily_sum", "JPY", "5", 1),
            ("daily_sum", "USD", "1000000000000.29999990000000000001", 4),
            ("monthly_sum", "USD", "7", 1)
        ]
    );
}

pub(crate) async fn usage_is_grouped_as_requested(database: Database) {
    let meter = database.open(Profile::FirstWins).await;
    let user = |id: &str, day, user: &str| {
        let record = with(record(id, day, 1, "1"), "/metadata/source_user_id", user);
        with(record, "/metadata/source_user_type", "end_user")
    };
    let records = [
        user("a", 1, "u1"),
        user("b", 2, "u1"),
        with(user("c", 2, "u2"), "/model", "gpt"),
        with(record("d", 3, 1, "1"), "/metadata/source_app_id", "app-2"),
    ];
    meter.count("k", &records).await;
    let shown = |groups: Vec<ichido_meter::report::Group>| -> Vec<String> {
        groups
            .into_iter()
            .map(|group| {
                let texts = [group.usage_date, group.model, group.app_id, group.user_id];
                let texts: Vec<_> = texts.into_iter().flatten().collect();
                format!("{} {}", texts.join(" "), group.records)
            })
            .collect()
    };
    assert_eq!(shown(meter.sums(&[GroupBy::Day]).await), ["2025-11-01 1", "2025-11-02 2", "2025-11-03 1"]);
    assert_eq!(shown(meter.sums(&[GroupBy::Model]).await), ["claude 3", "gpt 1"]);
    assert_eq!(shown(meter.sums(&[GroupBy::App]).await), ["app-1 3", "app-2 1"]);
    assert_eq!(shown(meter.sums(&[GroupBy::User]).await), [" 1", "u1 2", "u2 1"]);
    let both = ["2025-11-01 claude 1", "2025-11-02 claude 1", "2025-11-02 gpt 1", "2025-11-03 claude 1"];
    assert_eq!(shown(meter.sums(&[GroupBy::Day, GroupBy::Model]).await), both);
    let day = |text: &str| Some(text.parse().unwrap());
    let query = ReportQuery {
        tenant: "t".to_owned(),
        from: day("2025-11-02"),
        to: day("2025-11-02"),
        group_by: vec![GroupBy::Day],
        ..ReportQuery::default()
    };
    assert_eq!(shown(meter.store.report(&query).await.unwrap()), ["2025-11-02 2"]);
    assert_eq!(meter.sums(&[GroupBy::App]).await[0].app_name.as_deref(), Some("Support"));
}

pub(crate) async fn records_are_paged_in_byte_order(database: Database) {
    let meter = database.open(Profile::FirstWins).await;
    // The order of these letters depends on the collation.
    let ids = ["Z", "a", "ä", "b", "é", "e-1", "e_1"];
    let records: Vec<_> = ids.iter().map(|id| record(id, 1, 1, "1.50")).collect();
    meter.count("k", &records).await;
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let query = PageQuery { tenant: "t".to_owned(), from: None, to: None, after, limit: 3 };
        let page = meter.store.page(&query).await.unwrap();
        assert!(page.records.len() <= 3 && page.records.iter().all(|line| line.cost_actual == "1.5"));
        seen.extend(page.records.into_iter().map(|line| line.source_event_id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let mut sorted: Vec<_> = ids.iter().map(|id| (*id).to_owned()).collect();
    sorted.sort();
    assert_eq!(seen, sorted);
}

pub(crate) async fn receipt_has_the_first_and_the_last_response(database: Database) {
    let meter = database.open(Profile::FirstWins).await;
    meter.count("k", &[record("a", 1, 1, "1"), json!({})]).await;
    meter.count("k", &[record("a", 1, 1, "1"), json!({})]).await;
    meter.count("k", &[record("a", 1, 1, "1")]).await;
    let receipt = serde_json::to_value(meter.store.receipt("t", "k").await.unwrap().unwrap()).unwrap();
    assert_eq!((&receipt["batchIdempotencyKey"], &receipt["times"]), (&json!("k"), &json!(3)));
    assert_eq!(receipt["first"]["at"], "1970-01-01T00:00:01Z");
    let first = &receipt["first"]["answer"];
    assert_eq!(
        (&first["status"], &first["inserted"], &first["invalid"]),
        (&json!(207), &json!(1), &json!(1))
    );
    assert_eq!(first["noted"][0]["status"], "invalid");
    let last = &receipt["last"]["answer"];
    assert_eq!((&last["status"], &last["duplicates"], &last["total"]), (&json!(409), &json!(1), &json!(1)));
    assert!(meter.store.receipt("t", "other").await.unwrap().is_none());
}

pub(crate) async fn record_is_found_by_its_id(database: Database) {
    let meter = database.open(Profile::UpsertByModelDay).await;
    meter.count("k", &[record("a", 1, 5, "5.0"), record("b", 2, 1, "1")]).await;
    let found = meter.store.find("t", "a").await.unwrap().unwrap();
    assert_eq!((&*found.record.source_event_id, found.batch.as_deref()), ("a", Some("k")));
    assert_eq!((found.record.input_tokens, &*found.record.cost_actual), (50, "5"));
    assert!(found.received_at > 0);
    assert!(meter.store.find("other", "a").await.unwrap().is_none());
    assert!(meter.store.find("t", "c").await.unwrap().is_none());
}

pub(crate) async fn later_export_replaces_and_older_one_does_not(database: Database) {
    let meter = database.open(Profile::UpsertByEventId).await;
    assert_eq!(meter.export(10, &[record("e", 1, 5, "5")]).await, ["inserted"]);
    assert_eq!(meter.export(20, &[record("e", 1, 7, "7")]).await, ["updated"]);
    // A batch that was in a spool.
    assert_eq!(meter.export(10, &[record("e", 1, 5, "5")]).await, ["stale"]);
    assert_eq!(meter.export(15, &[record("e", 1, 99, "99")]).await, ["stale"]);
    assert_eq!(meter.sum().await, (7, 105, "7".to_owned()));
    // A correction to a lower count.
    assert_eq!(meter.export(30, &[record("e", 2, 6, "6.0")]).await, ["updated"]);
    assert_eq!(meter.export(30, &[record("e", 2, 6, "6")]).await, ["duplicate"]);
    assert_eq!(meter.sum().await, (6, 90, "6".to_owned()));
    assert_eq!(meter.sums(&[GroupBy::Day]).await[0].usage_date.as_deref(), Some("2025-11-02"));
}

pub(crate) async fn unchanged_record_moves_its_export_time_forward(database: Database) {
    let meter = database.open(Profile::UpsertByEventId).await;
    meter.export(10, &[record("e", 1, 5, "5")]).await;
    // The export of second 20 is still in a spool when that of second 30 finds the same as that of second 10.
    assert_eq!(meter.export(30, &[record("e", 1, 5, "5")]).await, ["duplicate"]);
    assert_eq!(meter.export(20, &[record("e", 1, 7, "7")]).await, ["stale"]);
    assert_eq!(meter.sum().await, (5, 75, "5".to_owned()));
}

pub(crate) async fn without_an_export_time_the_larger_count_stays(database: Database) {
    let meter = database.open(Profile::UpsertByEventId).await;
    assert_eq!(meter.count("a", &[record("e", 1, 5, "5")]).await, ["inserted"]);
    assert_eq!(meter.count("b", &[record("e", 1, 7, "7")]).await, ["updated"]);
    assert_eq!(meter.count("a", &[record("e", 1, 5, "5")]).await, ["stale"]);
    assert_eq!(meter.export(1, &[record("e", 1, 6, "6")]).await, ["updated"]);
    assert_eq!(meter.count("c", &[record("e", 1, 9, "9")]).await, ["stale"]);
    assert_eq!(meter.sum().await, (6, 90, "6".to_owned()));
}

pub(crate) async fn first_wins_even_after_upserts(database: Database) {
    let meter = database.open(Profile::UpsertByEventId).await;
    meter.export(1, &[record("e", 1, 5, "5")]).await;
    let meter = database.open(Profile::FirstWins).await;
    assert_eq!(meter.export(2, &[record("e", 1, 7, "7")]).await, ["conflict"]);
    assert_eq!(meter.sum().await, (5, 75, "5".to_owned()));
}

pub(crate) async fn model_and_day_have_one_record(database: Database) {
    let meter = database.open(Profile::UpsertByModelDay).await;
    let first =
        [record("a", 1, 5, "5"), record("b", 2, 1, "1"), with(record("c", 1, 1, "1"), "/model", "gpt")];
    assert_eq!(meter.export(10, &first).await, ["inserted", "inserted", "inserted"]);
    assert_eq!(meter.export(20, &[record("a", 1, 6, "6")]).await, ["updated"]);
    // Usage that was not added up would overwrite other usage.
    assert_eq!(meter.export(30, &[record("other-app", 1, 9, "9")]).await, ["invalid"]);
    assert_eq!(meter.export(30, &[with(record("eur", 1, 1, "1"), "/currency", "EUR")]).await, ["inserted"]);
    let mut sums = meter.sums(&[]).await;
    assert_eq!((sums.len(), sums.remove(1).request_count), (2, 8));
}

pub(crate) async fn counts_survive_reopening(database: Database) {
    let meter = database.open(Profile::FirstWins).await;
    meter.count("k", &[record("e", 1, 1, "1")]).await;
    meter.store.close().await;
    assert!(meter.store.check().await.is_err());
    let meter = database.open(Profile::FirstWins).await;
    meter.store.check().await.unwrap();
    assert_eq!(meter.count("k", &[record("e", 1, 1, "1")]).await, ["duplicate"]);
}

pub(crate) async fn database_keeps_its_grain(database: Database) {
    database.open(Profile::FirstWins).await;
    let opened = open(&database.url, Options { profile: Profile::UpsertByModelDay }).await;
    let Err(Error::Settings(line)) = opened else { panic!("{opened:?}") };
    assert!(line.contains("counts by event") && line.contains("model_day"), "{line}");
}

pub(crate) async fn erased_user_keeps_the_sums_and_is_not_counted_again(database: Database) {
    let meter = database.open(Profile::FirstWins).await;
    let of = |id: &str, user: &str| with(record(id, 1, 1, "0.5"), "/metadata/source_user_id", user);
    let records = [of("a", "alice"), of("b", "alice"), of("c", "bob")];
    meter.count("k", &records).await;
    let before = meter.sum().await;
    assert_eq!(meter.store.count_user("alice").await.unwrap(), 2);
    assert_eq!(meter.store.erase_user("alice").await.unwrap(), 2);
    assert_eq!((meter.store.count_user("alice").await.unwrap(), meter.sum().await), (0, before.clone()));
    let users: Vec<_> = meter.sums(&[GroupBy::User]).await.into_iter().map(|sum| sum.user_id).collect();
    assert_eq!(users, [Some("bob".to_owned()), Some("erased".to_owned())]);
    assert_eq!(meter.count("k", &records).await, vec!["duplicate"; 3], "a repeat brings nothing back");
    assert_eq!((meter.store.count_user("alice").await.unwrap(), meter.sum().await), (0, before));
    assert_eq!(meter.store.erase_user("nobody").await.unwrap(), 0);
}
