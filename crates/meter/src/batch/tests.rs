use serde_json::{Value, json};

use super::*;

fn record(id: &str) -> Value {
    json!({
        "usage_date": "2025-11-29", "provider": "anthropic", "model": "claude", "input_tokens": 10,
        "output_tokens": 5, "total_tokens": 15, "request_count": 2, "cost_actual": 1.5, "currency": "USD",
        "metadata": {"source_system": "dify", "source_event_id": id, "source_app_id": "a", "source_app_name": "A",
                     "aggregation_method": "daily_sum"},
    })
}

fn read(body: &Value) -> Result<Batch, Refusal> {
    let about = About { tenant: "t", key: Some("head"), received_at: 1, profile: Profile::FirstWins };
    Batch::read(body.to_string().as_bytes(), &about)
}

fn only(record: Value) -> Entry {
    read(&json!({ "records": [record] })).unwrap().entries.remove(0)
}

fn item(record: Value) -> Item {
    match only(record) {
        Entry::Good(item) => *item,
        Entry::Bad { fault, .. } => panic!("{fault:?}"),
    }
}

#[test]
fn both_envelopes_are_understood() {
    let plain = read(&json!({"batchIdempotencyKey": "k", "records": [record("e")]})).unwrap();
    assert_eq!((plain.key.as_deref(), plain.exported_at), (Some("k"), None));
    let export = json!({"export_timestamp": "1970-01-01T00:00:01.5Z", "exporter_version": "1"});
    let body = json!({"tenant_id": "t", "export_metadata": export, "records": [record("e")]});
    let enveloped = read(&body).unwrap();
    assert_eq!((enveloped.key.as_deref(), enveloped.exported_at), (Some("head"), Some(1500)));
    let other = json!({"tenant_id": "u", "export_metadata": export, "records": [record("e")]});
    assert_eq!(read(&other).unwrap_err(), Refusal::OtherTenant);
}

#[test]
fn a_body_that_is_not_understood_names_the_field() {
    let export = json!({"export_timestamp": "yesterday"});
    for (body, field) in [
        (json!([]), "."),
        (json!({}), "."),
        (json!({"records": {}}), "records"),
        (json!({"records": []}), "records"),
        (json!({"records": [], "batchIdempotencyKey": 1}), "batchIdempotencyKey"),
        (json!({"records": [{}], "batchIdempotencyKey": "k".repeat(256)}), "batchIdempotencyKey"),
        (json!({"records": [{}], "tenant_id": "t"}), "export_metadata"),
        (json!({"records": [{}], "export_metadata": {"export_timestamp": "x"}}), "tenant_id"),
        (
            json!({"records": [{}], "tenant_id": "t", "export_metadata": export}),
            "export_metadata.export_timestamp",
        ),
    ] {
        match read(&body).unwrap_err() {
            Refusal::NotUnderstood(fault) => assert_eq!(fault.field, field, "{body}: {}", fault.reason),
            other @ (Refusal::TooMany | Refusal::OtherTenant) => panic!("{body}: {other:?}"),
        }
    }
}

#[test]
fn a_bad_record_is_named_and_does_not_hide_the_others() {
    let change = |pointer: &str, value: Value| {
        let mut record = record("e");
        *record.pointer_mut(pointer).unwrap() = value;
        record
    };
    let cases = [
        (json!(7), "."),
        (change("/usage_date", json!("2025-02-30")), "usage_date"),
        (change("/usage_date", json!("0000-01-01")), "usage_date"),
        (change("/input_tokens", json!(-1)), "input_tokens"),
        (change("/total_tokens", json!(16)), "total_tokens"),
        (change("/cost_actual", json!("much")), "cost_actual"),
        (change("/cost_actual", json!(-0.5)), "cost_actual"),
        (change("/cost_actual", json!("1000000000000")), "cost_actual"),
        (change("/cost_actual", json!("0.000000000000000000001")), "cost_actual"),
        (change("/currency", json!("usd")), "currency"),
        (change("/request_count", json!(100_000_000_000_000_u64)), "request_count"),
        (change("/provider", json!("a\0b")), "provider"),
        (change("/metadata/source_event_id", json!("")), "metadata.source_event_id"),
        (change("/metadata/source_event_id", json!("e".repeat(1025))), "metadata.source_event_id"),
    ];
    for (bad, field) in cases {
        let batch = read(&json!({"records": [bad, record("good")]})).unwrap();
        let Entry::Bad { fault, .. } = &batch.entries[0] else { panic!("{field} was taken") };
        assert_eq!(fault.field, field, "{}", fault.reason);
        assert!(matches!(batch.entries[1], Entry::Good(_)));
    }
}

#[test]
fn what_is_counted_makes_the_digest_and_labels_do_not() {
    let digest = |pointer: &str, value: Value| {
        let mut record = record("e");
        *record.pointer_mut(pointer).unwrap() = value;
        item(record).kept.digest
    };
    let same = item(record("e")).kept.digest;
    assert_eq!(digest("/cost_actual", json!("1.50")), same);
    assert_eq!(digest("/metadata/source_app_name", json!("renamed")), same);
    for (pointer, value) in [
        ("/cost_actual", json!(1.51)),
        ("/currency", json!("EUR")),
        ("/model", json!("claude-2")),
        ("/request_count", json!(3)),
        ("/metadata/source_app_id", json!("b")),
    ] {
        assert_ne!(digest(pointer, value), same, "{pointer}");
    }
}

#[test]
fn places_by_model_and_day_are_told_apart() {
    let place = |provider: &str, model: &str, currency: &str| {
        let mut record = record("e");
        record["provider"] = json!(provider);
        record["model"] = json!(model);
        record["currency"] = json!(currency);
        let item = item(record);
        slot(&item.record, Profile::UpsertByModelDay)
    };
    assert_eq!(place("a", "b", "USD"), place("a", "b", "USD"));
    assert_ne!(place("a/1:b", "c", "USD"), place("a", "b/1:c", "USD"));
    assert_ne!(place("a", "b", "USD"), place("a", "b", "EUR"));
}

#[test]
fn cost_limit_is_a_million_million() {
    assert_eq!(COST_LIMIT, Decimal::from(1_000_000_000_000_u64));
}
