//! Observe mode: requests are counted and pass unchanged.

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use ichido_http::{Failure, Mode, Route, Rules};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use crate::support::{
    AnyBody, Behavior, Cut, FaultyBackend, Gate, Instance, Received, Store, Upstream, body, chunks,
    on_embedded_ledgers, order, post, route, rules, until,
};

on_embedded_ledgers! {
    every_request_of_an_observed_route_passes,
    an_observed_response_is_unchanged,
    an_observed_route_does_not_wait_for_the_ledger,
    an_observed_route_has_no_concurrency_limit,
    an_observed_failure_reaches_the_caller,
    what_enforcement_would_have_done_is_counted,
    observed_keys_are_separate_from_enforced_keys,
}

fn observed() -> Route {
    Route { mode: Mode::Observe, ..route() }
}

async fn every_request_of_an_observed_route_passes(store: Store) {
    let upstream = Upstream::counting();
    let rules = Rules { body_max_bytes: 100, body_memory_bytes: 10, ..rules(observed()) };
    let instance = Instance::of(store.ledger().await, rules, &upstream);
    let with =
        |value: &str| Request::post("/orders").header("idempotency-key", value).body(body("x")).unwrap();
    let mut two_lines = with("\"a\"");
    two_lines.headers_mut().append("idempotency-key", "\"b\"".parse().unwrap());
    let mut cookie = order("c");
    cookie.headers_mut().insert("cookie", "sid=1".parse().unwrap());
    let in_chunks = Request::post("/orders")
        .header("idempotency-key", "\"p\"")
        .body(chunks((0..50).map(|_| Ok("0123456789".into())).collect(), None))
        .unwrap();
    let requests: Vec<Request<AnyBody>> = vec![
        order("k"),
        order("k"),
        post("/orders", "k", "another body"),
        with("\"broken"),
        with(""),
        Request::post("/orders").body(body("no key")).unwrap(),
        two_lines,
        cookie,
        post("/orders", "large", vec![b'x'; 500]),
        in_chunks,
    ];
    let bodies: Vec<usize> = vec![10, 10, 12, 1, 1, 6, 1, 10, 500, 500];
    for (at, request) in requests.into_iter().enumerate() {
        instance.send(request).await.assert_first(201, &format!("run {}", at + 1));
    }
    let seen: Vec<usize> = upstream.calls().iter().map(|call| call.body.len()).collect();
    assert_eq!(seen, bodies);
}

async fn an_observed_response_is_unchanged(store: Store) {
    let upstream = Upstream::new(async |_| {
        Ok(Response::builder()
            .status(202)
            .header("date", "Sun, 06 Nov 1994 08:49:37 GMT")
            .header("set-cookie", "a=1")
            .header("connection", "close")
            .body(chunks(vec![Ok("one".into()), Err("cut")], None))
            .unwrap())
    });
    let instance = Instance::of(store.ledger().await, rules(observed()), &upstream);
    for _ in 0..2 {
        let response = instance.start(order("k")).await.unwrap();
        let mut names: Vec<_> = response.headers().keys().map(|name| name.as_str().to_owned()).collect();
        names.sort();
        assert_eq!(names, ["connection", "date", "set-cookie"]);
        assert!(Received::read(response).await.is_err());
    }
}

async fn an_observed_route_does_not_wait_for_the_ledger(store: Store) {
    for behavior in [Behavior::Refused, Behavior::Hangs, Behavior::Lost] {
        let upstream = Upstream::counting();
        let faulty = FaultyBackend::wrap(store.backend().await);
        // Timeouts that exceed the test: a request that waited for the ledger would fail the test.
        let settings = ichido_ledger::Settings {
            timeout: std::time::Duration::from_secs(3600),
            try_timeout: std::time::Duration::from_secs(3600),
            ..ichido_ledger::Settings::default()
        };
        let ledger = ichido_ledger::Ledger::new(faulty.clone(), settings);
        let instance = Instance::of(ledger, rules(observed()), &upstream);
        faulty.all_claims(behavior);
        let sent = tokio::time::timeout(crate::support::TIMEOUT, instance.send(order("k"))).await;
        sent.expect("a response in time").assert_first(201, "run 1");
    }
}

async fn an_observed_route_has_no_concurrency_limit(store: Store) {
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let rules = Rules { inflight_max: 1, ..rules(observed()) };
    let instance = Instance::of(store.ledger().await, rules, &upstream);
    let callers: Vec<_> = (0..5).map(|number| instance.spawn(order(&format!("k{number}")))).collect();
    upstream.started(5).await;
    gate.open();
    for caller in callers {
        assert_eq!(caller.await.unwrap().status, 201);
    }
}

async fn an_observed_failure_reaches_the_caller(store: Store) {
    let upstream = Upstream::new(async |_| Err(Failure::NotSent("refused".into())));
    let instance = Instance::of(store.ledger().await, rules(observed()), &upstream);
    for _ in 0..2 {
        assert!(matches!(instance.start(order("k")).await, Err(Failure::NotSent(_))));
    }
}

/// An instance whose metrics can be read.
fn with_metrics(
    ledger: ichido_ledger::Ledger,
    rules: Rules,
    upstream: &Upstream,
) -> (Instance, PrometheusHandle) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    (metrics::with_local_recorder(&recorder, || Instance::of(ledger, rules, upstream)), handle)
}

fn count(metrics: &PrometheusHandle, name: &str, outcome: &str) -> u64 {
    let text = metrics.render();
    let line = text.lines().find(|line| {
        line.starts_with(&format!("{name}{{")) && line.contains(&format!("outcome=\"{outcome}\""))
    });
    line.and_then(|line| line.rsplit(' ').next()).and_then(|count| count.parse().ok()).unwrap_or(0)
}

async fn what_enforcement_would_have_done_is_counted(store: Store) {
    let name = "ichido_observed_requests_total";
    let gate = Gate::closed();
    gate.open_for(1);
    let upstream = Upstream::new({
        let gate = gate.clone();
        move |call| {
            let gate = gate.clone();
            async move {
                gate.turn(if call.parts.uri.path() == "/slow" { 2 } else { 1 }).await;
                Ok(crate::support::text(201, &format!("run {}", call.run)))
            }
        }
    });
    let (instance, metrics) = with_metrics(store.ledger().await, rules(observed()), &upstream);
    instance.send(order("k")).await.assert_first(201, "run 1");
    instance.layer.drain().await;
    instance.send(order("k")).await;
    instance.send(post("/orders", "k", "else")).await;
    let mut other = order("k");
    other.headers_mut().insert("authorization", "Bearer b".parse().unwrap());
    instance.send(other).await.assert_first(201, "run 4");
    instance.send(Request::post("/orders").body(body("")).unwrap()).await;
    let slow = [instance.spawn(post("/slow", "k", "")), instance.spawn(post("/slow", "k", ""))];
    until("both requests run", async || upstream.runs() == 7).await;
    gate.open();
    for slow in slow {
        slow.await.unwrap();
    }
    instance.layer.drain().await;
    let counts = ["first", "replayed", "mismatch", "caller-changed", "refused", "conflict"]
        .map(|outcome| count(&metrics, name, outcome));
    assert_eq!(counts, [2, 1, 1, 1, 1, 1], "{}", metrics.render());
    assert_eq!(upstream.runs(), 7);
    assert_eq!(instance.layer.in_flight(), 0);
    assert!(metrics.render().contains("ichido_inflight 0"), "{}", metrics.render());
}

async fn observed_keys_are_separate_from_enforced_keys(store: Store) {
    let upstream = Upstream::counting();
    let observing = Instance::of(store.ledger().await, rules(observed()), &upstream);
    let enforcing = Instance::new(&store, route(), &upstream).await;
    observing.send(order("k")).await.assert_first(201, "run 1");
    observing.layer.drain().await;
    enforcing.send(order("k")).await.assert_first(201, "run 2");
    enforcing.send(order("k")).await.assert_replay(201, "run 2");
    observing.send(order("k")).await.assert_first(201, "run 3");
}

/// The sender pauses for longer than an enforced route allows.
#[tokio::test(start_paused = true)]
async fn an_observed_upload_may_be_slow() {
    let upstream = Upstream::counting();
    let upload = |route: Route| {
        let frames = futures_util::stream::unfold(0, |at| async move {
            if at == 1 {
                tokio::time::sleep(std::time::Duration::from_secs(45)).await;
            }
            (at < 2).then(|| (Ok::<_, Cut>(Frame::data(Bytes::from_static(b"half"))), at + 1))
        });
        let request = Request::post("/orders")
            .header("idempotency-key", "\"k\"")
            .body(StreamBody::new(Box::pin(frames)).boxed_unsync())
            .unwrap();
        let upstream = upstream.clone();
        async move { Instance::new(&Store::memory(), route, &upstream).await.send(request).await }
    };
    upload(route()).await.assert_problem(408, "body-too-slow");
    upload(observed()).await.assert_first(201, "run 1");
    assert_eq!(upstream.calls()[0].body, "halfhalf");
}

/// A gauge that does not return to zero would show a leak.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_decrements_the_in_flight_gauge() {
    for route in [observed(), route(), Route { outage: ichido_http::Outage::Open, ..route() }] {
        let upstream = Upstream::new(async |_| panic!("intended: every run panics"));
        let faulty = FaultyBackend::wrap(Store::memory().backend().await);
        if route.outage == ichido_http::Outage::Open {
            faulty.all_claims(Behavior::Refused);
        }
        let ledger = ichido_ledger::Ledger::new(faulty, crate::support::short_timeouts());
        let (instance, metrics) = with_metrics(ledger, rules(route), &upstream);
        assert_eq!(instance.send(order("k")).await.status, 500);
        instance.layer.drain().await;
        assert!(metrics.render().contains("ichido_inflight 0"), "{}", metrics.render());
    }
}
