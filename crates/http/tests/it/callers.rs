//! A key belongs to the credentials that used it first, unless the rules name a tenant.

use std::sync::Arc;

use http::Request;
use ichido_core::{Resolution, Resolved};
use ichido_http::{InFlight, Journal, Route, ServerErrors};
use ichido_ledger::Ledger;

use crate::support::{
    AnyBody, Behavior, FaultyBackend, Gate, Instance, Store, TIMEOUT, Upstream, ms, on_every_ledger, order,
    post, route, rules, short_timeouts, text,
};

on_every_ledger! {
    a_refreshed_token_does_not_run_the_request_again,
    users_with_the_same_credential_and_different_cookies_are_different_callers,
    a_different_caller_is_refused_while_the_claim_is_in_doubt,
    a_different_caller_does_not_wait_for_a_running_request,
    a_different_caller_gets_no_replay_from_the_journal,
    a_zombie_does_not_get_the_response_of_a_different_caller,
}

fn with(mut request: Request<AnyBody>, fields: &[(&'static str, &str)]) -> Request<AnyBody> {
    for (name, value) in fields {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    request
}

fn from(token: &str) -> Request<AnyBody> {
    with(order("k"), &[("authorization", &format!("Bearer {token}"))])
}

async fn a_refreshed_token_does_not_run_the_request_again(store: Store) {
    let upstream = Upstream::counting();
    let here = Instance::new(&store, route(), &upstream).await;
    let elsewhere = Instance::new(&store, route(), &upstream).await;
    here.send(from("a")).await.assert_first(201, "run 1");
    for instance in [&here, &elsewhere] {
        let refused = instance.send(from("b")).await;
        refused.assert_problem(409, "caller-changed");
        assert_eq!(refused.header("x-should-retry"), Some("false"));
        assert!(refused.text().contains("`tenant`") && !refused.text().contains("run 1"), "{refused:?}");
        // A different caller does not learn whether the body differs.
        let reuse = with(post("/orders", "k", "else"), &[("authorization", "Bearer b")]);
        instance.send(reuse).await.assert_problem(409, "caller-changed");
        instance.send(order("k")).await.assert_problem(409, "caller-changed");
        instance.send(from("a")).await.assert_replay(201, "run 1");
    }
    assert_eq!(upstream.runs(), 1);
}

async fn users_with_the_same_credential_and_different_cookies_are_different_callers(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, route(), &upstream).await;
    let user = |cookie| with(order("k"), &[("authorization", "Basic dTpw"), ("cookie", cookie)]);
    instance.send(user("sid=1; theme=dark")).await.assert_first(201, "run 1");
    instance.send(user("sid=2; theme=dark")).await.assert_problem(409, "caller-changed");
    instance.send(user("theme=dark; sid=1")).await.assert_replay(201, "run 1");
    // A cookie alone is enough.
    let alone = |cookie| with(order("c"), &[("cookie", cookie)]);
    instance.send(alone("sid=1")).await.assert_first(201, "run 2");
    instance.send(alone("sid=1")).await.assert_replay(201, "run 2");
    instance.send(alone("sid=2")).await.assert_problem(409, "caller-changed");
    assert_eq!(upstream.runs(), 2);
}

async fn a_different_caller_is_refused_while_the_claim_is_in_doubt(store: Store) {
    let upstream = Upstream::responding(504);
    let instance = Instance::new(&store, route(), &upstream).await;
    instance.send(from("a")).await.assert_first(504, "run 1");
    instance.send(from("b")).await.assert_problem(409, "caller-changed");
    instance.send(from("a")).await.assert_problem(409, "in-doubt");
    assert_eq!(upstream.runs(), 1);
}

async fn a_different_caller_does_not_wait_for_a_running_request(store: Store) {
    let gate = Gate::closed();
    let upstream = Upstream::gated(&gate);
    let patient = Route { in_flight: InFlight::Wait(10 * TIMEOUT), ..route() };
    let here = Instance::new(&store, patient.clone(), &upstream).await;
    let elsewhere = Instance::new(&store, patient, &upstream).await;
    let first = here.spawn(from("a"));
    upstream.started(1).await;
    // The gate is closed, so a caller that waited would make the test time out.
    here.send(from("b")).await.assert_problem(409, "caller-changed");
    elsewhere.send(from("b")).await.assert_problem(409, "caller-changed");
    gate.open();
    first.await.unwrap().assert_first(201, "run 1");
    assert_eq!(upstream.runs(), 1);
}

async fn a_different_caller_gets_no_replay_from_the_journal(store: Store) {
    let dir = tempfile::tempdir().unwrap();
    let upstream = Upstream::counting();
    let faulty = FaultyBackend::wrap(store.backend().await);
    let journal = Arc::new(Journal::open(dir.path()).unwrap());
    let ledger = Ledger::new(faulty.clone(), short_timeouts());
    let instance = Instance::with(ledger, rules(route()), None, Some(journal.clone()), &upstream);
    faulty.settlements(Behavior::Refused);
    instance.send(from("a")).await.assert_first(201, "run 1");
    assert_eq!(journal.len(), 1);
    instance.send(from("b")).await.assert_problem(409, "caller-changed");
    instance.send(from("a")).await.assert_replay(201, "run 1");
    assert_eq!(upstream.runs(), 1);
}

/// The claim lapsed, an operator resolved it as absent, and a different caller has used the key since.
async fn a_zombie_does_not_get_the_response_of_a_different_caller(store: Store) {
    let gate = Gate::closed();
    let upstream = Upstream::new({
        let gate = gate.clone();
        move |call| {
            let gate = gate.clone();
            async move {
                if call.run == 1 {
                    gate.opened().await;
                }
                Ok(text(201, &format!("run {}", call.run)))
            }
        }
    });
    let route = Route { lease: ms(400), server_errors: Some(ServerErrors::Release), ..route() };
    let faulty = FaultyBackend::wrap(store.backend().await);
    faulty.renewals(Behavior::Refused);
    let zombie = Instance::impatient(faulty, route.clone(), &upstream);
    let other = Instance::new(&store, Route { lease: ms(30_000), ..route }, &upstream).await;
    let first = zombie.spawn(from("a"));
    upstream.started(1).await;
    other.send_until_settled(|| from("a")).await.assert_problem(409, "in-doubt");
    let freed = other.ledger.resolve(&Instance::key("k"), &Resolution::Absent).await.unwrap();
    assert_eq!(freed, Resolved::Applied);
    other.send(from("b")).await.assert_first(201, "run 2");
    gate.open();
    first.await.unwrap().assert_first(201, "run 1");
    other.send(from("b")).await.assert_replay(201, "run 2");
}
