//! The content of an event is handled once, under whatever ids it arrives, and no event is lost because of it.

use http::Request;
use http::header::CONTENT_TYPE;
use ichido_http::{ContentRule, Mode, Preset, Route, SimilarRule};
use ichido_ledger::MarkQuery;
use ichido_similar::Options;

use crate::support::{
    AnyBody, Gate, Instance, Store, Upstream, body, on_embedded_ledgers, on_every_ledger, text,
};

on_embedded_ledgers! {
    an_event_without_the_content_is_known_by_its_id_only,
    an_observed_route_reports_nothing_to_the_sender_and_refuses_nothing,
    a_similar_text_is_reported_or_refused,
    a_text_is_forgotten_with_an_event_that_was_not_handled,
    a_text_in_flight_is_retried_and_not_lost,
}

on_every_ledger! {
    the_same_content_under_two_ids_is_reported_or_refused,
    content_of_a_running_event_is_retried,
    content_of_an_event_that_was_not_handled_is_free,
}

const TEXT: &str = "The nightly backup of the billing database has failed, please check the storage quota";

fn enforced() -> Route {
    Route { content_mode: Mode::Enforce, ..Preset::SlackEvents.route() }
}

fn similar(mode: Mode) -> Route {
    let fields = vec!["/event/text".parse().unwrap()];
    let rule = SimilarRule { fields, options: Options::default(), mode };
    Route { similar: Some(rule), ..Preset::SlackEvents.route() }
}

fn event(id: &str, inner: &str) -> Request<AnyBody> {
    let content = format!(r#"{{"event_id":"{id}","event":{inner}}}"#);
    Request::post("/slack/events").header(CONTENT_TYPE, "application/json").body(body(content)).unwrap()
}

/// The two events by which Slack announces a file.
fn shared_in_message(id: &str, file: &str) -> Request<AnyBody> {
    event(id, &format!(r#"{{"type":"message","files":[{{"id":"{file}"}}]}}"#))
}

fn file_shared(id: &str, file: &str) -> Request<AnyBody> {
    event(id, &format!(r#"{{"type":"file_shared","file_id":"{file}"}}"#))
}

fn message(id: &str, text: &str) -> Request<AnyBody> {
    event(id, &format!(r#"{{"type":"message","text":"{text}"}}"#))
}

async fn the_same_content_under_two_ids_is_reported_or_refused(store: Store) {
    let upstream = Upstream::counting();
    let observing = Instance::new(&store, Preset::SlackEvents.route(), &upstream).await;
    let enforcing = Instance::new(&store, enforced(), &upstream).await;
    let first = observing.send(shared_in_message("Ev1", "F1")).await;
    first.assert_first(201, "run 1");
    assert_eq!(first.header("idempotency-same-content"), None);
    let second = observing.send(file_shared("Ev2", "F1")).await;
    second.assert_first(201, "run 2");
    let report = second.header("idempotency-same-content").unwrap();
    assert!(report.ends_with(";key=\"file\"") && report.len() == 18 + 11, "{report}");
    let refused = enforcing.send(file_shared("Ev3", "F1")).await;
    assert_eq!((refused.status.as_u16(), refused.text()), (200, ""));
    assert_eq!(refused.header("idempotency-same-content"), Some(report));
    enforcing.send(file_shared("Ev3", "F1")).await.assert_replay(200, "");
    enforcing.send(file_shared("Ev4", "F2")).await.assert_first(201, "run 3");
    enforcing.send(shared_in_message("Ev1", "F1")).await.assert_replay(201, "run 1");
    assert_eq!(upstream.runs(), 3);
}

async fn content_of_a_running_event_is_retried(store: Store) {
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let (one, other) = (
        Instance::new(&store, enforced(), &upstream).await,
        Instance::new(&store, enforced(), &upstream).await,
    );
    let first = one.spawn(shared_in_message("Ev1", "F1"));
    upstream.started(1).await;
    let second = other.send(file_shared("Ev2", "F1")).await;
    second.assert_problem(409, "in-flight");
    gate.open();
    first.await.unwrap().assert_first(201, "run 1");
    let retried = other.send_until_settled(|| file_shared("Ev2", "F1")).await;
    assert_eq!((retried.status.as_u16(), upstream.runs()), (200, 1));
}

/// The service refuses the first event, and fails on the second. The content is still to be handled.
async fn content_of_an_event_that_was_not_handled_is_free(store: Store) {
    let upstream = Upstream::new(|call| async move {
        Ok(text([400, 500, 201][call.run.min(3) - 1], &format!("run {}", call.run)))
    });
    let instance = Instance::new(&store, enforced(), &upstream).await;
    for (id, status) in [("Ev1", 400), ("Ev2", 500), ("Ev3", 201)] {
        assert_eq!(instance.send(file_shared(id, "F1")).await.status.as_u16(), status, "{id}");
    }
    assert_eq!(instance.send(file_shared("Ev4", "F1")).await.status.as_u16(), 200);
    assert_eq!(
        instance.send(file_shared("Ev1", "F1")).await.status.as_u16(),
        200,
        "a retry of what was released"
    );
    assert_eq!(upstream.runs(), 3);
}

async fn an_event_without_the_content_is_known_by_its_id_only(store: Store) {
    let upstream = Upstream::counting();
    let rule =
        ContentRule { name: "form".to_owned(), sources: vec!["fields:/event/a,/event/b".parse().unwrap()] };
    let instance = Instance::new(&store, Route { content: vec![rule], ..enforced() }, &upstream).await;
    instance.send(event("Ev1", "{}")).await.assert_first(201, "run 1");
    instance.send(event("Ev2", "{}")).await.assert_first(201, "run 2");
    let query = MarkQuery { limit: 10, ..MarkQuery::default() };
    assert!(instance.ledger.list_marks(&query).await.unwrap().marks.is_empty());
    instance.send(event("Ev3", r#"{"a":1,"b":2}"#)).await.assert_first(201, "run 3");
    assert_eq!(instance.send(event("Ev4", r#"{"b":2,"a":1.0}"#)).await.status.as_u16(), 200);
    assert_eq!(instance.ledger.list_marks(&query).await.unwrap().marks.len(), 1);
}

async fn an_observed_route_reports_nothing_to_the_sender_and_refuses_nothing(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, Route { mode: Mode::Observe, ..enforced() }, &upstream).await;
    for run in 1..=3 {
        let got = instance.send(file_shared(&format!("Ev{run}"), "F1")).await;
        got.assert_first(201, &format!("run {run}"));
    }
    instance.layer.drain().await;
    assert_eq!(instance.claims().await.len(), 3);
}

async fn a_similar_text_is_reported_or_refused(store: Store) {
    let upstream = Upstream::counting();
    let observing = Instance::new(&store, similar(Mode::Observe), &upstream).await;
    observing.send(message("Ev1", TEXT)).await.assert_first(201, "run 1");
    let near = observing.send(message("Ev2", &format!("{TEXT}!"))).await;
    near.assert_first(201, "run 2");
    assert!(near.header("idempotency-similar-to").unwrap().contains("\";score=0.9"), "{near:?}");
    let enforcing = Instance::new(&store, similar(Mode::Enforce), &upstream).await;
    enforcing.send(message("Ev3", TEXT)).await.assert_first(201, "run 3");
    let refused = enforcing.send(message("Ev4", &format!("{TEXT}!"))).await;
    assert_eq!((refused.status.as_u16(), refused.text()), (200, ""));
    assert!(refused.header("idempotency-similar-to").is_some());
    enforcing.send(message("Ev3", TEXT)).await.assert_replay(201, "run 3");
    enforcing
        .send(message("Ev5", "A new colleague joins the support team on Monday"))
        .await
        .assert_first(201, "run 4");
    let reloaded = Instance {
        service: tower_layer::Layer::layer(
            &enforcing.layer.with_rules(enforcing.layer.rules().clone()),
            upstream.clone(),
        ),
        ..enforcing
    };
    assert_eq!(reloaded.send(message("Ev6", TEXT)).await.status.as_u16(), 200, "a reload forgets nothing");
}

async fn a_text_is_forgotten_with_an_event_that_was_not_handled(store: Store) {
    let upstream = Upstream::new(|call| async move { Ok(text(if call.run == 1 { 400 } else { 201 }, "")) });
    let instance = Instance::new(&store, similar(Mode::Enforce), &upstream).await;
    assert_eq!(instance.send(message("Ev1", TEXT)).await.status.as_u16(), 400);
    assert_eq!(instance.send(message("Ev2", TEXT)).await.status.as_u16(), 201);
    assert_eq!(instance.send(message("Ev1", TEXT)).await.status.as_u16(), 200);
    assert_eq!(upstream.runs(), 2);
}

async fn a_text_in_flight_is_retried_and_not_lost(store: Store) {
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let instance = Instance::new(&store, similar(Mode::Enforce), &upstream).await;
    let first = instance.spawn(message("Ev1", TEXT));
    upstream.started(1).await;
    instance.send(message("Ev2", TEXT)).await.assert_problem(409, "in-flight");
    gate.open();
    first.await.unwrap().assert_first(201, "run 1");
    let retried = instance.send_until_settled(|| message("Ev2", TEXT)).await;
    assert_eq!((retried.status.as_u16(), upstream.runs()), (200, 1));
}
