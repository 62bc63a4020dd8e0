//! Events of known senders are handled once.

use hmac::{Hmac, KeyInit, Mac};
use http::Request;
use http::header::CONTENT_TYPE;
use ichido_core::{Clock, Key, Scope, SystemClock};
use ichido_http::{
    ClientErrors, InFlight, Mode, Preset, Route, Rules, Scheme, Secret, ServerErrors, Signature,
};
use sha2::Sha256;

use crate::support::{
    AnyBody, Gate, Instance, Store, TIMEOUT, Upstream, body, chunks, get, on_embedded_ledgers,
    on_every_ledger, rules, text,
};

on_embedded_ledgers! {
    the_key_of_a_slack_event_is_its_id_or_its_file_and_time,
    slack_requests_without_an_id_pass,
    a_slack_challenge_passes_even_if_a_key_is_required,
    the_key_of_a_github_event_is_its_delivery_id,
    the_key_of_a_stripe_event_is_its_id,
    the_key_of_a_cloud_event_is_its_source_and_id_in_both_modes,
    a_source_is_searched_in_headers_and_body_before_the_next,
    the_credentials_of_an_event_do_not_matter,
    an_event_without_a_success_is_in_doubt_or_released,
    a_route_can_release_events_that_failed,
    an_event_that_an_operator_resolves_as_done_gets_a_success,
    an_unsigned_request_claims_nothing,
    a_request_that_was_not_signed_recently_claims_nothing,
    another_spelling_of_a_signed_path_is_refused,
    a_signature_covers_a_body_on_disk,
    an_observed_route_refuses_no_signature,
}

on_every_ledger! {
    retries_wait_for_the_first_response_and_the_claim_has_metadata,
}

fn event(path: &str, content: &str) -> Request<AnyBody> {
    Request::post(path).header(CONTENT_TYPE, "application/json").body(body(content.to_owned())).unwrap()
}

fn with(mut request: Request<AnyBody>, name: &'static str, value: &str) -> Request<AnyBody> {
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

async fn the_key_of_a_slack_event_is_its_id_or_its_file_and_time(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, Preset::SlackEvents.route(), &upstream).await;
    let slack = |content: &str| instance.send(event("/slack/events", content));
    slack(r#"{"event_id":"Ev1","event":{"type":"message"}}"#).await.assert_first(201, "run 1");
    slack(r#"{"event":{"type":"message"},"event_id":"Ev1"}"#).await.assert_replay(201, "run 1");
    slack(r#"{"event_id":"Ev2","event":{"type":"message"}}"#).await.assert_first(201, "run 2");
    let file = |ts: &str| format!(r#"{{"event":{{"files":[{{"id":"F1"}}],"ts":"{ts}"}}}}"#);
    slack(&file("1.2")).await.assert_first(201, "run 3");
    slack(&file("1.2")).await.assert_replay(201, "run 3");
    slack(&file("1.3")).await.assert_first(201, "run 4");
}

async fn slack_requests_without_an_id_pass(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, Preset::SlackEvents.route(), &upstream).await;
    let without_id =
        ["command=%2Fclassify&text=", r#"{"type":"app_rate_limited"}"#, "", "{\"event\":{\"ts\":\"1\"}}"];
    for (at, content) in without_id.into_iter().enumerate() {
        instance
            .send(event("/slack/events", content))
            .await
            .assert_first(201, &format!("run {}", 2 * at + 1));
        instance
            .send(event("/slack/events", content))
            .await
            .assert_first(201, &format!("run {}", 2 * at + 2));
    }
    assert!(instance.claims().await.is_empty());
}

async fn a_slack_challenge_passes_even_if_a_key_is_required(store: Store) {
    let upstream = Upstream::counting();
    let route = Route { required: true, ..Preset::SlackEvents.route() };
    let instance = Instance::new(&store, route, &upstream).await;
    for content in
        [r#"{"type":"url_verification","challenge":"c"}"#, r#"{"type":"url_verification","event_id":"E"}"#]
    {
        assert_eq!(instance.send(event("/slack/events", content)).await.status, 201);
        assert!(!instance.send(event("/slack/events", content)).await.is_replay());
    }
    instance.send(event("/slack/events", "{\"type\":\"other\"}")).await.assert_problem(400, "key-missing");
    assert!(instance.claims().await.is_empty());
    assert_eq!(upstream.runs(), 4);
}

async fn the_key_of_a_github_event_is_its_delivery_id(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, Preset::GitHub.route(), &upstream).await;
    let push = |delivery: &str| with(event("/hooks", "{\"ref\":\"main\"}"), "x-github-delivery", delivery);
    instance.send(push("72d3162e-cc78-11e3-81ab-4c9367dc0958")).await.assert_first(201, "run 1");
    instance.send(push("72d3162e-cc78-11e3-81ab-4c9367dc0958")).await.assert_replay(201, "run 1");
    instance.send(push("72d3162e-cc78-11e3-81ab-4c9367dc0959")).await.assert_first(201, "run 2");
    instance.send(event("/hooks", "{}")).await.assert_problem(400, "key-missing");
}

async fn the_key_of_a_stripe_event_is_its_id(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, Preset::StripeEvents.route(), &upstream).await;
    let paid = |pending: u8| event("/hooks", &format!(r#"{{"id":"evt_1","pending_webhooks":{pending}}}"#));
    instance.send(paid(2)).await.assert_first(201, "run 1");
    // A retry need not be identical.
    instance.send(paid(1)).await.assert_replay(201, "run 1");
    instance.send(event("/hooks", "{\"object\":\"event\"}")).await.assert_problem(400, "key-missing");
}

async fn the_key_of_a_cloud_event_is_its_source_and_id_in_both_modes(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, Preset::CloudEvents.route(), &upstream).await;
    let binary =
        |source: &str, id: &str| with(with(event("/", "{\"n\":1}"), "ce-source", source), "ce-id", id);
    let structured = |content: &str| {
        with(event("/", content), "content-type", "application/cloudevents+json; charset=utf-8")
    };
    instance.send(binary("/a b", "c")).await.assert_first(201, "run 1");
    instance.send(binary("/a%20b", "c")).await.assert_replay(201, "run 1");
    instance.send(structured(r#"{"source":"/a b","id":"c"}"#)).await.assert_replay(201, "run 1");
    instance.send(binary("/a", "b c")).await.assert_first(201, "run 2");
    instance.send(structured(r#"{"source":"/a","id":"b c"}"#)).await.assert_replay(201, "run 2");
    instance.send(structured(r#"{"source":"/a"}"#)).await.assert_problem(400, "key-missing");
    instance.send(event("/", r#"{"source":"/a","id":"b c"}"#)).await.assert_problem(400, "key-missing");
    instance.send(binary("/a", "%00")).await.assert_problem(400, "key-invalid");
    assert_eq!(upstream.runs(), 2);
}

async fn a_source_is_searched_in_headers_and_body_before_the_next(store: Store) {
    let upstream = Upstream::counting();
    let keys = ["cloudevents", "header:X-Request-Id"].map(|source| source.parse().unwrap()).into();
    let instance = Instance::new(&store, Route { keys, ..Preset::CloudEvents.route() }, &upstream).await;
    let structured = |request: &str| {
        let event = with(event("/", r#"{"source":"/a","id":"1"}"#), "x-request-id", request);
        with(event, "content-type", "application/cloudevents+json")
    };
    instance.send(structured("r1")).await.assert_first(201, "run 1");
    instance.send(structured("r2")).await.assert_replay(201, "run 1");
    instance.send(with(event("/", "{}"), "x-request-id", "r1")).await.assert_first(201, "run 2");
    instance.send(with(event("/", "{}"), "x-request-id", "r1")).await.assert_replay(201, "run 2");
}

/// A sender that refreshes its token between two attempts is still the same sender.
async fn the_credentials_of_an_event_do_not_matter(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, Preset::StripeEvents.route(), &upstream).await;
    instance
        .send(with(event("/hooks", "{\"id\":1}"), "authorization", "Bearer a"))
        .await
        .assert_first(201, "run 1");
    instance
        .send(with(event("/hooks", "{\"id\":1}"), "authorization", "Bearer b"))
        .await
        .assert_replay(201, "run 1");
    instance.send(with(event("/hooks", "{\"id\":1}"), "cookie", "sid=1")).await.assert_replay(201, "run 1");
    instance.send(event("/hooks", "{\"id\":1}")).await.assert_replay(201, "run 1");
}

async fn an_event_without_a_success_is_in_doubt_or_released(store: Store) {
    let upstream = Upstream::new(async |call| {
        let status = call.parts.uri.path().trim_start_matches('/').parse().unwrap();
        Ok(text(status, &format!("run {}", call.run)))
    });
    let instance = Instance::new(&store, Preset::SlackEvents.route(), &upstream).await;
    for status in [402, 409, 410, 500, 502, 504] {
        let send = || instance.send(event(&format!("/{status}"), "{\"event_id\":\"Ev1\"}"));
        assert_eq!(send().await.status, status);
        send().await.assert_problem(409, "in-doubt");
    }
    assert_eq!(upstream.runs(), 6);
    for status in [400, 401, 403, 404, 405, 413, 415, 422, 429, 503, 529] {
        let send = || instance.send(event(&format!("/{status}"), "{\"event_id\":\"Ev1\"}"));
        assert_eq!(
            (send().await.status, send().await.status),
            (status.try_into().unwrap(), status.try_into().unwrap())
        );
    }
    assert_eq!(upstream.runs(), 6 + 2 * 11, "a refusal releases the event");
    for status in [200, 204, 302] {
        let send = || instance.send(event(&format!("/{status}"), "{\"event_id\":\"Ev1\"}"));
        assert!(!send().await.is_replay() && send().await.is_replay(), "{status}");
    }
}

async fn a_route_can_release_events_that_failed(store: Store) {
    let (server_errors, client_errors) = (Some(ServerErrors::Release), Some(ClientErrors::Release));
    let route = Route { server_errors, client_errors, ..Preset::SlackEvents.route() };
    for status in [409, 500, 502] {
        let instance = Instance::new(&store, route.clone(), &Upstream::responding(status)).await;
        for run in 1..=2 {
            let sent = instance.send(event("/slack/events", "{\"event_id\":\"Ev1\"}"));
            sent.await.assert_first(status, &format!("run {run}"));
        }
    }
}

async fn an_event_that_an_operator_resolves_as_done_gets_a_success(store: Store) {
    let upstream = Upstream::responding(500);
    let instance = Instance::new(&store, Preset::SlackEvents.route(), &upstream).await;
    let send = || instance.send(event("/slack/events", "{\"event_id\":\"Ev1\"}"));
    assert_eq!(send().await.status, 500);
    let key = Key::new(Scope::new("", "POST /slack/events"), "Ev1").unwrap();
    let outcome = ichido_core::Outcome::Tombstone("resolved by an operator".to_owned());
    let resolved = instance.ledger.resolve(&key, &ichido_core::Resolution::Done(outcome)).await.unwrap();
    assert!(matches!(resolved, ichido_core::Resolved::Applied), "{resolved:?}");
    send().await.assert_replay(200, "");
    assert_eq!(upstream.runs(), 1);
}

async fn retries_wait_for_the_first_response_and_the_claim_has_metadata(store: Store) {
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let route = Route { in_flight: InFlight::Wait(TIMEOUT), ..Preset::SlackEvents.route() };
    let (here, elsewhere) = (
        Instance::new(&store, route.clone(), &upstream).await,
        Instance::new(&store, route, &upstream).await,
    );
    let content =
        r#"{"event_id":"Ev1","event":{"channel":"C1","user":"U1","files":[{"id":"F1"}],"ts":"1.2"}}"#;
    let first = here.spawn(event("/slack/events", content));
    upstream.started(1).await;
    let retries: Vec<_> = (1..=3)
        .map(|number| {
            let retry = with(event("/slack/events", content), "x-slack-retry-num", &number.to_string());
            [&here, &elsewhere][number % 2].spawn(with(retry, "x-slack-retry-reason", "http_timeout"))
        })
        .collect();
    let key = Key::new(Scope::new("", "POST /slack/events"), "Ev1").unwrap();
    let record = elsewhere.ledger.get(&key).await.unwrap().unwrap();
    let metadata: Vec<_> = record.metadata.iter().collect();
    let all = [
        ("channel_id", "C1"),
        ("file_id", "F1"),
        ("lambda_instance_id", here.layer.instance()),
        ("user_id", "U1"),
    ];
    assert_eq!(metadata, all);
    assert!(retries.iter().all(|retry| !retry.is_finished()), "retries wait for the service");
    gate.open();
    first.await.unwrap().assert_first(201, "run 1");
    for retry in retries {
        retry.await.unwrap().assert_replay(201, "run 1");
    }
    assert_eq!(upstream.runs(), 1);
}

const SECRET: &str = "shhh";

fn checked_by(scheme: Scheme) -> Option<Signature> {
    Signature::new(scheme, &[Secret::new(SECRET).unwrap()]).unwrap()
}

fn signed_route() -> Route {
    Route { signature: checked_by(Scheme::GitHub), ..Preset::GitHub.route() }
}

fn signature(content: &str) -> String {
    format!("sha256={}", hmac(content))
}

fn hmac(signed: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(signed.as_bytes());
    hex::encode(mac.finalize().into_bytes())
}

fn delivery(content: &str, signature: &str) -> Request<AnyBody> {
    with(with(event("/hooks", content), "x-github-delivery", "d1"), "x-hub-signature-256", signature)
}

async fn an_unsigned_request_claims_nothing(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, signed_route(), &upstream).await;
    for wrong in [signature("{}"), "sha256=".to_owned(), "sha1=00".to_owned(), String::new()] {
        let refused = instance.send(delivery("{\"a\":1}", &wrong)).await;
        refused.assert_problem(401, "signature-refused");
        assert!(refused.text().contains("X-Hub-Signature-256"), "{refused:?}");
        assert_eq!(refused.header("www-authenticate"), Some("Signature"));
    }
    // Even a request without a key must be signed.
    let optional = Route { required: false, ..signed_route() };
    let lenient = Instance::new(&store, optional, &upstream).await;
    lenient.send(event("/hooks", "{}")).await.assert_problem(401, "signature-refused");
    assert!(instance.claims().await.is_empty() && upstream.runs() == 0);
    instance.send(delivery("{\"a\":1}", &signature("{\"a\":1}"))).await.assert_first(201, "run 1");
    instance.send(delivery("{}", "sha256=00")).await.assert_problem(401, "signature-refused");
    instance.send(delivery("{\"a\":1}", &signature("{\"a\":1}"))).await.assert_replay(201, "run 1");
}

async fn a_request_that_was_not_signed_recently_claims_nothing(store: Store) {
    let upstream = Upstream::counting();
    let route = Route { signature: checked_by(Scheme::Slack), ..Preset::SlackEvents.route() };
    let instance = Instance::new(&store, route, &upstream).await;
    let seconds = SystemClock::default().now().0 / 1000;
    let [now, early, late] = [seconds, seconds - 400, seconds + 400].map(|time| time.to_string());
    let signed = |time: &str, content: &str, sent: &str| {
        let signature = format!("v0={}", hmac(&format!("v0:{time}:{content}")));
        let request = with(event("/slack/events", sent), "x-slack-signature", &signature);
        with(request, "x-slack-request-timestamp", time)
    };
    let content = "{\"event_id\":\"Ev1\"}";
    let mut without_time = signed(&now, content, content);
    without_time.headers_mut().remove("x-slack-request-timestamp");
    let old = [early.as_str(), late.as_str(), "yesterday"].map(|time| signed(time, content, content));
    for request in old.into_iter().chain([without_time]) {
        let refused = instance.send(request).await;
        refused.assert_problem(401, "timestamp-refused");
        assert!(refused.text().contains("X-Slack-Request-Timestamp"), "{refused:?}");
    }
    // Even a challenge, which is never claimed, must be signed.
    let refused = instance.send(signed(&now, content, r#"{"type":"url_verification"}"#)).await;
    refused.assert_problem(401, "signature-refused");
    assert!(refused.text().contains("X-Slack-Signature") && !refused.text().contains(SECRET), "{refused:?}");
    assert!(instance.claims().await.is_empty() && upstream.runs() == 0);
    instance.send(signed(&now, content, content)).await.assert_first(201, "run 1");
}

/// Many services read `/hooks/` or `/hook%73` as `/hooks`.
async fn another_spelling_of_a_signed_path_is_refused(store: Store) {
    let upstream = Upstream::counting();
    let route = Route { matches: "POST /hooks".parse().unwrap(), ..signed_route() };
    let instance = Instance::new(&store, route, &upstream).await;
    for path in ["/hooks/", "/hook%73", "//hooks", "/Hooks"] {
        instance.send(event(path, "{}")).await.assert_problem(400, "request-refused");
    }
    assert!(instance.claims().await.is_empty() && upstream.runs() == 0);
    instance.send(event("/other", "{}")).await.assert_first(201, "run 1");
    instance.send(get("/hooks/")).await.assert_first(201, "run 2");
}

async fn a_signature_covers_a_body_on_disk(store: Store) {
    let upstream = Upstream::counting();
    let rules = Rules { body_memory_bytes: 10, ..rules(signed_route()) };
    let instance = Instance::of(store.ledger().await, rules, &upstream);
    let content = format!("{{\"a\":\"{}\"}}", "x".repeat(3000));
    let in_chunks = |content: &str| {
        let parts = content.as_bytes().chunks(700).map(|part| Ok(part.to_vec().into())).collect();
        chunks(parts, None)
    };
    let (head, _) = delivery("", &signature(&content)).into_parts();
    let signed = Request::from_parts(head.clone(), in_chunks(&content));
    let forged = Request::from_parts(head, in_chunks(&content.replacen('x', "y", 1)));
    instance.send(forged).await.assert_problem(401, "signature-refused");
    instance.send(signed).await.assert_first(201, "run 1");
    assert_eq!(upstream.calls()[0].body, content);
}

async fn an_observed_route_refuses_no_signature(store: Store) {
    let upstream = Upstream::counting();
    let route = Route { mode: Mode::Observe, ..signed_route() };
    let instance = Instance::of(store.ledger().await, rules(route), &upstream);
    instance.send(delivery("{}", "sha256=00")).await.assert_first(201, "run 1");
    instance.send(event("/hooks", "{}")).await.assert_first(201, "run 2");
    assert_eq!(upstream.calls()[0].body, "{}");
    instance.layer.drain().await;
    assert!(instance.claims().await.is_empty());
}
