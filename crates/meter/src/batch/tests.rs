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
    let context = Context { tenant: "t", key: Some("head"), received_at: 1, profile: Profile::FirstWins };
    Batch::read(body.to_string().as_bytes(), &context)
}

fn only(record: Value) -> Entry {
    read(&json!({ "records": [record] })).unwrap().entries.remove(0)
}

fn item(record: Value) -> ValidRecord {
    match only(record) {
        Entry::Valid(item) => *item,
        Entry::Invalid { fault, .. } => panic!("{fault:?}"),
    }
}

#[test]
fn both_envelopes_are_read() {
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
fn malformed_body_names_the_field() {
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
            Refusal::Malformed(fault) => assert_eq!(fault.field, field, "{body}: {}", fault.reason),
            other @ (Refusal::TooManyRecords | Refusal::OtherTenant) => panic!("{body}: {other:?}"),
        }
    }
}

#[test]
fn invalid_record_is_reported_and_the_others_are_valid() {
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
        let Entry::Invalid { fault, .. } = &batch.entries[0] else { panic!("{field} was taken") };
        assert_eq!(fault.field, field, "{}", fault.reason);
        assert!(matches!(batch.entries[1], Entry::Valid(_)));
    }
}

#[test]
fn digest_covers_what_is_counted_but_no_labels() {
    let digest = |pointer: &str, value: Value| {
        let mut record = record("e");
        *record.pointer_mut(pointer).unwrap() = value;
        item(record).revision.digest
    };
    let same = item(record("e")).revision.digest;
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
fn slots_by_model_and_day_differ() {
    let slot_of = |provider: &str, model: &str, currency: &str| {
        let mut record = record("e");
        record["provider"] = json!(provider);
        record["model"] = json!(model);
        record["currency"] = json!(currency);
        let item = item(record);
        slot(&item.record, Profile::UpsertByModelDay)
    };
    assert_eq!(slot_of("a", "b", "USD"), slot_of("a", "b", "USD"));
    assert_ne!(slot_of("a/1:b", "c", "USD"), slot_of("a", "b/1:c", "USD"));
    assert_ne!(slot_of("a", "b", "USD"), slot_of("a", "b", "EUR"));
}

#[test]
fn cost_limit_is_a_million_million() {
    assert_eq!(COST_LIMIT, Decimal::from(1_000_000_000_000_u64));
}
