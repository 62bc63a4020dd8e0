use jiff::civil::date;
use serde_json::json;

use super::*;
use crate::aggregate::{Aggregator, Options};
use crate::event::{UsageEvent, sample};
use crate::id::Parts;
use crate::mode::Mode;

fn event<'a>(app: &'a str, user: &'a str, currency: &'a str) -> UsageEvent<'a> {
    UsageEvent { currency: currency.into(), requests: 2, ..sample(app, user) }
}

fn totals(options: Options, events: &[UsageEvent<'_>]) -> Totals {
    let mut aggregate = Aggregator::new(options);
    for event in events {
        aggregate.add(&event.clone().check().unwrap()).unwrap();
    }
    aggregate.finish()
}

fn made(transform: Transform, totals: &Totals) -> (Vec<Record>, Vec<String>) {
    let (mut records, mut refused) = (Vec::new(), Vec::new());
    for made in transform.records(totals) {
        match made {
            Ok(outgoing) => records.push(outgoing.record),
            Err(error) => refused.push(error.to_string()),
        }
    }
    (records, refused)
}

#[test]
fn record_has_the_fields_of_api_meter() {
    let app = "dc279ec4-0860-46e2-a789-d4b4238443de";
    let user = "17e91503-c712-4fdb-bcf2-4cd3dbe354ac";
    let totals = totals(Options::default(), &[event(app, user, "USD")]);
    let transform = Transform { include_users: false, ..Transform::default() };
    let (records, refused) = made(transform, &totals);
    assert!(refused.is_empty());
    let text = serde_json::to_string(&records[0]).unwrap();
    assert!(text.contains("\"cost_actual\":0.0197304,"), "{text}");
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        value,
        json!({
            "usage_date": "2025-11-29",
            "provider": "anthropic",
            "model": "claude-3-5-sonnet-20241022",
            "input_tokens": 12,
            "output_tokens": 30,
            "total_tokens": 42,
            "request_count": 2,
            "cost_actual": 0.0197304,
            "currency": "USD",
            "metadata": {
                "source_system": "dify",
                "source_event_id": "dify-2025-11-29-anthropic-claude-3-5-sonnet-20241022-01785a60786c",
                "source_app_id": app,
                "source_app_name": "Help desk",
                "aggregation_method": "daily_sum",
            },
        })
    );
    assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), records[0]);
}

#[test]
fn user_is_included_on_request() {
    let totals = totals(Options::default(), &[event("a", "u", "USD")]);
    let (records, _) = made(Transform::default(), &totals);
    let metadata = &records[0].metadata;
    assert_eq!(metadata.source_user_id.as_deref(), Some("u"));
    assert_eq!(metadata.source_user_type, Some(UserKind::EndUser));
}

#[test]
fn per_app_and_workspace_use_the_empty_user() {
    for (mode, app) in [(Mode::PerApp, "a"), (Mode::Workspace, "")] {
        let totals =
            totals(Options { mode, ..Options::default() }, &[event("a", "u", "USD"), event("a", "v", "USD")]);
        let (records, refused) = made(Transform::default(), &totals);
        assert_eq!((records.len(), refused.len()), (1, 0));
        let parts = Parts {
            usage_date: date(2025, 11, 29),
            provider: "anthropic",
            model: "claude-3-5-sonnet-20241022",
            app_id: app,
            user_id: "",
            tenant: "t",
            user_kind: UserKind::None,
            currency: "USD",
            period: Period::Daily,
        };
        let metadata = &records[0].metadata;
        assert_eq!(metadata.source_event_id, id::event_id(Scheme::Sorted, &parts).unwrap());
        assert_eq!((metadata.source_app_id.as_str(), &metadata.source_user_id), (app, &None));
    }
}

#[test]
fn aggregation_method_names_weeks_and_months() {
    for (period, day, method) in [
        (Period::Weekly, date(2025, 11, 24), "weekly_sum"),
        (Period::Monthly, date(2025, 11, 1), "monthly_sum"),
    ] {
        let totals = totals(Options { period, ..Options::default() }, &[event("a", "u", "USD")]);
        let (records, _) = made(Transform::default(), &totals);
        assert_eq!((records[0].usage_date, records[0].metadata.aggregation_method.as_str()), (day, method));
    }
}

/// Sorted values give app `a` with user `b` the same id as app `b` with user `a`; a receiver would lose one of them.
#[test]
fn swapped_app_and_user_are_found_and_neither_is_sent() {
    let totals =
        totals(Options::default(), &[event("a", "b", "USD"), event("b", "a", "USD"), event("c", "d", "USD")]);
    let (records, refused) = made(Transform::default(), &totals);
    assert_eq!((records.len(), refused.len()), (1, 2));
    assert!(
        refused.iter().all(|reason| reason.contains("app and user are swapped in the other record")),
        "{refused:?}"
    );
    for scheme in [Scheme::FixedOrder, Scheme::V2] {
        let (records, _) = made(Transform { scheme, ..Transform::default() }, &totals);
        assert_eq!(records.len(), 3);
    }
}

#[test]
fn bar_in_a_value_refuses_only_that_record() {
    let totals = totals(
        Options::default(),
        &[event("a|b", "c", "USD"), event("a", "b|c", "USD"), event("a", "c", "USD")],
    );
    let outcomes: Vec<_> = Transform::default().records(&totals).collect();
    assert_eq!(outcomes.iter().filter(|made| made.is_ok()).count(), 1);
    let refused = outcomes.iter().find_map(|made| made.as_ref().err()).unwrap();
    // The record in failed shows what was not sent.
    assert_eq!(refused.record.total_tokens, 42);
    assert_eq!(refused.record.metadata.source_event_id, "");
    let (records, _) = made(Transform { scheme: Scheme::V2, ..Transform::default() }, &totals);
    assert_eq!(records.len(), 3);
}

#[test]
fn two_currencies_with_one_id_are_refused_and_have_two_ids_under_v2() {
    let totals = totals(Options::default(), &[event("a", "u", "USD"), event("a", "u", "JPY")]);
    let (records, refused) = made(Transform::default(), &totals);
    assert_eq!((records.len(), refused.len()), (0, 2));
    assert!(refused[0].ends_with("currency \"JPY\" here, \"USD\" there"), "{refused:?}");
    let (records, _) = made(Transform { scheme: Scheme::V2, ..Transform::default() }, &totals);
    assert_eq!(records.len(), 2);
}

#[test]
fn receiver_by_model_and_day_gets_one_record_of_each() {
    let transform =
        Transform { scheme: Scheme::V2, profile: Profile::UpsertByModelDay, ..Transform::default() };
    let fine = totals(Options::default(), &[event("a", "u", "USD"), event("b", "u", "USD")]);
    let (records, refused) = made(transform, &fine);
    assert_eq!((records.len(), refused.len()), (0, 2));
    assert!(
        refused[0].contains("upsert_by_model_day keeps only one: app \"a\" here, \"b\" there"),
        "{refused:?}"
    );
    let options = Options { mode: transform.profile.mode(Mode::PerModel), ..Options::default() };
    let grain = totals(options, &[event("a", "u", "USD"), event("b", "u", "USD")]);
    assert_eq!(made(transform, &grain).0.len(), 1);
}

#[test]
fn equal_ids_of_two_tenants_are_no_duplicates() {
    let mut other = event("a", "u", "USD");
    other.tenant = "t2".into();
    let totals = totals(Options::default(), &[event("a", "u", "USD"), other]);
    let (records, refused) = made(Transform::default(), &totals);
    assert_eq!((records.len(), refused.len()), (2, 0));
    assert_eq!(records[0].metadata.source_event_id, records[1].metadata.source_event_id);
}

#[test]
fn invalid_currency_is_refused() {
    let totals = totals(Options::default(), &[event("a", "u", "DOLLARS")]);
    let (records, refused) = made(Transform::default(), &totals);
    assert!(records.is_empty());
    assert_eq!(refused, ["currency: must be three capital letters, as in USD"]);
}
