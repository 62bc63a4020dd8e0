use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp(1_700_000_000_000);

fn answered(status: u16, body: &str) -> Exchange {
    Exchange::Answered(Answer { status, body: body.as_bytes().to_vec(), ..Answer::default() })
}

fn verdict(status: u16) -> Verdict {
    classify(&answered(status, ""), 2, Conflict::Batch, NOW)
}

#[test]
fn each_status_has_the_verdict_of_the_table() {
    let retry = Verdict::Retry { not_before: None };
    for status in [200, 201, 202, 204, 207] {
        assert_eq!(verdict(status), Verdict::Delivered { duplicate: false }, "{status}");
    }
    assert_eq!(verdict(409), Verdict::Delivered { duplicate: true });
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
fn trouble_on_the_way_is_retried_and_trouble_with_certificates_holds() {
    let of = |kind| {
        let trouble = Trouble { kind, message: String::new() };
        classify(&Exchange::Failed(trouble), 1, Conflict::Batch, NOW)
    };
    assert_eq!(of(TroubleKind::Network), Verdict::Retry { not_before: None });
    assert_eq!(of(TroubleKind::Timeout), Verdict::Retry { not_before: None });
    assert_eq!(of(TroubleKind::Tls), Verdict::Hold);
}

#[test]
fn a_conflict_is_about_the_batch_or_about_a_record() {
    let of = |body: &str, records, conflict| classify(&answered(409, body), records, conflict, NOW);
    let duplicate = Verdict::Delivered { duplicate: true };
    assert_eq!(of(r#"{"error":"duplicate batch detected"}"#, 3, Conflict::Batch), duplicate);
    assert_eq!(of("", 3, Conflict::Record), Verdict::Split);
    assert_eq!(of("", 1, Conflict::Record), duplicate);
    let all = r#"{"results":[{"status":"duplicate"},{"status":"conflict"}]}"#;
    assert_eq!(of(all, 2, Conflict::Record), duplicate);
    let in_flight = r#"{"type":"/.well-known/idempotency/in-flight","status":409}"#;
    assert_eq!(of(in_flight, 3, Conflict::Batch), Verdict::Retry { not_before: None });
    let in_doubt = r#"{"type":"https://x/.well-known/idempotency/in-doubt"}"#;
    assert_eq!(of(in_doubt, 3, Conflict::Batch), Verdict::Hold);
}

#[test]
fn a_result_for_each_record_decides_for_each() {
    let body = r#"{"results":[{"status":"inserted"},{"status":503},{"status":422,"error":"no date"},{"status":409}]}"#;
    let Verdict::Mixed(fates) = classify(&answered(207, body), 4, Conflict::Batch, NOW) else { panic!() };
    assert_eq!(fates[0], Fate::Arrived);
    assert_eq!(fates[1], Fate::Retry);
    assert!(matches!(&fates[2], Fate::Refused(words) if words.contains("no date")));
    assert_eq!(fates[3], Fate::Arrived);
    // Results that do not fit the request say nothing.
    let delivered = Verdict::Delivered { duplicate: false };
    assert_eq!(classify(&answered(200, body), 3, Conflict::Batch, NOW), delivered);
    assert_eq!(
        classify(&answered(200, r#"{"results":[{"status":"?"}]}"#), 1, Conflict::Batch, NOW),
        delivered
    );
}

#[test]
fn results_that_were_too_long_to_read_are_asked_for_in_parts() {
    let body = br#"{"results":[{"status":"inserted"},"#.to_vec();
    let cut = Exchange::Answered(Answer { status: 200, body, cut: true, ..Answer::default() });
    assert_eq!(classify(&cut, 2, Conflict::Batch, NOW), Verdict::Split);
    let plain =
        Exchange::Answered(Answer { status: 200, body: vec![b' '; 9], cut: true, ..Answer::default() });
    assert_eq!(classify(&plain, 2, Conflict::Batch, NOW), Verdict::Delivered { duplicate: false });
}

#[test]
fn retry_after_is_seconds_or_a_date() {
    assert_eq!(retry_after("7", NOW), Some(NOW + 7_000));
    assert_eq!(retry_after(" 0 ", NOW), Some(NOW));
    assert_eq!(retry_after("Tue, 14 Nov 2023 22:13:27 GMT", NOW), Some(NOW + 7_000));
    assert_eq!(retry_after("99999999999999999999999", NOW), Some(Timestamp(u64::MAX)));
    for text in ["", "-1", "1.5", "soon", "7 s", "Tue, 99 Nov 2023 22:13:27 GMT"] {
        assert_eq!(retry_after(text, NOW), None, "{text}");
    }
}

#[test]
fn an_exchange_is_told_as_in_the_seed() {
    assert_eq!(answered(503, "x").short(), "HTTP 503 Service Unavailable");
    assert_eq!(answered(599, "x").short(), "HTTP 599");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn no_answer_is_too_odd_to_be_classified(status: u16, retry_after: Option<String>, body: Vec<u8>, records in 1usize..5) {
        let exchange = Exchange::Answered(Answer { status, retry_after, body, cut: false });
        for conflict in [Conflict::Batch, Conflict::Record] {
            let verdict = classify(&exchange, records, conflict, NOW);
            // Only an answer that says so ends a batch.
            if matches!(verdict, Verdict::Delivered { .. }) {
                prop_assert!(matches!(status, 200..=299 | 409));
            }
        }
    }
}
