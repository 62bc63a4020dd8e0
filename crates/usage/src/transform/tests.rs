use jiff::civil::date;
use serde_json::json;

use super::*;
use crate::aggregate::{Aggregate, Plan};
use crate::event::{UsageEvent, sample};
use crate::id::Parts;
use crate::mode::Mode;

fn event<'a>(app: &'a str, user: &'a str, currency: &'a str) -> UsageEvent<'a> {
    UsageEvent { currency: currency.into(), requests: 2, ..sample(app, user) }
}

fn sums(plan: Plan, events: &[UsageEvent<'_>]) -> Sums {
    let mut aggregate = Aggregate::new(plan);
    for event in events {
        aggregate.add(&event.clone().check().unwrap()).unwrap();
    }
    aggregate.finish()
}

fn made(transform: Transform, sums: &Sums) -> (Vec<Record>, Vec<String>) {
    let (mut records, mut refused) = (Vec::new(), Vec::new());
    for made in transform.records(sums) {
        match made {
            Ok(outgoing) => records.push(outgoing.record),
            Err(error) => refused.push(error.to_string()),
        }
    }
    (records, refused)
}

#[test]
fn a_record_is_api_meter_s_field_for_field() {
    let app = "dc279ec4-0860-46e2-a789-d4b4238443de";
    let user = "17e91503-c712-4fdb-bcf2-4cd3dbe354ac";
    let sums = sums(Plan::default(), &[event(app, user, "USD")]);
    let transform = Transform { users: false, ..Transform::default() };
    let (records, refused) = made(transform, &sums);
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
fn the_user_is_named_where_that_is_wanted() {
    let sums = sums(Plan::default(), &[event("a", "u", "USD")]);
    let (records, _) = made(Transform::default(), &sums);
    let metadata = &records[0].metadata;
    assert_eq!(metadata.source_user_id.as_deref(), Some("u"));
    assert_eq!(metadata.source_user_type, Some(UserKind::EndUser));
}

#[test]
fn per_app_and_workspace_use_the_empty_user() {
    for (mode, app) in [(Mode::PerApp, "a"), (Mode::Workspace, "")] {
        let sums = sums(Plan { mode, ..Plan::default() }, &[event("a", "u", "USD"), event("a", "v", "USD")]);
        let (records, refused) = made(Transform::default(), &sums);
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
fn weeks_and_months_say_so() {
    for (period, day, method) in [
        (Period::Weekly, date(2025, 11, 24), "weekly_sum"),
        (Period::Monthly, date(2025, 11, 1), "monthly_sum"),
    ] {
        let sums = sums(Plan { period, ..Plan::default() }, &[event("a", "u", "USD")]);
        let (records, _) = made(Transform::default(), &sums);
        assert_eq!((records[0].usage_date, records[0].metadata.aggregation_method.as_str()), (day, method));
    }
}

/// The sorted form of the old exporter gave app `a` with user `b` and app `b` with user `a` one id, and one was lost.
#[test]
fn old_mistake_1_swapped_app_and_user_are_found_and_neither_is_sent() {
    let sums =
        sums(Plan::default(), &[event("a", "b", "USD"), event("b", "a", "USD"), event("c", "d", "USD")]);
    let (records, refused) = made(Transform::default(), &sums);
    assert_eq!((records.len(), refused.len()), (1, 2));
    assert!(
        refused.iter().all(|reason| reason.contains("its app and user are this one's user and app")),
        "{refused:?}"
    );
    for scheme in [Scheme::FixedOrder, Scheme::V2] {
        let (records, _) = made(Transform { scheme, ..Transform::default() }, &sums);
        assert_eq!(records.len(), 3);
    }
}

#[test]
fn old_mistake_1_a_bar_in_a_value_refuses_that_record_alone() {
    let sums =
        sums(Plan::default(), &[event("a|b", "c", "USD"), event("a", "b|c", "USD"), event("a", "c", "USD")]);
    let outcomes: Vec<_> = Transform::default().records(&sums).collect();
    assert_eq!(outcomes.iter().filter(|made| made.is_ok()).count(), 1);
    let refused = outcomes.iter().find_map(|made| made.as_ref().err()).unwrap();
    // What is kept in failed tells what was not sent.
    assert_eq!(refused.record.total_tokens, 42);
    assert_eq!(refused.record.metadata.source_event_id, "");
    let (records, _) = made(Transform { scheme: Scheme::V2, ..Transform::default() }, &sums);
    assert_eq!(records.len(), 3);
}

/// The old exporter added yen to dollars.
#[test]
fn old_mistake_5_two_currencies_of_one_id_are_an_error_and_two_ids_under_v2() {
    let sums = sums(Plan::default(), &[event("a", "u", "USD"), event("a", "u", "JPY")]);
    let (records, refused) = made(Transform::default(), &sums);
    assert_eq!((records.len(), refused.len()), (0, 2));
    assert!(refused[0].ends_with("currency \"JPY\" here, \"USD\" there"), "{refused:?}");
    let (records, _) = made(Transform { scheme: Scheme::V2, ..Transform::default() }, &sums);
    assert_eq!(records.len(), 2);
}

#[test]
fn a_receiver_by_model_and_day_is_sent_no_two_records_of_one() {
    let transform =
        Transform { scheme: Scheme::V2, profile: Profile::UpsertByModelDay, ..Transform::default() };
    let fine = sums(Plan::default(), &[event("a", "u", "USD"), event("b", "u", "USD")]);
    let (records, refused) = made(transform, &fine);
    assert_eq!((records.len(), refused.len()), (0, 2));
    assert!(refused[0].contains("upsert_by_model_day keeps one: app \"a\" here, \"b\" there"), "{refused:?}");
    let plan = Plan { mode: transform.profile.mode(Mode::PerModel), ..Plan::default() };
    let grain = sums(plan, &[event("a", "u", "USD"), event("b", "u", "USD")]);
    assert_eq!(made(transform, &grain).0.len(), 1);
}

#[test]
fn the_same_ids_of_two_tenants_do_not_meet() {
    let mut other = event("a", "u", "USD");
    other.tenant = "t2".into();
    let sums = sums(Plan::default(), &[event("a", "u", "USD"), other]);
    let (records, refused) = made(Transform::default(), &sums);
    assert_eq!((records.len(), refused.len()), (2, 0));
    assert_eq!(records[0].metadata.source_event_id, records[1].metadata.source_event_id);
}

#[test]
fn a_currency_that_is_none_is_refused_with_its_reason() {
    let sums = sums(Plan::default(), &[event("a", "u", "DOLLARS")]);
    let (records, refused) = made(Transform::default(), &sums);
    assert!(records.is_empty());
    assert_eq!(refused, ["currency: must be three capital letters, as in USD"]);
}
