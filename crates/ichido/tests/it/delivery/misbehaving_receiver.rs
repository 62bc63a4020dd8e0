//! Receivers that reject records, echo secrets, redirect, or present an invalid certificate.

use ichido_testkit::certificates::Authority;
use ichido_testkit::receiver::{ReceivedBatch, Reply};
use serde_json::json;

use super::{Fixture, TOKEN};

fn reject_records(bad: &'static [&'static str]) -> impl FnMut(&ReceivedBatch) -> Reply + Send {
    move |request| match request.ids.iter().find(|id| bad.contains(&id.as_str())) {
        Some(id) => Reply::Status(422, format!("{{\"error\":\"record {id}: no usage_date\"}}")),
        None => Reply::Accept,
    }
}

#[test]
fn rejected_record_is_isolated_and_the_others_arrive_once() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(reject_records(&["e37"]));
    let run = fixture.send(64, &[]);
    run.exits_with(4);
    assert!(fixture.receiver.batch_count() <= 2 * 6 + 1, "{}", fixture.receiver.batch_count());
    assert_eq!(fixture.receiver.record_count(), 63);
    assert!(fixture.receiver.counts().values().all(|count| *count == 1));
    let files = fixture.files("failed");
    let [(_, file)] = files.as_slice() else { panic!("{files:?}") };
    assert_eq!(file["records"], json!([{"source_event_id": "e37"}]));
    assert!(file["lastError"].as_str().unwrap().contains("record e37: no usage_date"), "{file}");
    assert!(fixture.files("spool").is_empty());
}

#[test]
fn uniform_rejection_holds_the_lane() {
    let fixture = Fixture::new();
    fixture
        .receiver
        .on_batch(|request| Reply::Status(400, format!("unknown tenant (request {})", request.key)));
    let run = fixture.send(300, &[]);
    run.exits_with(3);
    assert!(run.stderr.contains("every record is rejected with the same message"), "{}", run.stderr);
    // One batch is bisected down to the first record of each half. The others may be under way.
    let requests = fixture.receiver.batch_count();
    assert!((13..=15).contains(&requests), "{requests}");
    assert!(fixture.files("failed").is_empty());
    let waiting: usize =
        fixture.files("spool").iter().map(|(_, file)| file["records"].as_array().unwrap().len()).sum();
    assert_eq!(waiting, 300);
    fixture.receiver.on_batch(|_| Reply::Accept);
    fixture.run(&["spool", "resend"], &[]).exits_with(0);
    fixture.receiver.assert_each_record_once(300);
}

#[test]
fn nothing_is_sent_to_a_receiver_with_an_invalid_certificate() {
    let authority = Authority::new();
    for (problem, identity) in [
        ("wrong host", authority.other_host()),
        ("expired", authority.expired()),
        ("untrusted authority", Authority::new().localhost()),
    ] {
        let fixture = Fixture::with_certificate(&authority, identity);
        let run = fixture.send(200, &[]);
        run.exits_with(3);
        assert!(fixture.receiver.batches().is_empty(), "{problem}");
        assert_eq!(fixture.files("spool").len(), 2);
        assert!(
            run.stderr.contains("the lane is held until an operator acts: tls"),
            "{problem}: {}",
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
        .on_batch(|_| Reply::StatusWithHeader(307, "location", "https://elsewhere.example/".to_owned()));
    fixture.send(1, &[]).exits_with(3);
    assert_eq!(fixture.receiver.batch_count(), 1);
}

#[test]
fn echoed_token_is_masked_everywhere() {
    let fixture = Fixture::new();
    let echo = format!("{{\"you\":\"Bearer {TOKEN}\"}}");
    for (status, code) in [(503, 3), (401, 3), (422, 4)] {
        let echo = echo.clone();
        fixture.receiver.on_batch(move |_| Reply::Status(status, echo.clone()));
        // `Run::of` asserts that standard error does not contain the token.
        let run = fixture.send(1, &[("MAX_RETRIES", "0")]);
        run.exits_with(code);
        assert!(run.log("not delivered")[0]["response"].as_str().unwrap().contains("Bearer ***"));
        fixture.assert_token_not_stored();
    }
}
