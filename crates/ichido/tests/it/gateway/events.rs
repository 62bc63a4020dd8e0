//! Events through the gateway: real payloads, secrets, retries, and what is reported about them.

use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use ichido_testkit::http_client::{Response, get, send};
use ichido_testkit::orders::Orders;
use ichido_testkit::wait::eventually;
use serde_json::Value;
use sha2::Sha256;

use crate::support::Gateway;

pub(super) const FILE_SHARE: &str = include_str!("../payloads/slack-file-share.json");
pub(super) const FILE_SHARED: &str = include_str!("../payloads/slack-file-shared.json");
pub(super) const URL_VERIFICATION: &str = include_str!("../payloads/slack-url-verification.json");
const GITHUB_PUSH: &str = include_str!("../payloads/github-push.json");
pub(super) const STRIPE_PAID: &str = include_str!("../payloads/stripe-payment-succeeded.json");
const CLOUD_EVENT: &str = include_str!("../payloads/cloudevent.json");

const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";
const SLACK: &str = "[[gateway.routes]]\npreset = \"slack-events\"\nmatch = \"POST /slack/events\"\n";

struct Case {
    _dir: tempfile::TempDir,
    orders: Orders,
    gateway: Gateway,
}

fn start(settings: &str) -> Case {
    let (_dir, orders, gateway) = super::start(settings);
    Case { _dir, orders, gateway }
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

/// An operator who has only the id of a request finds out what happened to its key.
#[test]
fn timeline_is_found_by_the_id_of_a_request() {
    let case = start("");
    for id in ["req-1", "req-2"] {
        let headers = [("Idempotency-Key", "\"order-1\""), ("X-Request-Id", id)];
        assert_eq!(case.post("/orders", &headers, "{}").status, 201);
    }
    let found = eventually("the decisions are written", || {
        let found = get(case.gateway.admin, "/v1/history/timeline?find=req-2&by=request_id").json();
        let entries = found["timeline"].as_array()?.clone();
        (entries.len() == 3).then_some(entries)
    });
    let found: Vec<_> = found.iter().map(|entry| (&entry["result"], &entry["request_id"])).collect();
    let expected = [("granted", Some("req-1")), ("completed", None), ("replayed", Some("req-2"))];
    let expected = expected.map(|(result, id)| (Value::from(result), id.map_or(Value::Null, Value::from)));
    assert_eq!(found, expected.iter().map(|(result, id)| (result, id)).collect::<Vec<_>>());
    assert_eq!(case.claims()[0]["metadata"]["request_id"], "req-1");
}

fn retry(number: &str) -> [(&str, &str); 2] {
    [("X-Slack-Retry-Num", number), ("X-Slack-Retry-Reason", "http_timeout")]
}

#[test]
fn a_file_shared_in_slack_is_handled_once_however_often_it_is_sent() {
    let case = start(&format!("{SLACK}slack_signing_secret = \"{SECRET}\"\n"));
    let first = case.slack(&[], FILE_SHARE);
    assert_eq!((first.status, first.is_replay()), (201, false));
    for number in ["1", "2", "3"] {
        let again = case.slack(&retry(number), FILE_SHARE);
        assert_eq!((again.status, again.is_replay(), again.text()), (201, true, first.text()));
    }
    assert!(case.slack(&[], FILE_SHARE).is_replay(), "a retry without retry headers is a retry too");
    assert!(!case.slack(&[], FILE_SHARED).is_replay(), "another event");
    assert!(!case.slack(&[], URL_VERIFICATION).is_replay());
    assert_eq!((case.effects(), case.claims().len()), (3, 2), "a challenge claims nothing");
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
    let results = eventually("a log line for each check", || {
        let log = case.gateway.process.stderr();
        let lines = log.lines().filter(|line| line.contains("Deduplication check"));
        let lines = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
        let results: Vec<_> = lines.map(|line| line["result"].as_str().unwrap().to_owned()).collect();
        (results.len() >= 6).then_some(results)
    });
    assert_eq!(results, ["new", "duplicate", "duplicate", "duplicate", "duplicate", "new"]);
    let metrics = get(case.gateway.admin, "/metrics").text();
    for line in [
        "ichido_event_retries_total{route=\"POST /slack/events\",reason=\"http_timeout\",outcome=\"replayed\"} 3",
        "ichido_requests_total{route=\"POST /slack/events\",outcome=\"unkeyed\"} 1",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    let line = eventually("the log line of the third retry", || {
        let said = case.gateway.process.stderr();
        said.lines().find(|line| line.contains("\"retry_num\":3")).map(ToOwned::to_owned)
    });
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["retry_reason"], &line["outcome"]), (&"http_timeout".into(), &"replayed".into()));
    assert!(!case.gateway.process.stderr().contains(SECRET));
}

/// Slack announces a shared file by two events with ids of their own.
#[test]
fn a_slack_file_under_two_event_ids_is_found_by_its_file_id() {
    let case = start(SLACK);
    assert_eq!(case.post("/slack/events", &[], FILE_SHARE).header("idempotency-same-content"), None);
    let second = case.post("/slack/events", &[], FILE_SHARED);
    let report = second.header("idempotency-same-content").unwrap();
    assert!(second.status == 201 && report.ends_with(";key=\"file\""), "{second:?}");
    assert_eq!(case.effects(), 2, "it is only reported");
    let metrics = get(case.gateway.admin, "/metrics").text();
    assert!(metrics.contains("ichido_events_same_content_total{mode=\"observe\"} 1"), "{metrics}");
    let first = report.trim_start_matches('"').split('"').next().unwrap();
    let line = eventually("the log line of the second event", || {
        let log = case.gateway.process.stderr();
        log.lines().find(|line| line.contains("same_content_as")).map(ToOwned::to_owned)
    });
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["same_content_as"], first);

    let case = start(&format!("{SLACK}content_mode = \"enforce\"\n"));
    case.post("/slack/events", &[], FILE_SHARE);
    let refused = case.post("/slack/events", &[], FILE_SHARED);
    assert_eq!((refused.status, refused.text().as_str(), case.effects()), (200, "", 1));
    assert!(case.post("/slack/events", &[], FILE_SHARED).is_replay());
}

#[test]
fn near_duplicates_are_found_in_the_text_of_events() {
    let similar =
        "similar = { fields = [\"/event/text\"], threshold = 0.8, window = \"10m\", mode = \"enforce\" }\n";
    let case = start(&format!("{SLACK}{similar}"));
    let message = |id: &str, text: &str| {
        let body = format!(r#"{{"event_id":"{id}","event":{{"type":"message","text":"{text}"}}}}"#);
        case.post("/slack/events", &[], &body)
    };
    let text = "夜間バックアップに失敗しました。ストレージの空き容量を確認してください。";
    assert_eq!(message("Ev1", text).status, 201);
    let near = message("Ev2", &format!("【再送】{text}"));
    assert_eq!((near.status, near.text().as_str(), case.effects()), (200, "", 1));
    assert!(near.header("idempotency-similar-to").unwrap().contains("score=0."), "{near:?}");
    assert_eq!(message("Ev3", "新しいメンバーがサポートチームに加わります。").status, 201);
    let metrics = get(case.gateway.admin, "/metrics").text();
    assert!(metrics.contains("ichido_events_similar_total{mode=\"enforce\"} 1"), "{metrics}");
}

#[test]
fn the_secret_may_come_from_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let settings = format!("{SLACK}slack_signing_secret = \"from the file\"\n");
    let gateway = Gateway::start_with(dir.path(), orders.address, "memory:", &settings, |command| {
        command.env("SLACK_SIGNING_SECRET", SECRET);
    });
    let case = Case { _dir: dir, orders, gateway };
    assert_eq!(case.slack(&[], FILE_SHARE).status, 201);
    assert_eq!(case.post("/slack/events", &[], FILE_SHARE).status, 401);
    assert!(case.gateway.process.stderr().contains("POST /slack/events (slack-events)"));
}

#[test]
fn each_route_follows_its_own_preset() {
    let case = start(
        "[[gateway.routes]]\npreset = \"github\"\nmatch = \"POST /github\"\ngithub_webhook_secret = \"shhh\"\n\
         [[gateway.routes]]\npreset = \"stripe-events\"\nmatch = \"POST /stripe\"\n\
         [[gateway.routes]]\npreset = \"cloudevents\"\nmatch = \"POST /cloudevents\"\n",
    );
    let mut mac = Hmac::<Sha256>::new_from_slice(b"shhh").unwrap();
    mac.update(GITHUB_PUSH.as_bytes());
    let signature = format!("sha256={}", hex::encode(mac.finalize().into_bytes()));
    let github = |signature: &str| {
        let delivery = ("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958");
        case.post("/github", &[delivery, ("X-Hub-Signature-256", signature)], GITHUB_PUSH)
    };
    assert_eq!(github("sha256=00").problem(), "signature-refused");
    assert!(!github(&signature).is_replay() && github(&signature).is_replay());
    let stripe = || case.post("/stripe", &[], STRIPE_PAID);
    assert!(!stripe().is_replay() && stripe().is_replay());
    let kind = ("Content-Type", "application/cloudevents+json");
    let cloud_event = || case.post("/cloudevents", &[kind], CLOUD_EVENT);
    assert!(!cloud_event().is_replay() && cloud_event().is_replay());
    assert_eq!(case.effects(), 3);
    let rules = get(case.gateway.address, "/.well-known/idempotency").json();
    assert_eq!(rules["operations"][0]["preset"], "github");
    assert_eq!(rules["operations"][0]["signature"], "X-Hub-Signature-256");
    assert_eq!(rules["operations"][1]["remembered_seconds"], 4 * 86_400);
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
    // The same file in several events: duplicates by their content, not by their ids.
    let event =
        |id: u32| format!("{{\"event_id\":\"Ev{id}\",\"event\":{{\"file\":\"F1\",\"user\":\"U1\"}}}}");
    // The claim is completed first, so that the next event is a duplicate and not in flight.
    case.post("/events", &[], &event(1));
    eventually("its completion", || {
        case.claims().first().filter(|claim| claim["state"] == "done").map(|_| ())
    });
    for id in [2, 3] {
        let passed = case.post("/events", &[], &event(id));
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
