//! Receivers that reject records, echo secrets, redirect, or present an invalid certificate.

use serde_json::json;

use super::Fixture;
use super::receiver::{Identity, ReceivedRequest, Receiver, Reply, TOKEN};

fn reject_records(bad: &'static [&'static str]) -> impl FnMut(&ReceivedRequest) -> Reply + Send {
    move |request| match request.ids.iter().find(|id| bad.contains(&id.as_str())) {
        Some(id) => Reply::Status(422, format!("{{\"error\":\"record {id}: no usage_date\"}}")),
        None => Reply::Accept,
    }
}

#[test]
fn rejected_record_is_isolated_and_the_others_arrive_once() {
    let fixture = Fixture::new();
    fixture.receiver.on_request(reject_records(&["e37"]));
    let run = fixture.send(64, &[]);
    run.exits_with(4);
    assert!(fixture.receiver.request_count() <= 2 * 6 + 1, "{}", fixture.receiver.request_count());
    assert_eq!(fixture.receiver.counts().len(), 63);
    assert!(fixture.receiver.counts().values().all(|count| *count == 1));
    let files = fixture.files("failed");
    let [(_, file)] = files.as_slice() else { panic!("{files:?}") };
    assert_eq!(file["records"], json!([{"source_event_id": "e37"}]));
    assert!(file["lastError"].as_str().unwrap().contains("record e37: no usage_date"), "{file}");
    assert!(fixture.files("spool").is_empty());
}

#[test]
fn oversized_batch_is_split_until_it_fits() {
    let fixture = Fixture::new();
    fixture.receiver.on_request(|request| match request.ids.len() > 10 {
        true => Reply::Status(413, String::new()),
        false => Reply::Accept,
    });
    fixture.send(100, &[]).exits_with(0);
    fixture.receiver.assert_each_record_once(100);
}

#[test]
fn uniform_rejection_holds_the_lane() {
    let fixture = Fixture::new();
    fixture
        .receiver
        .on_request(|request| Reply::Status(400, format!("unknown tenant (request {})", request.key)));
    let run = fixture.send(300, &[]);
    run.exits_with(3);
    assert!(run.stderr.contains("every record is rejected with the same message"), "{}", run.stderr);
    assert_eq!(fixture.receiver.request_count(), 13, "bisected down to the first record of each half");
    assert!(fixture.files("failed").is_empty());
    let waiting: usize =
        fixture.files("spool").iter().map(|(_, file)| file["records"].as_array().unwrap().len()).sum();
    assert_eq!(waiting, 300);
    fixture.receiver.on_request(|_| Reply::Accept);
    fixture.run(&["spool", "resend"], &[]).exits_with(0);
    fixture.receiver.assert_each_record_once(300);
}

#[test]
fn per_record_results_leave_only_retryable_records() {
    let fixture = Fixture::new();
    let results = r#"{"results":[{"status":"inserted"},{"status":503},{"status":422,"error":"no model"}]}"#;
    fixture.receiver.reply_in_order([Reply::Status(207, results.to_owned())]);
    fixture.send(3, &[]).exits_with(4);
    let requests = fixture.receiver.requests();
    assert_eq!((requests.len(), &requests[1].ids), (2, &vec!["e1".to_owned()]));
    let files = fixture.files("failed");
    assert_eq!(files[0].1["records"], json!([{"source_event_id": "e2"}]));
    assert!(files[0].1["lastError"].as_str().unwrap().contains("no model"));
}

#[test]
fn record_conflict_mode_isolates_the_duplicate_record() {
    let fixture = Fixture::new();
    fixture.receiver.on_request(|request| {
        match (request.ids.contains(&"e2".to_owned()), request.ids.len()) {
            (true, _) => Reply::Status(409, String::new()),
            (false, _) => Reply::Accept,
        }
    });
    fixture.send(8, &[("EXTERNAL_API_CONFLICT", "record")]).exits_with(0);
    assert_eq!(fixture.receiver.counts().len(), 7, "the record that the receiver already has is a duplicate");
}

#[test]
fn nothing_is_sent_to_a_receiver_with_an_invalid_certificate() {
    for identity in [Identity::WrongHost, Identity::Expired, Identity::UntrustedAuthority] {
        let mut fixture = Fixture::new();
        fixture.receiver = Receiver::start_as(fixture.dir.path(), identity);
        let run = fixture.send(200, &[]);
        run.exits_with(3);
        assert!(fixture.receiver.requests().is_empty(), "{identity:?}");
        assert_eq!(fixture.files("spool").len(), 2);
        assert!(
            run.stderr.contains("the lane is held until an operator acts: tls"),
            "{identity:?}: {}",
            run.stderr
        );
        assert!(run.log("not delivered").iter().all(|line| line["errorKind"] == "tls"));
    }
}

#[test]
fn redirect_is_not_followed() {
    let fixture = Fixture::new();
    fixture
        .receiver
        .on_request(|_| Reply::StatusWithHeader(307, "location", "https://elsewhere.example/".to_owned()));
    fixture.send(1, &[]).exits_with(3);
    assert_eq!(fixture.receiver.request_count(), 1);
}

#[test]
fn unreachable_receiver_is_retried_before_spooling() {
    let fixture = Fixture::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let closed_port = format!("https://127.0.0.1:{port}/");
    let run = fixture.send(1, &[("EXTERNAL_API_ENDPOINT", &closed_port)]);
    run.exits_with(3);
    assert_eq!(run.log("not delivered").len(), 4);
    let unknown =
        fixture.send(1, &[("EXTERNAL_API_ENDPOINT", "https://no-such-host.invalid/"), ("MAX_RETRIES", "0")]);
    unknown.exits_with(3);
    assert!(unknown.log("not delivered").iter().all(|line| line["errorKind"] == "network"));
    assert_eq!(fixture.files("spool").len(), 1, "the same batch is spooled as one file");
}

#[test]
fn echoed_token_is_masked_everywhere() {
    let fixture = Fixture::new();
    let echo = format!("{{\"you\":\"Bearer {TOKEN}\"}}");
    for (status, code) in [(503, 3), (401, 3), (422, 4)] {
        let echo = echo.clone();
        fixture.receiver.on_request(move |_| Reply::Status(status, echo.clone()));
        // `Run::of` asserts that standard error does not contain the token.
        let run = fixture.send(1, &[("MAX_RETRIES", "0")]);
        run.exits_with(code);
        assert!(run.log("not delivered")[0]["response"].as_str().unwrap().contains("Bearer ***"));
        fixture.assert_token_not_stored();
    }
}
