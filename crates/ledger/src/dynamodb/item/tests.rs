//! Round trips between records and items.

use ichido_core::{Caller, Fingerprint, Nonce, Token};

use super::*;

pub(in crate::dynamodb) fn record(state: State) -> Record {
    Record {
        key: Key::new(Scope::new("tenant", ""), "k1").unwrap(),
        fingerprint: Fingerprint::of(["body"]),
        caller: Some(Caller::from_bytes([5; 32])),
        nonce: Nonce::from_bytes([1; 16]),
        token: Token::from_bytes([2; 16]),
        attempt: 3,
        holder: Holder::Remote,
        claimed_at: Timestamp(1_700_000_000_000),
        renewed_at: Timestamp(1_700_000_010_000),
        renewals: 4,
        lease_ms: 30_000,
        retention_ms: 86_400_500,
        metadata: Metadata::new([("a".to_owned(), String::new()), ("b".to_owned(), "x".to_owned())]).unwrap(),
        state,
    }
}

fn doubt(reason: DoubtReason) -> State {
    State::InDoubt(Doubt { since: Timestamp(1_700_000_020_000), reason })
}

fn done(outcome: Outcome) -> State {
    State::Done(Done { outcome, completed_at: Timestamp(1_700_000_020_001) })
}

#[test]
fn every_state_round_trips() {
    for state in [
        State::Running,
        doubt(DoubtReason::LeaseLapsed),
        doubt(DoubtReason::HolderGone),
        doubt(DoubtReason::Declared("cut off".to_owned())),
        doubt(DoubtReason::Declared(String::new())),
        done(Outcome::kept("answer")),
        done(Outcome::kept("")),
        done(Outcome::Tombstone("too large".to_owned())),
        done(Outcome::Tombstone(String::new())),
    ] {
        let record = record(state);
        assert_eq!(decode(&encode(&record)).unwrap(), record);
        let without = Record { caller: None, ..record };
        assert_eq!(encode(&without)["ichido_format"], number(1), "older versions read it");
        assert_eq!(decode(&encode(&without)).unwrap(), without);
    }
}

#[test]
fn server_may_remove_completed_claims_only() {
    assert!(!encode(&record(State::Running)).contains_key(TTL));
    assert!(!encode(&record(doubt(DoubtReason::LeaseLapsed))).contains_key(TTL));
    let item = encode(&record(done(Outcome::kept("x"))));
    assert_eq!(item[TTL], number(1_700_086_421), "the end of retention, rounded up");
}

#[test]
fn other_formats_are_refused_and_damage_is_named() {
    let mut item = encode(&record(State::Running));
    item.insert("ichido_format".to_owned(), number(3));
    let error = decode(&item).unwrap_err();
    assert!(matches!(error.kind(), Kind::Schema(text) if text.contains("format 3")), "{error}");
    item.remove("ichido_format");
    assert!(matches!(decode(&item).unwrap_err().kind(), Kind::Schema(_)));

    for name in ["ichido_token", "ichido_state", "ichido_renewals", "ichido_key", "ichido_metadata"] {
        let mut item = encode(&record(State::Running));
        item.insert(name.to_owned(), text("?"));
        let error = decode(&item).unwrap_err();
        assert!(matches!(error.kind(), Kind::Corrupt(text) if text.contains(name)), "{error}");
    }
}

#[test]
fn oversized_outcome_becomes_a_tombstone() {
    let largest = Outcome::kept(vec![0; OUTCOME_BYTES]);
    assert_eq!(fitting(&largest), largest);
    let Outcome::Tombstone(reason) = fitting(&Outcome::kept(vec![0; OUTCOME_BYTES + 1])) else {
        panic!("it must not be kept")
    };
    assert_eq!(reason, "the outcome has 358401 bytes; a dynamodb: ledger keeps at most 358400");
}

#[test]
fn listing_reads_everything_but_the_outcome() {
    for record in [record(done(Outcome::kept("answer"))), record(doubt(DoubtReason::LeaseLapsed))] {
        let mut item = encode(&record);
        item.retain(|name, _| {
            WITHOUT_OUTCOME.replace("#ttl", TTL).split(", ").any(|projected| projected.trim() == name)
        });
        assert!(!item.contains_key("ichido_outcome"));
        assert_eq!(decode_without_outcome(&item).unwrap().renewals, record.renewals);
        assert_eq!(outcome_bytes(&item), matches!(record.state, State::Done(_)).then_some(6));
    }
}
