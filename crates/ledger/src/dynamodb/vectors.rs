//! The shared vectors: every implementation that uses the table writes and reads the same items.
//!
//! Each entry is computed again from its inputs and compared with the file. With `ICHIDO_UPDATE_VECTORS=1` the file is
//! written instead, after a deliberate change of the format.

use std::collections::HashMap;
use std::fmt::Debug;
use std::fs;
use std::str::FromStr;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ichido_core::rules::{self, Change};
use ichido_core::{
    Claim, ClaimRequest, CurrentState, Done, Doubt, DoubtReason, Fingerprint, Holder, InDoubtPolicy, Key,
    MarkKey, Metadata, Outcome, Record, Scope, Settle, Settled, State, Timestamp, Token, mark, to_hex,
};
use serde_json::{Map, Value, json};

use super::item::{self, claim_key};
use super::marks;
use super::table::Item;
use crate::Kind;

const VECTORS: &str = include_str!("../../../../packages/vectors/dynamodb-items.json");
const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packages/vectors/dynamodb-items.json");

/// Computes what follows from the inputs of an entry. The records are those of the claims, by name.
type Compute = fn(&mut Value, &HashMap<String, Record>);

#[test]
fn items_match_the_shared_vectors() {
    let expected: Value = serde_json::from_str(VECTORS).unwrap();
    let mut actual = expected.clone();
    let records: HashMap<String, Record> = section(&expected, "claims")
        .iter()
        .map(|entry| (text(entry, "name").to_owned(), record_of(&entry["record"])))
        .collect();
    let sections: [(&str, Compute); 6] = [
        ("keys", key),
        ("marks", mark),
        ("claims", claim),
        ("settlements", settlement),
        ("decisions", decision),
        ("refused", refusal),
    ];
    for (name, compute) in sections {
        let entries = actual[name].as_array_mut().unwrap();
        assert!(entries.len() > 5, "{name}");
        entries.iter_mut().for_each(|entry| compute(entry, &records));
    }
    for entry in actual["api"]["fingerprints"].as_array_mut().unwrap() {
        entry["digest"] = Fingerprint::of(["api", text(entry, "text")]).to_string().into();
    }
    for entry in actual["api"]["nonces"].as_array_mut().unwrap() {
        entry["id"] = to_hex(&Fingerprint::of(["nonce", text(entry, "text")]).as_bytes()[..16]).into();
    }
    if std::env::var_os("ICHIDO_UPDATE_VECTORS").is_some() {
        return fs::write(PATH, serde_json::to_string_pretty(&actual).unwrap() + "\n").unwrap();
    }
    for (name, _) in sections {
        for (actual, expected) in section(&actual, name).iter().zip(section(&expected, name)) {
            assert_eq!(actual, expected, "{name}");
        }
    }
    assert_eq!(actual["api"], expected["api"]);
}

#[test]
fn shared_items_are_read_as_their_records() {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    for entry in section(&vectors, "claims") {
        assert_eq!(
            item::decode(&item_of(&entry["item"])).unwrap(),
            record_of(&entry["record"]),
            "{}",
            entry["name"]
        );
    }
}

fn key(entry: &mut Value, _: &HashMap<String, Record>) {
    let event_key = match entry.get("claim") {
        Some(claim) => claim_key(key_of(claim).index()),
        None => marks::mark_key(&MarkKey::new(text(entry, "mark")).unwrap()),
    };
    entry["event_key"] = event_key.into();
}

fn mark(entry: &mut Value, _: &HashMap<String, Record>) {
    let request = &entry["request"];
    let request = mark::Request {
        key: MarkKey::new(text(request, "key")).unwrap(),
        nonce: parsed(request, "nonce"),
        retention_ms: number(request, "retention_ms"),
        metadata: metadata(request),
    };
    entry["item"] = item_json(&marks::encode(&request, Timestamp(number(entry, "now"))));
}

fn claim(entry: &mut Value, _: &HashMap<String, Record>) {
    entry["item"] = item_json(&item::encode(&record_of(&entry["record"])));
}

fn settlement(entry: &mut Value, records: &HashMap<String, Record>) {
    let before = &records[text(entry, "before")];
    let token: Token = parsed(entry, "token");
    let decision =
        rules::settle(Some(before), token, &action(&entry["action"]), Timestamp(number(entry, "now")));
    entry["result"] = match &decision.result {
        Settled::Applied => "applied",
        Settled::Stale(now) => CurrentState::name(now),
    }
    .into();
    entry["after"] = match &decision.change {
        Change::Keep => item_json(&item::encode(before)),
        Change::Put(record) => item_json(&item::encode(record)),
        Change::Remove => Value::Null,
    };
}

fn decision(entry: &mut Value, records: &HashMap<String, Record>) {
    let before = &records[text(entry, "before")];
    let request = &entry["request"];
    let request = ClaimRequest {
        key: before.key.clone(),
        fingerprint: parsed(request, "fingerprint"),
        caller: request["caller"].as_str().map(|caller| caller.parse().unwrap()),
        nonce: parsed(request, "nonce"),
        token: Token::from_bytes([15; 16]),
        lease_ms: before.lease_ms,
        retention_ms: before.retention_ms,
        holder: before.holder,
        metadata: before.metadata.clone(),
        in_doubt: InDoubtPolicy::Reject,
    };
    let claim = rules::claim(Some(before), &request, Timestamp(number(entry, "now"))).result;
    entry["result"] = match claim {
        Claim::Granted(_) => "granted",
        Claim::Held { .. } => "held",
        Claim::InDoubt(_) => "in-doubt",
        Claim::Done(_) => "done",
        Claim::Mismatch => "mismatch",
        Claim::CallerChanged => "caller-changed",
    }
    .into();
}

/// The attribute to blame is an input: the message must name it.
fn refusal(entry: &mut Value, _: &HashMap<String, Record>) {
    let error = item::decode(&item_of(&entry["item"])).unwrap_err();
    let expected = text(entry, "refused");
    let is_refused = match expected {
        "format" => matches!(error.kind(), Kind::Schema(_)),
        attribute => matches!(error.kind(), Kind::Corrupt(message) if message.contains(attribute)),
    };
    assert!(is_refused, "{}: {error}", entry["name"]);
}

fn record_of(value: &Value) -> Record {
    Record {
        key: key_of(value),
        fingerprint: parsed(value, "fingerprint"),
        caller: value["caller"].as_str().map(|caller| caller.parse().unwrap()),
        nonce: parsed(value, "nonce"),
        token: parsed(value, "token"),
        attempt: parsed_number(value, "attempt"),
        holder: match text(value, "holder") {
            "process" => Holder::Process,
            "remote" => Holder::Remote,
            other => panic!("unknown holder {other}"),
        },
        claimed_at: Timestamp(number(value, "claimed_at")),
        renewed_at: Timestamp(number(value, "renewed_at")),
        renewals: parsed_number(value, "renewals"),
        lease_ms: number(value, "lease_ms"),
        retention_ms: number(value, "retention_ms"),
        metadata: metadata(value),
        state: state(&value["state"]),
    }
}

fn state(value: &Value) -> State {
    match text(value, "kind") {
        "running" => State::Running,
        "in-doubt" => {
            let reason = match text(value, "reason") {
                "lease-lapsed" => DoubtReason::LeaseLapsed,
                "holder-gone" => DoubtReason::HolderGone,
                "declared" => DoubtReason::Declared(text(value, "text").to_owned()),
                other => panic!("unknown reason {other}"),
            };
            State::InDoubt(Doubt { since: Timestamp(number(value, "since")), reason })
        }
        "done" => State::Done(Done {
            outcome: outcome(value),
            completed_at: Timestamp(number(value, "completed_at")),
        }),
        other => panic!("unknown state {other}"),
    }
}

fn outcome(value: &Value) -> Outcome {
    match value.get("tombstone") {
        Some(reason) => Outcome::Tombstone(reason.as_str().unwrap().to_owned()),
        None => Outcome::kept(STANDARD.decode(text(value, "outcome")).unwrap()),
    }
}

fn action(value: &Value) -> Settle {
    let (kind, inner) = value.as_object().unwrap().iter().next().unwrap();
    match kind.as_str() {
        "renew" => Settle::Renew { lease_ms: number(inner, "lease_ms") },
        "complete" => Settle::Complete(outcome(inner)),
        "release" => Settle::Release,
        "doubt" => Settle::Doubt(text(inner, "reason").to_owned()),
        other => panic!("unknown action {other}"),
    }
}

fn key_of(value: &Value) -> Key {
    Key::new(Scope::new(text(value, "tenant"), text(value, "route")), text(value, "key")).unwrap()
}

fn metadata(value: &Value) -> Metadata {
    serde_json::from_value(value["metadata"].clone()).unwrap()
}

/// DynamoDB JSON, with bytes as base64.
fn item_json(item: &Item) -> Value {
    Value::Object(item.iter().map(|(name, value)| (name.clone(), attribute_json(value))).collect())
}

fn attribute_json(value: &AttributeValue) -> Value {
    let json = value
        .as_s()
        .map(|text| json!({ "S": text }))
        .or_else(|value| value.as_n().map(|digits| json!({ "N": digits })))
        .or_else(|value| value.as_b().map(|bytes| json!({ "B": STANDARD.encode(bytes) })))
        .or_else(|value| value.as_m().map(|map| json!({ "M": item_json(map) })));
    json.unwrap_or_else(|value| {
        assert!(value.is_null(), "ichido does not write such a value");
        json!({ "NULL": true })
    })
}

fn item_of(value: &Value) -> Item {
    let fields: &Map<String, Value> = value.as_object().unwrap();
    fields.iter().map(|(name, value)| (name.clone(), attribute(value))).collect()
}

fn attribute(value: &Value) -> AttributeValue {
    let (kind, inner) = value.as_object().unwrap().iter().next().unwrap();
    match kind.as_str() {
        "S" => AttributeValue::S(inner.as_str().unwrap().to_owned()),
        "N" => AttributeValue::N(inner.as_str().unwrap().to_owned()),
        "B" => AttributeValue::B(Blob::new(STANDARD.decode(inner.as_str().unwrap()).unwrap())),
        "M" => AttributeValue::M(item_of(inner)),
        "NULL" => AttributeValue::Null(true),
        other => panic!("unknown type {other}"),
    }
}

fn section<'a>(vectors: &'a Value, name: &str) -> &'a [Value] {
    vectors[name].as_array().unwrap()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("{name} is missing"))
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} is missing"))
}

fn parsed_number<T: TryFrom<u64, Error: Debug>>(value: &Value, name: &str) -> T {
    T::try_from(number(value, name)).unwrap()
}

fn parsed<T: FromStr<Err: Debug>>(value: &Value, name: &str) -> T {
    text(value, name).parse().unwrap()
}
