use proptest::prelude::*;

use super::*;

const THEN: Timestamp = Timestamp(1_737_201_930_000);

fn record(text: &str) -> Record {
    Record::parse(text).unwrap()
}

fn stored() -> StoredBatch {
    let batch = Batch::new(vec![record(r#"{"source_event_id":"a", "n":1.50}"#), record(r#"{"x":"é\/"}"#)]);
    let mut stored = StoredBatch::fresh(batch, THEN);
    stored.note(THEN + 7_000, "HTTP 503 Service Unavailable");
    stored
}

fn decode(bytes: &[u8]) -> Result<StoredBatch, Corrupt> {
    StoredBatch::decode(bytes, false, Timestamp(0))
}

fn sealed(text: &str) -> String {
    format!("{text}{CHECKSUM}{}\"}}\n", to_hex(&Sha256::digest(text)))
}

#[test]
fn file_has_the_documented_fields() {
    let value: serde_json::Value = serde_json::from_slice(&stored().encode(false)).unwrap();
    assert_eq!(value["batchIdempotencyKey"].as_str().unwrap().len(), 64);
    assert_eq!(value["firstAttempt"], "2025-01-18T12:05:30Z");
    assert_eq!(value["retryCount"], 0);
    assert_eq!(value["lastError"], "HTTP 503 Service Unavailable");
    assert_eq!(value["records"].as_array().unwrap().len(), 2);
}

#[test]
fn plain_file_is_read_and_keeps_its_key_and_unknown_fields() {
    let plain = r#"{
        "batchIdempotencyKey": "a3f2e1b9c4d5", "records": [{"a": 1.0}],
        "firstAttempt": "2025-01-18T12:05:30Z", "retryCount": 4, "lastError": "HTTP 503 Service Unavailable",
        "operator": {"note":  "keep"}
    }"#;
    let read = decode(plain.as_bytes()).unwrap();
    assert_eq!((read.batch.key(), read.retry_count, read.first_attempt), ("a3f2e1b9c4d5", 4, THEN));
    let text = String::from_utf8(read.encode(false)).unwrap();
    assert!(text.contains(r#""operator":{"note":  "keep"}"#) && text.contains(r#"[{"a": 1.0}]"#), "{text}");
    assert_eq!(decode(text.as_bytes()).unwrap().batch.key(), "a3f2e1b9c4d5");
}

#[test]
fn file_round_trips_compressed_or_not() {
    let mut before = stored();
    before.not_before = Some(THEN + 99_000);
    before.retry_count = 3;
    for gzip in [false, true] {
        let after = StoredBatch::decode(&before.encode(gzip), gzip, Timestamp(0)).unwrap();
        assert_eq!(after.encode(false), before.encode(false));
    }
}

#[test]
fn every_kind_of_corruption_is_named() {
    let good = stored().encode(false);
    let reason = |bytes: &[u8]| decode(bytes).unwrap_err().to_string();
    assert_eq!(reason(b""), "corrupt: the file is empty");
    assert_eq!(reason(b"{\"records\":\xff[]}"), "corrupt: not UTF-8");
    assert!(reason(&good[..good.len() / 2]).contains("not a valid JSON object"));
    let flipped = String::from_utf8(good.clone()).unwrap().replace("1.50", "1.60");
    assert!(reason(flipped.as_bytes()).contains("checksum"));
    let other = String::from_utf8(good).unwrap().replace("\"retryCount\":0", "\"retryCount\":9");
    assert!(reason(other.as_bytes()).contains("checksum"));
    assert!(reason(br#"{"batchIdempotencyKey":"k"}"#).contains("no records"));
    assert!(reason(br#"{"records":[1]}"#).contains("not a JSON object"));
    assert!(reason(br#"{"records":[{}],"retryCount":-1}"#).contains("retryCount"));
    assert!(reason(br#"{"records":[{}],"firstAttempt":"soon"}"#).contains("firstAttempt"));
    let of_later = sealed(r#"{"records":[{}],"format":2"#);
    assert!(reason(of_later.as_bytes()).contains("another version"));
    assert!(StoredBatch::decode(b"x", true, THEN).unwrap_err().to_string().contains("gzip"));
}

#[test]
fn attempts_are_bounded() {
    let mut stored = stored();
    for pass in 0..100 {
        stored.note(THEN, &format!("error {pass}"));
    }
    assert_eq!(stored.attempts.len(), ATTEMPTS_MAX);
    assert_eq!(stored.attempts.last().unwrap().error, "error 99");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn damage_is_detected_and_does_not_panic(at in 0usize..4_000, to: u8, cut: bool) {
        let good = stored().encode(false);
        let at = at % good.len();
        let mut bad = good.clone();
        if cut { bad.truncate(at) } else { bad[at] = to }
        if let Ok(read) = decode(&bad) {
            // Damage that goes unnoticed has not changed the meaning.
            prop_assert_eq!(read.encode(false), good);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, gzip: bool) {
        let _ = StoredBatch::decode(&bytes, gzip, Timestamp(0));
    }
}

#[test]
fn start_of_a_file_describes_its_batch() {
    let mut batch = stored();
    batch.retry_count = 3;
    batch.not_before = Some(THEN + 60_000);
    batch.note(THEN, "said: \",\"attempts\":\" \\ and \",\"format\":1");
    let (bytes, key) = (batch.encode(false), batch.batch.key().to_owned());
    let head = BatchHeader {
        key,
        first_attempt: THEN,
        retry_count: 3,
        not_before: Some(THEN + 60_000),
        last_error: batch.last_error.clone(),
    };
    assert_eq!(peek_header(&bytes), Some(head.clone()));
    assert_eq!(peek_header(&bytes[..bytes.len() / 2]), Some(head));
    assert_eq!(peek_header(&bytes[..100]), None, "cut off");
    assert_eq!(peek_header(br#"{"records":[{"a":1}],"format":1}"#), None, "not as we write");
    let fresh = StoredBatch::fresh(batch.batch, THEN);
    assert_eq!(peek_header(&fresh.encode(false)).unwrap().last_error, None);
}
