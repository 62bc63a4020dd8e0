use proptest::prelude::*;

use super::*;
use crate::exchange::{BodySent, TransportError};

const NOW: Timestamp = Timestamp(1_700_000_000_000);

fn responded(status: u16, body: &str) -> Exchange {
    Exchange::Responded(Response { status, body: body.as_bytes().to_vec(), ..Response::default() })
}

fn of(exchange: &Exchange, records: usize, conflict: Conflict) -> Verdict {
    let context = BatchContext {
        records,
        conflict,
        tracks_records: false,
        history: &History::default(),
        timeout: Duration::from_secs(30),
        now: NOW,
    };
    classify(exchange, &context, || false)
}

fn verdict(status: u16) -> Verdict {
    of(&responded(status, ""), 2, Conflict::Batch)
}

#[test]
fn each_status_has_its_documented_verdict() {
    let retry = Verdict::Retry { not_before: None };
    for status in [200, 201, 202, 204, 207] {
        assert_eq!(verdict(status), Verdict::Delivered { duplicate: None }, "{status}");
    }
    assert_eq!(verdict(409), Verdict::Delivered { duplicate: Some(Proof::Setting) });
    for status in [408, 425, 429, 500, 502, 503, 504, 507, 520, 599] {
        assert_eq!(verdict(status), retry, "{status}");
    }
    for status in [400, 413, 422] {
        assert_eq!(verdict(status), Verdict::Split, "{status}");
    }
    for status in [301, 302, 307, 308, 401, 403, 404, 405, 407, 410, 415, 501, 505] {
        assert_eq!(verdict(status), Verdict::Hold, "{status}");
    }
}

#[test]
fn network_errors_are_retried_and_tls_errors_hold_the_lane() {
    let transport_error = |kind| {
        let transport_error = TransportError { kind, message: String::new(), sent: BodySent::Complete };
        of(&Exchange::Failed(transport_error), 1, Conflict::Auto)
    };
    assert_eq!(transport_error(TransportErrorKind::Network), Verdict::Retry { not_before: None });
    assert_eq!(transport_error(TransportErrorKind::Timeout), Verdict::Retry { not_before: None });
    assert_eq!(transport_error(TransportErrorKind::Tls), Verdict::Hold);
}

#[test]
fn conflict_is_judged_by_its_evidence() {
    let of = |body: &str, conflict| of(&responded(409, body), 3, conflict);
    let duplicate = |proof| Verdict::Delivered { duplicate: Some(proof) };
    assert_eq!(of(r#"{"error":"duplicate batch detected"}"#, Conflict::Auto), duplicate(Proof::Response));
    assert_eq!(of("", Conflict::Batch), duplicate(Proof::Setting));
    assert_eq!(of("", Conflict::Record), Verdict::Split);
    assert_eq!(of("", Conflict::Auto), Verdict::Ambiguous);
    let in_flight = r#"{"type":"/.well-known/idempotency/in-flight","status":409}"#;
    assert_eq!(of(in_flight, Conflict::Auto), Verdict::Retry { not_before: None });
    let in_doubt = r#"{"type":"https://x/.well-known/idempotency/in-doubt"}"#;
    assert_eq!(of(in_doubt, Conflict::Auto), Verdict::Hold);
}

#[test]
fn each_record_is_treated_by_its_result() {
    let body = r#"{"results":[{"status":"inserted"},{"status":503},{"status":422,"error":"no date"},{"status":409}]}"#;
    let Verdict::Mixed(results) = of(&responded(207, body), 4, Conflict::Batch) else { panic!() };
    assert_eq!(results[0], RecordResult::Delivered);
    assert_eq!(results[1], RecordResult::Retry);
    assert!(matches!(&results[2], RecordResult::Rejected(words) if words.contains("no date")));
    assert_eq!(results[3], RecordResult::Delivered);
    // Results that do not match the request are ignored.
    let delivered = Verdict::Delivered { duplicate: None };
    assert_eq!(of(&responded(200, body), 3, Conflict::Batch), delivered);
    assert_eq!(of(&responded(200, r#"{"results":[{"status":"?"}]}"#), 1, Conflict::Batch), delivered);
}

#[test]
fn truncated_results_split_the_batch() {
    let body = br#"{"results":[{"status":"inserted"},"#.to_vec();
    let cut = Exchange::Responded(Response { status: 200, body, cut: true, ..Response::default() });
    assert_eq!(of(&cut, 2, Conflict::Batch), Verdict::Split);
    let plain =
        Exchange::Responded(Response { status: 200, body: vec![b' '; 9], cut: true, ..Response::default() });
    assert_eq!(of(&plain, 2, Conflict::Batch), Verdict::Delivered { duplicate: None });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn no_response_makes_it_panic(status: u16, retry_after: Option<String>, body: Vec<u8>, records in 1usize..5) {
        let exchange = Exchange::Responded(Response { status, retry_after, body, cut: false });
        for conflict in [Conflict::Auto, Conflict::Batch, Conflict::Record] {
            let verdict = of(&exchange, records, conflict);
            // Only these responses end a batch.
            if matches!(verdict, Verdict::Delivered { .. }) {
                prop_assert!(matches!(status, 200..=299 | 409));
            }
        }
    }
}
