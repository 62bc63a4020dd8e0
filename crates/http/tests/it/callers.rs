//! A key belongs to the credentials that used it first, unless the rules name the tenant.

use std::sync::Arc;

use http::Request;
use ichido_core::{Resolution, Resolved};
use ichido_http::{InFlight, Journal, Route, ServerErrors};
use ichido_ledger::Ledger;

use crate::support::{
    AnyBody, BOUND, Faulty, Gate, Instance, Store, Upstream, Way, ms, on_every_ledger, order, post, quick,
    route, rules, text,
};

on_every_ledger! {
    a_refreshed_token_runs_nothing_again,
    users_who_share_a_credential_and_differ_in_a_cookie_are_told_apart,
    another_caller_is_refused_while_the_outcome_is_in_doubt,
    another_caller_does_not_wait_for_a_request_that_runs,
    another_caller_is_not_answered_from_the_journal,
    a_zombie_is_not_given_the_answer_of_another_caller,
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

async fn a_refreshed_token_runs_nothing_again(store: Store) {
    let upstream = Upstream::counting();
    let here = Instance::new(&store, route(), &upstream).await;
    let elsewhere = Instance::new(&store, route(), &upstream).await;
    here.send(from("a")).await.is_first(201, "run 1");
    for instance in [&here, &elsewhere] {
        let refused = instance.send(from("b")).await;
        refused.is_problem(409, "caller-changed");
        assert_eq!(refused.header("x-should-retry"), Some("false"));
        assert!(refused.text().contains("`tenant`") && !refused.text().contains("run 1"), "{refused:?}");
        // Whether the body is another one is nobody else's business.
        let reuse = with(post("/orders", "k", "else"), &[("authorization", "Bearer b")]);
        instance.send(reuse).await.is_problem(409, "caller-changed");
        instance.send(order("k")).await.is_problem(409, "caller-changed");
        instance.send(from("a")).await.is_again(201, "run 1");
    }
    assert_eq!(upstream.runs(), 1);
}

async fn users_who_share_a_credential_and_differ_in_a_cookie_are_told_apart(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::new(&store, route(), &upstream).await;
    let user = |cookie| with(order("k"), &[("authorization", "Basic dTpw"), ("cookie", cookie)]);
    instance.send(user("sid=1; theme=dark")).await.is_first(201, "run 1");
    instance.send(user("sid=2; theme=dark")).await.is_problem(409, "caller-changed");
    instance.send(user("theme=dark; sid=1")).await.is_again(201, "run 1");
    // A cookie alone is enough.
    let alone = |cookie| with(order("c"), &[("cookie", cookie)]);
    instance.send(alone("sid=1")).await.is_first(201, "run 2");
    instance.send(alone("sid=1")).await.is_again(201, "run 2");
    instance.send(alone("sid=2")).await.is_problem(409, "caller-changed");
    assert_eq!(upstream.runs(), 2);
}

async fn another_caller_is_refused_while_the_outcome_is_in_doubt(store: Store) {
    let upstream = Upstream::answering(504);
    let instance = Instance::new(&store, route(), &upstream).await;
    instance.send(from("a")).await.is_first(504, "run 1");
    instance.send(from("b")).await.is_problem(409, "caller-changed");
    instance.send(from("a")).await.is_problem(409, "in-doubt");
    assert_eq!(upstream.runs(), 1);
}

async fn another_caller_does_not_wait_for_a_request_that_runs(store: Store) {
    let gate = Gate::shut();
    let upstream = Upstream::gated(&gate);
    let patient = Route { in_flight: InFlight::Wait(10 * BOUND), ..route() };
    let here = Instance::new(&store, patient.clone(), &upstream).await;
    let elsewhere = Instance::new(&store, patient, &upstream).await;
    let first = here.spawn(from("a"));
    upstream.started(1).await;
    // The gate is shut: whoever waits gets no answer before the test gives up.
    here.send(from("b")).await.is_problem(409, "caller-changed");
    elsewhere.send(from("b")).await.is_problem(409, "caller-changed");
    gate.open();
    first.await.unwrap().is_first(201, "run 1");
    assert_eq!(upstream.runs(), 1);
}

async fn another_caller_is_not_answered_from_the_journal(store: Store) {
    let dir = tempfile::tempdir().unwrap();
    let upstream = Upstream::counting();
    let faulty = Faulty::around(store.backend().await);
    let journal = Arc::new(Journal::open(dir.path()).unwrap());
    let ledger = Ledger::new(faulty.clone(), quick());
    let instance = Instance::with(ledger, rules(route()), None, Some(journal.clone()), &upstream);
    faulty.words(Way::Refused);
    instance.send(from("a")).await.is_first(201, "run 1");
    assert_eq!(journal.len(), 1);
    instance.send(from("b")).await.is_problem(409, "caller-changed");
    instance.send(from("a")).await.is_again(201, "run 1");
    assert_eq!(upstream.runs(), 1);
}

/// Its claim lapsed, an operator freed the key, and another caller used it since.
async fn a_zombie_is_not_given_the_answer_of_another_caller(store: Store) {
    let gate = Gate::shut();
    let upstream = Upstream::new({
        let gate = gate.clone();
        move |call| {
            let gate = gate.clone();
            async move {
                if call.run == 1 {
                    gate.passed().await;
                }
                Ok(text(201, &format!("run {}", call.run)))
            }
        }
    });
    let route = Route { lease: ms(400), server_errors: Some(ServerErrors::Release), ..route() };
    let faulty = Faulty::around(store.backend().await);
    faulty.renewals(Way::Refused);
    let zombie = Instance::hasty(faulty, route.clone(), &upstream);
    let other = Instance::new(&store, Route { lease: ms(30_000), ..route }, &upstream).await;
    let first = zombie.spawn(from("a"));
    upstream.started(1).await;
    other.send_until_settled(|| from("a")).await.is_problem(409, "in-doubt");
    let freed = other.ledger.resolve(&Instance::key("k"), &Resolution::Absent).await.unwrap();
    assert_eq!(freed, Resolved::Applied);
    other.send(from("b")).await.is_first(201, "run 2");
    gate.open();
    first.await.unwrap().is_first(201, "run 1");
    other.send(from("b")).await.is_again(201, "run 2");
}
