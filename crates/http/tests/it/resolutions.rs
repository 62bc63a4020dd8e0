//! An operator's word on a claim in doubt is what repeats get.

use ichido_core::{Outcome, Resolution, Resolved};

use crate::support::{Instance, Store, Upstream, on_every_ledger, order, post, route};

on_every_ledger! {
    an_operators_outcome_is_replayed,
    an_operators_tombstone_is_an_answer_that_was_not_kept,
    a_claim_that_an_operator_frees_runs_again,
}

async fn in_doubt(store: &Store, key: &str) -> (Instance, Upstream) {
    let upstream = Upstream::answering(504);
    let instance = Instance::new(store, route(), &upstream).await;
    instance.send(order(key)).await.is_first(504, "run 1");
    instance.send(order(key)).await.is_problem(409, "in-doubt");
    (instance, upstream)
}

async fn resolve(instance: &Instance, key: &str, word: Resolution) {
    assert_eq!(instance.ledger.resolve(&Instance::key(key), &word).await.unwrap(), Resolved::Applied);
}

async fn an_operators_outcome_is_replayed(store: Store) {
    for (key, outcome, kind) in
        [("json", "{\"id\":17}", "application/json"), ("text", "placed by hand", "text/plain; charset=utf-8")]
    {
        let (instance, upstream) = in_doubt(&store, key).await;
        resolve(&instance, key, Resolution::Done(Outcome::kept(outcome))).await;
        let got = instance.send(order(key)).await;
        got.is_again(200, outcome);
        assert_eq!(got.header("content-type"), Some(kind));
        instance.send(post("/orders", key, "else")).await.is_problem(422, "key-reused");
        assert_eq!(upstream.runs(), 1);
    }
}

async fn an_operators_tombstone_is_an_answer_that_was_not_kept(store: Store) {
    let (instance, upstream) = in_doubt(&store, "k").await;
    resolve(&instance, "k", Resolution::Done(Outcome::Tombstone("done by hand".to_owned()))).await;
    let got = instance.send(order("k")).await;
    got.is_problem(409, "answer-not-kept");
    assert!(got.text().contains("done by hand"));
    assert_eq!(upstream.runs(), 1);
}

async fn a_claim_that_an_operator_frees_runs_again(store: Store) {
    let (instance, upstream) = in_doubt(&store, "k").await;
    resolve(&instance, "k", Resolution::Absent).await;
    instance.send(order("k")).await.is_first(504, "run 2");
    assert!(!upstream.calls()[1].parts.headers.contains_key("idempotency-attempt"), "it never happened");
}
