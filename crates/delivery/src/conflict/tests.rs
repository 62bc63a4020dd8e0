use super::*;

const NOW: Timestamp = Timestamp(1_700_000_000_000);
const TIMEOUT: Duration = Duration::from_secs(30);
const MINUTES_5: u64 = 300_000;
const BARE: &str = "";
const RESULTS: &str = r#"{"results":[{"status":"inserted"},{"status":503},{"status":"duplicate"}]}"#;
const IN_FLIGHT: &str = r#"{"type":"/.well-known/idempotency/in-flight","status":409}"#;
const IN_DOUBT: &str = r#"{"type":"https://x/.well-known/idempotency/in-doubt"}"#;
const BATCH: &str = r#"{"error": "duplicate batch detected"}"#;

/// The evidence of a test case; empty by default.
#[derive(Clone, Default)]
struct Case {
    setting: Conflict,
    retry_after: Option<&'static str>,
    one_record: bool,
    tracks_records: bool,
    receipt: bool,
    history: History,
}

impl Case {
    fn judge(&self, body: &str) -> Ruling {
        let response = Response {
            status: 409,
            retry_after: self.retry_after.map(str::to_owned),
            body: body.as_bytes().to_vec(),
            ..Response::default()
        };
        let evidence = Evidence {
            setting: self.setting,
            response: &response,
            records: if self.one_record { 1 } else { 3 },
            tracks_records: self.tracks_records,
            history: &self.history,
            timeout: TIMEOUT,
            now: NOW,
        };
        judge(&evidence, || self.receipt)
    }
}

fn all_evidence() -> Case {
    let history = History { response_lost: Some(NOW), timed_out: Some(NOW), spooled_elsewhere: true };
    Case { tracks_records: true, receipt: true, history, ..Case::default() }
}

#[test]
fn evidence_is_weighed_in_order() {
    // Each step removes the evidence of the previous one; what is left decides.
    let mut case = Case { retry_after: Some("1"), ..all_evidence() };
    assert!(matches!(case.judge(RESULTS), Ruling::Results(results) if results.len() == 3), "1");
    assert_eq!(case.judge(BATCH), Ruling::InProgress, "2: Retry-After");
    case.retry_after = None;
    assert_eq!(case.judge(IN_FLIGHT), Ruling::InProgress, "2: the problem type");
    assert_eq!(case.judge(IN_DOUBT), Ruling::Hold, "3");
    assert_eq!(case.judge(BATCH), Ruling::Known(Proof::Response), "4");
    assert_eq!(case.judge(BARE), Ruling::Split, "5");
    let alone = Case { one_record: true, ..case.clone() };
    assert_eq!(alone.judge(BARE), Ruling::Known(Proof::SingleRecord), "5: one record");
    case.tracks_records = false;
    assert_eq!(case.judge(BARE), Ruling::Known(Proof::Receipt), "6");
    case.receipt = false;
    assert_eq!(case.judge(BARE), Ruling::Unsettled(NOW + MINUTES_5), "7");
    case.history.timed_out = Some(Timestamp(NOW.0 - MINUTES_5 + 1));
    assert_eq!(case.judge(BARE), Ruling::Unsettled(NOW + 1), "7: not yet");
    case.history.timed_out = Some(Timestamp(NOW.0 - MINUTES_5));
    assert_eq!(case.judge(BARE), Ruling::Known(Proof::ResponseLost), "8: the response was lost");
    case.history.response_lost = None;
    assert_eq!(case.judge(BARE), Ruling::Known(Proof::SpooledElsewhere), "8: another program");
    case.history.spooled_elsewhere = false;
    assert_eq!(case.judge(BARE), Ruling::Known(Proof::StillConflicting), "8: long after");
    case.history.timed_out = None;
    assert_eq!(case.judge(BARE), Ruling::Ambiguous, "9");
    assert_eq!(Case { one_record: true, ..case }.judge(BARE), Ruling::Ambiguous, "9: also one record");
}

#[test]
fn batch_setting_accepts_every_409_as_success() {
    let case = Case { setting: Conflict::Batch, retry_after: Some("1"), ..Case::default() };
    for body in [BARE, RESULTS, IN_FLIGHT, IN_DOUBT, BATCH] {
        assert_eq!(case.judge(body), Ruling::Known(Proof::Setting), "{body}");
    }
}

#[test]
fn record_setting_splits_whatever_is_known_about_the_batch() {
    let case = Case { setting: Conflict::Record, tracks_records: false, ..all_evidence() };
    assert_eq!(case.judge(IN_FLIGHT), Ruling::InProgress);
    assert_eq!(case.judge(IN_DOUBT), Ruling::Hold);
    for body in [BARE, BATCH] {
        assert_eq!(case.judge(body), Ruling::Split);
        assert_eq!(Case { one_record: true, ..case.clone() }.judge(body), Ruling::Known(Proof::SingleRecord));
    }
}

#[test]
fn results_that_cover_all_records_prove_delivery() {
    let all = r#"{"results":[{"status":"duplicate"},{"status":"conflict"},{"status":200}]}"#;
    assert_eq!(Case::default().judge(all), Ruling::Known(Proof::Results));
    let counted = r#"{"inserted":0,"duplicates":2,"conflicts":1,"invalid":0,"total":3}"#;
    assert_eq!(Case::default().judge(counted), Ruling::Known(Proof::Results));
    for less in [r#"{"duplicates":1}"#, r#"{"duplicates":3,"invalid":1}"#, r#"{"duplicates":-3}"#] {
        assert_eq!(Case::default().judge(less), Ruling::Ambiguous, "{less}");
    }
}

#[test]
fn slow_receiver_is_given_ten_timeouts() {
    assert_eq!(settled_at(NOW, Duration::from_secs(1)), NOW + MINUTES_5);
    assert_eq!(settled_at(NOW, Duration::from_secs(60)), NOW + 600_000);
    assert_eq!(settled_at(NOW, Duration::MAX), Timestamp(u64::MAX));
}

#[test]
fn request_in_progress_is_recognised() {
    for body in [
        r#"{"type":"urn:ietf:params:idempotency-in-flight"}"#,
        r#"{"error":{"type":"idempotency_error","code":"idempotency_in_flight"}}"#,
        r#"{"error":{"code":"idempotency_key_in_use","message":"There is currently another in-progress request"}}"#,
        r#"{"title":"A request is outstanding for this Idempotency-Key"}"#,
        r#"{"detail":"A request with the same key is being processed."}"#,
        r#"{"code":"RequestInProgress"}"#,
        "still processing",
    ] {
        assert_eq!(Case::default().judge(body), Ruling::InProgress, "{body}");
    }
}

#[test]
fn conflict_that_needs_an_operator_is_recognised() {
    for body in [
        r#"{"error":{"code":"idempotency_in_doubt"}}"#,
        r#"{"type":"/.well-known/idempotency/caller-changed"}"#,
    ] {
        assert_eq!(Case::default().judge(body), Ruling::Hold, "{body}");
    }
}

#[test]
fn duplicate_batch_is_recognised_and_not_confused_with_a_duplicate_record() {
    for body in [
        "duplicate batch detected",
        r#"{"code":"DUPLICATE_BATCH"}"#,
        r#"{"error":{"code":"DuplicateBatch"}}"#,
        r#"{"message":"This batch has already been processed."}"#,
        r#"{"message":"Batch already exists","retryable":false}"#,
        r#"{"type":"https://x/.well-known/idempotency/answer-not-kept","title":"The request was done"}"#,
    ] {
        assert_eq!(Case::default().judge(body), Ruling::Known(Proof::Response), "{body}");
    }
    for body in [
        "{}",
        "duplicate",
        "Conflict",
        r#"{"error":"duplicate batch entry e1"}"#,
        r#"{"error":"batch contains duplicate source_event_id"}"#,
        r#"{"error":"duplicate batch","detail":"record e1 already exists"}"#,
        r#"{"error":"batch already partially processed"}"#,
        r#"{"error":"batch already rejected"}"#,
        r#"{"error":"not a duplicate batch"}"#,
        r#"{"ids":["duplicate batch"]}"#,
        "\u{feff}duplicate\u{0}batches",
    ] {
        assert_eq!(Case::default().judge(body), Ruling::Ambiguous, "{body}");
    }
}

proptest::proptest! {
    #[test]
    fn no_body_makes_it_panic(body: Vec<u8>) {
        let _ = hints::read(&body);
    }
}
