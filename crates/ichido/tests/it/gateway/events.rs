//! Events through the gateway: real payloads, signatures, retries, and bots that fail.

use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;

use crate::support::http::{Response, get, send};
use crate::support::{Gateway, Orders, eventually};

pub(super) const FILE_SHARE: &str = include_str!("../payloads/slack-file-share.json");
pub(super) const FILE_SHARED: &str = include_str!("../payloads/slack-file-shared.json");
pub(super) const URL_VERIFICATION: &str = include_str!("../payloads/slack-url-verification.json");
const GITHUB_PUSH: &str = include_str!("../payloads/github-push.json");
pub(super) const STRIPE_PAID: &str = include_str!("../payloads/stripe-payment-succeeded.json");
const CLOUD_EVENT: &str = include_str!("../payloads/cloudevent.json");

const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";
const SLACK: &str = "[[gateway.routes]]\npreset = \"slack-events\"\nmatch = \"POST /slack/events\"\n";

struct Case {
    dir: tempfile::TempDir,
    orders: Orders,
    gateway: Gateway,
}

fn start(settings: &str) -> Case {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let gateway = Gateway::start(dir.path(), orders.address, "file:ledger", settings);
    Case { dir, orders, gateway }
}

fn signed_slack() -> Case {
    start(&format!("{SLACK}slack_signing_secret = \"{SECRET}\"\n"))
}

impl Case {
    fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let mut all = vec![("Content-Type", "application/json")];
        all.retain(|(name, _)| !headers.iter().any(|(other, _)| other == name));
        all.extend_from_slice(headers);
        send(self.gateway.address, "POST", path, &all, body.as_bytes())
    }

    /// Sends an event as Slack does: signed now, unless `headers` say otherwise.
    fn slack(&self, headers: &[(&str, &str)], body: &str) -> Response {
        let time = now().to_string();
        let signature = signature(SECRET, &time, body);
        let mut all =
            vec![("X-Slack-Request-Timestamp", time.as_str()), ("X-Slack-Signature", signature.as_str())];
        all.extend_from_slice(headers);
        self.post("/slack/events", &all, body)
    }

    fn claims(&self) -> Vec<Value> {
        let page = get(self.gateway.admin, "/v1/claims").json();
        page["claims"].as_array().unwrap().clone()
    }

    fn effects(&self) -> usize {
        self.orders.effects().len()
    }
}

pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

pub(super) fn signature(secret: &str, time: &str, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("v0:{time}:{body}").as_bytes());
    format!("v0={}", hex::encode(mac.finalize().into_bytes()))
}

fn retry(number: &str) -> [(&str, &str); 2] {
    [("X-Slack-Retry-Num", number), ("X-Slack-Retry-Reason", "http_timeout")]
}

#[test]
fn an_unsigned_event_under_another_spelling_of_the_path_is_refused() {
    let case = signed_slack();
    for path in ["/slack/events/", "/slack/event%73", "//slack/events", "/Slack/Events"] {
        let answer = case.post(path, &[], FILE_SHARE);
        assert_eq!((answer.status, answer.problem().as_str()), (400, "request-refused"), "{path}");
    }
    assert!(case.orders.effects().is_empty());
    assert_eq!(case.post("/slack/other", &[], "{}").status, 201, "other paths pass");
    assert_eq!(get(case.gateway.address, "/slack/events/").status, 200, "safe requests need no signature");
}

#[test]
fn a_file_shared_in_slack_is_handled_once_however_often_it_is_sent() {
    let case = signed_slack();
    let first = case.slack(&[], FILE_SHARE);
    assert_eq!((first.status, first.is_replay()), (201, false));
    for number in ["1", "2", "3"] {
        let again = case.slack(&retry(number), FILE_SHARE);
        assert_eq!((again.status, again.is_replay(), again.text()), (201, true, first.text()));
    }
    assert!(case.slack(&[], FILE_SHARE).is_replay(), "a retry without retry headers is a retry too");
    assert!(!case.slack(&[], FILE_SHARED).is_replay(), "another event");
    assert_eq!(case.effects(), 2);
    for claim in case.claims() {
        let metadata = &claim["metadata"];
        assert_eq!(
            (&metadata["file_id"], &metadata["channel_id"]),
            (&"F07QUOTE01".into(), &"C0INBOX".into()),
            "{claim}"
        );
        assert_eq!(metadata["user_id"], "U0SATO", "{claim}");
        let pid = case.gateway.process.child.id().to_string();
        assert!(metadata["lambda_instance_id"].as_str().unwrap().starts_with(&pid), "{claim}");
    }
    let counted = "ichido_event_retries_total{route=\"POST /slack/events\",reason=\"http_timeout\",outcome=\"replayed\"} 3";
    let metrics = get(case.gateway.admin, "/metrics").text();
    assert!(metrics.contains(counted), "{metrics}");
    let line = eventually("the log line of the third retry", || {
        let said = case.gateway.process.stderr();
        said.lines().find(|line| line.contains("\"retry_num\":3")).map(ToOwned::to_owned)
    });
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["retry_reason"], &line["outcome"]), (&"http_timeout".into(), &"replayed".into()));
}

#[test]
fn a_wrong_signature_or_timestamp_is_refused_and_claims_nothing() {
    let case = signed_slack();
    let time = now().to_string();
    let refused = |time: Option<&str>, signature: Option<&str>, body: &str| {
        let time = time.map(|time| ("X-Slack-Request-Timestamp", time));
        let signature = signature.map(|signature| ("X-Slack-Signature", signature));
        let headers: Vec<_> = time.into_iter().chain(signature).collect();
        let answer = case.post("/slack/events", &headers, body);
        assert_eq!(answer.status, 401, "{answer:?}");
        (answer.problem(), answer.json()["detail"].as_str().unwrap().to_owned())
    };
    let good = signature(SECRET, &time, FILE_SHARE);
    for (wrong, body) in [
        (Some(signature("another secret", &time, FILE_SHARE)), FILE_SHARE),
        (Some(good.replace("v0=", "v1=")), FILE_SHARE),
        (Some(good.clone()), FILE_SHARED),
        (Some("v0=".to_owned()), FILE_SHARE),
        (None, FILE_SHARE),
        (Some(good.clone()), URL_VERIFICATION),
    ] {
        let (code, detail) = refused(Some(&time), wrong.as_deref(), body);
        assert_eq!(code, "signature-refused");
        assert!(detail.contains("X-Slack-Signature") && !detail.contains(SECRET), "{detail}");
    }
    let (early, late) = ((now() - 400).to_string(), (now() + 400).to_string());
    for wrong in [Some(early.as_str()), Some(late.as_str()), Some("yesterday"), None] {
        let signed = signature(SECRET, wrong.unwrap_or_default(), FILE_SHARE);
        let (code, detail) = refused(wrong, Some(&signed), FILE_SHARE);
        assert_eq!(code, "timestamp-refused");
        assert!(detail.contains("X-Slack-Request-Timestamp"), "{detail}");
    }
    assert_eq!((case.effects(), case.claims().len()), (0, 0));
    assert_eq!(case.slack(&[], FILE_SHARE).status, 201, "refused requests claimed nothing");
    assert!(!case.gateway.process.stderr().contains(SECRET));
}

#[test]
fn the_url_verification_challenge_always_reaches_the_bot() {
    let case = signed_slack();
    for _ in 0..2 {
        let answer = case.slack(&[], URL_VERIFICATION);
        assert_eq!((answer.status, answer.is_replay()), (201, false));
    }
    assert_eq!((case.effects(), case.claims().len()), (2, 0));
    let unkeyed = "ichido_requests_total{route=\"POST /slack/events\",outcome=\"unkeyed\"} 2";
    assert!(get(case.gateway.admin, "/metrics").text().contains(unkeyed));
}

#[test]
fn the_secret_may_come_from_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let settings = format!("{SLACK}slack_signing_secret = \"from the file\"\n");
    let gateway = Gateway::start_with(dir.path(), orders.address, "memory:", &settings, |command| {
        command.env("SLACK_SIGNING_SECRET", SECRET);
    });
    let case = Case { dir, orders, gateway };
    assert_eq!(case.slack(&[], FILE_SHARE).status, 201);
    assert_eq!(case.post("/slack/events", &[], FILE_SHARE).status, 401);
    assert!(case.gateway.process.stderr().contains("POST /slack/events (slack-events)"));
    assert!(case.dir.path().exists());
}

#[test]
fn a_retry_waits_for_the_response_of_a_busy_bot() {
    let case = start(&format!("{SLACK}wait_ms = 20000\n"));
    let address = case.gateway.address;
    let slow = std::thread::spawn(move || {
        send(address, "POST", "/slack/events", &[("X-Trouble", "sleep=0.8")], FILE_SHARE.as_bytes())
    });
    case.orders.started("");
    let again = case.post("/slack/events", &retry("1"), FILE_SHARE);
    assert_eq!(case.effects(), 1, "the bot had responded");
    let first = slow.join().unwrap();
    assert_eq!((again.status, again.is_replay(), again.text()), (201, true, first.text()));
}

#[test]
fn an_event_that_the_bot_failed_on_is_in_doubt_and_does_not_run_again() {
    let case = start(SLACK);
    for (id, trouble, status) in [("Ev1", "status=500", 500), ("Ev2", "status=409", 409), ("Ev3", "cut", 502)]
    {
        let event = format!("{{\"event_id\":\"{id}\",\"event\":{{}}}}");
        assert_eq!(case.post("/slack/events", &[("X-Trouble", trouble)], &event).status, status);
        let again = case.post("/slack/events", &retry("1"), &event);
        assert_eq!((again.status, again.problem().as_str()), (409, "in-doubt"));
    }
    assert_eq!(case.effects(), 3);
    let claims = case.claims();
    assert!(claims.len() == 3 && claims.iter().all(|claim| claim["state"] == "in-doubt"), "{claims:?}");
    let resolve = |id: &str, resolution: &str| {
        let body = format!("{{\"key\":\"{id}\",\"as\":\"{resolution}\"}}");
        let kind = [("Content-Type", "application/json")];
        let answer = send(case.gateway.admin, "POST", "/v1/claims/resolve", &kind, body.as_bytes());
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    // An operator finds out that the first was handled, and the second was not.
    resolve("Ev1", "done");
    resolve("Ev2", "absent");
    let done = case.post("/slack/events", &retry("2"), "{\"event_id\":\"Ev1\",\"event\":{}}");
    assert_eq!((done.status, done.is_replay()), (200, true));
    assert_eq!(case.post("/slack/events", &retry("2"), "{\"event_id\":\"Ev2\",\"event\":{}}").status, 201);
    assert_eq!(case.effects(), 4);
}

#[test]
fn errors_release_the_key_if_the_route_says_so() {
    let case = start(&format!("{SLACK}server_errors = \"release\"\nclient_errors = \"release\"\n"));
    for trouble in ["status=500", "status=404"] {
        let event = format!("{{\"event_id\":\"{trouble}\"}}");
        assert!(case.post("/slack/events", &[("X-Trouble", trouble)], &event).status >= 400);
        assert_eq!(case.post("/slack/events", &retry("1"), &event).status, 201);
    }
}

#[test]
fn an_event_for_a_bot_that_is_down_runs_on_retry() {
    let mut case = start(SLACK);
    let port = case.orders.address.port();
    case.orders.process.kill();
    let down = case.post("/slack/events", &[], FILE_SHARE);
    assert_eq!((down.status, down.problem().as_str()), (502, "upstream-unreachable"));
    case.orders = Orders::start_at(case.dir.path(), port);
    assert_eq!(case.post("/slack/events", &retry("1"), FILE_SHARE).status, 201);
    assert!(case.post("/slack/events", &retry("2"), FILE_SHARE).is_replay());
    assert_eq!(case.effects(), 1);
}

#[test]
fn github_stripe_and_cloud_events_are_handled_once() {
    let case = start(
        "[[gateway.routes]]\npreset = \"github\"\nmatch = \"POST /github\"\ngithub_webhook_secret = \"shhh\"\n\
         [[gateway.routes]]\npreset = \"stripe-events\"\nmatch = \"POST /stripe\"\n\
         [[gateway.routes]]\npreset = \"cloudevents\"\nmatch = \"POST /cloudevents\"\n",
    );
    let mut mac = Hmac::<Sha256>::new_from_slice(b"shhh").unwrap();
    mac.update(GITHUB_PUSH.as_bytes());
    let signature = format!("sha256={}", hex::encode(mac.finalize().into_bytes()));
    let github = |delivery: &str, signature: &str| {
        let headers =
            [("X-GitHub-Delivery", delivery), ("X-GitHub-Event", "push"), ("X-Hub-Signature-256", signature)];
        case.post("/github", &headers, GITHUB_PUSH)
    };
    let forged = github("72d3162e-cc78-11e3-81ab-4c9367dc0958", "sha256=00");
    assert_eq!((forged.status, forged.problem().as_str()), (401, "signature-refused"));
    assert!(!github("72d3162e-cc78-11e3-81ab-4c9367dc0958", &signature).is_replay());
    assert!(github("72d3162e-cc78-11e3-81ab-4c9367dc0958", &signature).is_replay());
    assert!(!github("0b989ba4-242f-11e5-81e1-c7b6966d2516", &signature).is_replay());

    let stripe = || case.post("/stripe", &[("Stripe-Signature", "t=1,v1=00")], STRIPE_PAID);
    assert!(!stripe().is_replay() && stripe().is_replay());

    let structured =
        || case.post("/cloudevents", &[("Content-Type", "application/cloudevents+json")], CLOUD_EVENT);
    assert!(!structured().is_replay() && structured().is_replay());
    let source = "https://example.com/storage/tenant/container";
    let binary =
        [("ce-specversion", "1.0"), ("ce-type", "t"), ("ce-source", source), ("ce-id", "A234-1234-1234")];
    assert!(case.post("/cloudevents", &binary, "{}").is_replay(), "the same event in binary mode");
    let unnamed = case.post("/cloudevents", &binary[..3], "{}");
    assert_eq!((unnamed.status, unnamed.problem().as_str()), (400, "key-missing"));
    assert_eq!(case.effects(), 4);
    let rules = get(case.gateway.address, "/.well-known/idempotency").json();
    assert_eq!(rules["operations"][0]["preset"], "github");
    assert_eq!(rules["operations"][0]["signature"], "X-Hub-Signature-256");
    assert_eq!(rules["operations"][1]["remembered_seconds"], 4 * 86_400);
}

#[test]
fn each_kind_of_key_source_identifies_an_event() {
    let rules = ["header:X-Request-Id", "json:/id", "template:{/a}_{/b}", "fields:/a,/b", "body"];
    let routes = rules.iter().enumerate().map(|(at, key)| {
        format!("[[gateway.routes]]\nmatch = \"POST /{at}\"\nkey = \"{key}\"\nfingerprint = \"none\"\n")
    });
    let case = start(&routes.collect::<String>());
    for (at, rule) in rules.iter().enumerate() {
        let send = |id: &str| {
            let body = format!("{{\"id\":\"{id}\",\"a\":\"{id}\",\"b\":1}}");
            case.post(&format!("/{at}"), &[("X-Request-Id", id)], &body)
        };
        assert!(!send("one").is_replay() && send("one").is_replay() && !send("two").is_replay(), "{rule}");
    }
    assert_eq!(case.effects(), 2 * rules.len());
}

/// The same file in another event: a duplicate by its content, not by its id.
fn same_content(id: &str, time: u64) -> String {
    format!("{{\"event_id\":\"{id}\",\"event_time\":{time},\"event\":{{\"file\":\"F1\",\"user\":\"U1\"}}}}")
}

#[test]
fn the_same_content_under_another_id_is_replayed() {
    let case = start("[[gateway.routes]]\nkey = \"fields:/event/file,/event/user\"\n");
    let first = case.post("/events", &[], &same_content("Ev1", 1));
    assert!(!first.is_replay());
    let again = case.post("/events", &[], &same_content("Ev2", 2));
    assert_eq!((again.is_replay(), again.text()), (true, first.text()));
    let other = case.post("/events", &[], &same_content("Ev3", 3).replace("F1", "F2"));
    assert!(!other.is_replay());
    assert_eq!(case.effects(), 2);
}

#[test]
fn an_observed_route_passes_duplicates_and_reports_them() {
    let case = start("[[gateway.routes]]\nkey = [\"fields:/event/file,/event/user\"]\nmode = \"observe\"\n");
    let counted = |outcome: &str, count: u32| {
        let line = format!(
            "ichido_observed_requests_total{{route=\"POST,PATCH /**\",outcome=\"{outcome}\"}} {count}"
        );
        eventually("the count", || get(case.gateway.admin, "/metrics").text().contains(&line).then_some(()));
    };
    // The claim is completed first, so that the next event is a duplicate and not in flight.
    case.post("/events", &[], &same_content("Ev1", 1));
    eventually("its completion", || {
        case.claims().first().filter(|claim| claim["state"] == "done").map(|_| ())
    });
    for (id, time) in [("Ev2", 2), ("Ev3", 3)] {
        let passed = case.post("/events", &[], &same_content(id, time));
        assert_eq!((passed.status, passed.is_replay()), (201, false));
    }
    counted("first", 1);
    counted("replayed", 2);
    assert_eq!(case.effects(), 3);
    eventually("both log lines", || {
        let said = case.gateway.process.stderr();
        let lines = said.lines().filter(|line| line.contains("\"mode\":\"observe\""));
        (lines.filter(|line| line.contains("\"outcome\":\"replayed\"")).count() == 2).then_some(())
    });
}
