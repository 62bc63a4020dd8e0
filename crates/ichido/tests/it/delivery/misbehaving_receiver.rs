//! Receivers that refuse, lie, or are not who they say they are.

use serde_json::json;

use super::Stage;
use super::receiver::{Identity, Receiver, Reply, Seen, TOKEN};

fn refuses(bad: &'static [&'static str]) -> impl FnMut(&Seen) -> Reply + Send {
    move |seen| match seen.ids.iter().find(|id| bad.contains(&id.as_str())) {
        Some(id) => Reply::Say(422, format!("{{\"error\":\"record {id}: no usage_date\"}}")),
        None => Reply::Take,
    }
}

#[test]
fn one_bad_record_is_found_and_the_good_ones_arrive_once() {
    let stage = Stage::new();
    stage.receiver.does(refuses(&["e37"]));
    let run = stage.send(64, &[]);
    run.ends_with(4);
    assert!(stage.receiver.seen().len() <= 2 * 6 + 1, "{}", stage.receiver.seen().len());
    assert_eq!(stage.receiver.counts().len(), 63);
    assert!(stage.receiver.counts().values().all(|count| *count == 1));
    let files = stage.files("failed");
    let [(_, file)] = files.as_slice() else { panic!("{files:?}") };
    assert_eq!(file["records"], json!([{"source_event_id": "e37"}]));
    assert!(file["lastError"].as_str().unwrap().contains("record e37: no usage_date"), "{file}");
    assert!(stage.files("spool").is_empty());
}

#[test]
fn a_body_that_is_too_large_is_halved_until_it_fits() {
    let stage = Stage::new();
    stage.receiver.does(|seen| match seen.ids.len() > 10 {
        true => Reply::Say(413, String::new()),
        false => Reply::Take,
    });
    stage.send(100, &[]).ends_with(0);
    stage.receiver.has_each_once(100);
}

#[test]
fn a_receiver_that_refuses_everything_alike_holds_the_lane() {
    let stage = Stage::new();
    stage.receiver.does(|seen| Reply::Say(400, format!("unknown tenant (request {})", seen.key)));
    let run = stage.send(300, &[]);
    run.ends_with(3);
    assert!(run.stderr.contains("every record is rejected with the same message"), "{}", run.stderr);
    assert_eq!(stage.receiver.seen().len(), 13, "down to the first record of each half");
    assert!(stage.files("failed").is_empty());
    let waiting: usize =
        stage.files("spool").iter().map(|(_, file)| file["records"].as_array().unwrap().len()).sum();
    assert_eq!(waiting, 300);
    stage.receiver.does(|_| Reply::Take);
    stage.run(&["spool", "resend"], &[]).ends_with(0);
    stage.receiver.has_each_once(300);
}

#[test]
fn a_result_for_each_record_leaves_only_what_may_be_retried() {
    let stage = Stage::new();
    let results = r#"{"results":[{"status":"inserted"},{"status":503},{"status":422,"error":"no model"}]}"#;
    stage.receiver.plays([Reply::Say(207, results.to_owned())]);
    stage.send(3, &[]).ends_with(4);
    let seen = stage.receiver.seen();
    assert_eq!((seen.len(), &seen[1].ids), (2, &vec!["e1".to_owned()]));
    let files = stage.files("failed");
    assert_eq!(files[0].1["records"], json!([{"source_event_id": "e2"}]));
    assert!(files[0].1["lastError"].as_str().unwrap().contains("no model"));
}

#[test]
fn conflicts_of_single_records_are_taken_apart() {
    let stage = Stage::new();
    stage.receiver.does(|seen| match (seen.ids.contains(&"e2".to_owned()), seen.ids.len()) {
        (true, _) => Reply::Say(409, String::new()),
        (false, _) => Reply::Take,
    });
    stage.send(8, &[("EXTERNAL_API_CONFLICT", "record")]).ends_with(0);
    assert_eq!(stage.receiver.counts().len(), 7, "the one that was there before is a duplicate");
}

#[test]
fn nothing_is_sent_to_a_receiver_that_cannot_prove_who_it_is() {
    for identity in [Identity::OtherHost, Identity::Expired, Identity::Unknown] {
        let mut stage = Stage::new();
        stage.receiver = Receiver::start_as(stage.dir.path(), identity);
        let run = stage.send(200, &[]);
        run.ends_with(3);
        assert!(stage.receiver.seen().is_empty(), "{identity:?}");
        assert_eq!(stage.files("spool").len(), 2);
        assert!(
            run.stderr.contains("the lane is held until an operator acts: tls"),
            "{identity:?}: {}",
            run.stderr
        );
        assert!(run.log("not delivered").iter().all(|line| line["errorKind"] == "tls"));
    }
}

#[test]
fn a_redirect_is_not_followed() {
    let stage = Stage::new();
    stage.receiver.does(|_| Reply::SayWith(307, "location", "https://elsewhere.example/".to_owned()));
    stage.send(1, &[]).ends_with(3);
    assert_eq!(stage.receiver.seen().len(), 1);
}

#[test]
fn a_receiver_that_is_not_there_is_retried_and_then_waited_for() {
    let stage = Stage::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let nowhere = format!("https://127.0.0.1:{port}/");
    let run = stage.send(1, &[("EXTERNAL_API_ENDPOINT", &nowhere)]);
    run.ends_with(3);
    assert_eq!(run.log("not delivered").len(), 4);
    let unknown =
        stage.send(1, &[("EXTERNAL_API_ENDPOINT", "https://no-such-host.invalid/"), ("MAX_RETRIES", "0")]);
    unknown.ends_with(3);
    assert!(unknown.log("not delivered").iter().all(|line| line["errorKind"] == "network"));
    assert_eq!(stage.files("spool").len(), 1, "the same batch is one file");
}

#[test]
fn a_token_that_the_receiver_echoes_is_masked_everywhere() {
    let stage = Stage::new();
    let echo = format!("{{\"you\":\"Bearer {TOKEN}\"}}");
    for (status, code) in [(503, 3), (401, 3), (422, 4)] {
        let echo = echo.clone();
        stage.receiver.does(move |_| Reply::Say(status, echo.clone()));
        // The run itself asserts that its standard error holds no token.
        let run = stage.send(1, &[("MAX_RETRIES", "0")]);
        run.ends_with(code);
        assert!(run.log("not delivered")[0]["response"].as_str().unwrap().contains("Bearer ***"));
        stage.holds_no_token();
    }
}
