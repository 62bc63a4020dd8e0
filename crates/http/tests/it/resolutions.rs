//! Retries get what an operator resolves a claim in doubt as.

use ichido_core::{Outcome, Resolution, Resolved};

use crate::support::{Instance, Store, Upstream, on_every_ledger, order, post, route};

on_every_ledger! {
    an_outcome_from_an_operator_is_replayed,
    a_tombstone_from_an_operator_is_not_replayed,
    a_claim_that_an_operator_resolves_as_absent_runs_again,
}

async fn in_doubt(store: &Store, key: &str) -> (Instance, Upstream) {
    let upstream = Upstream::responding(504);
    let instance = Instance::new(store, route(), &upstream).await;
    instance.send(order(key)).await.assert_first(504, "run 1");
    instance.send(order(key)).await.assert_problem(409, "in-doubt");
    (instance, upstream)
}

async fn resolve(instance: &Instance, key: &str, resolution: Resolution) {
    assert_eq!(instance.ledger.resolve(&Instance::key(key), &resolution).await.unwrap(), Resolved::Applied);
}

async fn an_outcome_from_an_operator_is_replayed(store: Store) {
    for (key, outcome, kind) in
        [("json", "{\"id\":17}", "application/json"), ("text", "placed by hand", "text/plain; charset=utf-8")]
    {
        let (instance, upstream) = in_doubt(&store, key).await;
        resolve(&instance, key, Resolution::Done(Outcome::kept(outcome))).await;
        let got = instance.send(order(key)).await;
        got.assert_replay(200, outcome);
        assert_eq!(got.header("content-type"), Some(kind));
        instance.send(post("/orders", key, "else")).await.assert_problem(422, "key-reused");
        assert_eq!(upstream.runs(), 1);
    }
}

async fn a_tombstone_from_an_operator_is_not_replayed(store: Store) {
    let (instance, upstream) = in_doubt(&store, "k").await;
    resolve(&instance, "k", Resolution::Done(Outcome::Tombstone("done by hand".to_owned()))).await;
    let got = instance.send(order("k")).await;
    got.assert_problem(409, "answer-not-kept");
    assert!(got.text().contains("done by hand"));
    assert_eq!(upstream.runs(), 1);
}

async fn a_claim_that_an_operator_resolves_as_absent_runs_again(store: Store) {
    let (instance, upstream) = in_doubt(&store, "k").await;
    resolve(&instance, "k", Resolution::Absent).await;
    instance.send(order("k")).await.assert_first(504, "run 2");
    assert!(
        !upstream.calls()[1].parts.headers.contains_key("idempotency-attempt"),
        "the first attempt does not count"
    );
}
