//! Which claims are granted.

use std::collections::HashSet;

use ichido_core::{Caller, Claim, ClaimRequest, Fingerprint, InDoubtPolicy, Metadata, Settled};

use super::{
    BOUND, LONG_MS, SHORT_MS, Subject, claim, grant_of, granted, instance, key, lapse, outcome, request,
    scoped, unique,
};
use crate::Ledger;

/// A first claim is granted, as the first attempt, for the requested lease.
pub async fn a_free_key_is_granted(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("free");
    let request = request(&ledger, &key, LONG_MS);
    let grant = grant_of(claim(&ledger, &request).await);
    assert_eq!((grant.attempt, grant.lease_ms, grant.token), (1, LONG_MS, request.token));
}

/// While a holder has the key, other callers are told to retry later, on any instance.
pub async fn a_second_caller_has_to_wait(subject: &dyn Subject) {
    let (ledger, other) = (instance(subject).await, instance(subject).await);
    let key = key("held");
    granted(&ledger, &key, LONG_MS).await;
    for ledger in [&ledger, &other] {
        match claim(ledger, &request(ledger, &key, LONG_MS)).await {
            Claim::Held { retry_after_ms } => assert!(retry_after_ms <= LONG_MS, "{retry_after_ms}"),
            answer => panic!("expected held, got {answer:?}"),
        }
    }
}

/// A retry of the same call gets the same grant, from any instance.
pub async fn a_retry_after_a_lost_reply_is_not_a_duplicate(subject: &dyn Subject) {
    let (ledger, other) = (instance(subject).await, instance(subject).await);
    let key = key("lost-reply");
    let first = request(&ledger, &key, LONG_MS);
    let grant = grant_of(claim(&ledger, &first).await);
    let again = ClaimRequest { token: ledger.request(key.clone()).token, ..first.clone() };
    assert_eq!(same(claim(&ledger, &again).await), same(Claim::Granted(grant)));
    assert_eq!(same(claim(&other, &first).await), same(Claim::Granted(grant)));
    assert_eq!(ledger.complete(&key, grant.token, outcome("x")).await.unwrap(), Settled::Applied);
    assert_eq!(claim(&ledger, &first).await, Claim::Done(outcome("x")));
}

/// Another fingerprint is a mismatch, whether the claim is running, in doubt or done.
pub async fn another_fingerprint_is_a_mismatch_in_every_state(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("mismatch");
    let grant = granted(&ledger, &key, SHORT_MS).await;
    let reuse =
        || ClaimRequest { fingerprint: Fingerprint::of(["other"]), ..request(&ledger, &key, LONG_MS) };
    assert_eq!(claim(&ledger, &reuse()).await, Claim::Mismatch);
    lapse(&ledger, &key).await;
    assert_eq!(claim(&ledger, &reuse()).await, Claim::Mismatch);
    assert_eq!(ledger.complete(&key, grant.token, outcome("x")).await.unwrap(), Settled::Applied);
    assert_eq!(claim(&ledger, &reuse()).await, Claim::Mismatch);
}

/// A mismatch leaves the record unchanged, to the byte.
pub async fn a_mismatch_changes_nothing(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("mismatch-keeps");
    let grant = granted(&ledger, &key, LONG_MS).await;
    assert_eq!(ledger.complete(&key, grant.token, outcome("kept")).await.unwrap(), Settled::Applied);
    let before = ledger.get(&key).await.unwrap();
    let reuse = ClaimRequest { fingerprint: Fingerprint::of(["other"]), ..request(&ledger, &key, LONG_MS) };
    assert_eq!(claim(&ledger, &reuse).await, Claim::Mismatch);
    assert!(before.is_some());
    assert_eq!(ledger.get(&key).await.unwrap(), before);
}

/// The same request with other credentials is refused in every state, on every instance, and changes nothing.
pub async fn another_caller_is_refused_in_every_state(subject: &dyn Subject) {
    let (ledger, other) = (instance(subject).await, instance(subject).await);
    let key = key("caller");
    let grant = grant_of(claim(&ledger, &from(CALLER, request(&ledger, &key, SHORT_MS))).await);
    let is_refused = async || {
        let before = ledger.get(&key).await.unwrap();
        let policies = [InDoubtPolicy::Reject, InDoubtPolicy::Retry { silent_ms: 0 }];
        for (ledger, in_doubt) in [&ledger, &other].into_iter().zip(policies) {
            let fingerprint = Fingerprint::of(["other"]);
            let ask = ClaimRequest { in_doubt, ..from(OTHER_CALLER, request(ledger, &key, LONG_MS)) };
            assert_eq!(claim(ledger, &ask).await, Claim::CallerChanged);
            assert_eq!(claim(ledger, &ClaimRequest { fingerprint, ..ask }).await, Claim::CallerChanged);
        }
        assert!(before.as_ref().is_some_and(|record| record.caller == Some(CALLER)));
        assert_eq!(ledger.get(&key).await.unwrap(), before);
    };
    is_refused().await;
    lapse(&ledger, &key).await;
    is_refused().await;
    assert_eq!(ledger.declare_in_doubt(&key, grant.token, "lost").await.unwrap(), Settled::Applied);
    is_refused().await;
    assert_eq!(ledger.complete(&key, grant.token, outcome("x")).await.unwrap(), Settled::Applied);
    is_refused().await;
    let retry = from(CALLER, request(&other, &key, LONG_MS));
    assert_eq!(claim(&other, &retry).await, Claim::Done(outcome("x")));
}

/// A claim that was made without a caller is refused to a request with one. A request without a caller is not
/// checked.
pub async fn a_claim_without_a_caller_is_refused_to_one(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("no-caller");
    let grant = granted(&ledger, &key, LONG_MS).await;
    let ask = from(CALLER, request(&ledger, &key, LONG_MS));
    assert_eq!(claim(&ledger, &ask).await, Claim::CallerChanged);
    assert_eq!(ledger.complete(&key, grant.token, outcome("x")).await.unwrap(), Settled::Applied);
    assert_eq!(claim(&ledger, &ask).await, Claim::CallerChanged);
    assert_eq!(claim(&ledger, &request(&ledger, &key, LONG_MS)).await, Claim::Done(outcome("x")));
}

/// A request with other credentials does not wait for the holder either.
pub async fn another_caller_does_not_wait(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("caller-waits");
    grant_of(claim(&ledger, &from(CALLER, request(&ledger, &key, LONG_MS))).await);
    let ask = from(OTHER_CALLER, request(&ledger, &key, LONG_MS));
    let answer = tokio::time::timeout(BOUND, ledger.claim_or_wait(&ask, 10 * BOUND)).await;
    assert_eq!(answer.expect("it is refused at once").unwrap().claim, Claim::CallerChanged);
}

const CALLER: Caller = Caller::from_bytes([1; 32]);
const OTHER_CALLER: Caller = Caller::from_bytes([2; 32]);

fn from(caller: Caller, request: ClaimRequest) -> ClaimRequest {
    ClaimRequest { caller: Some(caller), ..request }
}

/// Of any number of concurrent requests on any number of instances, one is granted.
pub async fn a_thousand_parallel_claims_get_one_grant(subject: &dyn Subject) {
    let mut instances = Vec::new();
    for _ in 0..4 {
        instances.push(instance(subject).await);
    }
    assert_eq!(winners(&instances, &key("thousand"), 1000).await, 1);
}

/// Fifty callers race for each of twenty keys: one winner per key.
pub async fn every_key_of_a_stampede_has_one_winner(subject: &dyn Subject) {
    let instances = [instance(subject).await, instance(subject).await];
    for round in 0..20 {
        assert_eq!(winners(&instances, &key("stampede"), 50).await, 1, "round {round}");
    }
}

async fn winners(instances: &[Ledger], key: &ichido_core::Key, callers: usize) -> usize {
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..callers {
        let ledger = instances[caller % instances.len()].clone();
        let request = request(&ledger, key, LONG_MS);
        tasks.spawn(async move { claim(&ledger, &request).await });
    }
    let mut winners = 0;
    for answer in tasks.join_all().await {
        match answer {
            Claim::Granted(_) => winners += 1,
            Claim::Held { .. } => {}
            other => panic!("expected granted or held, got {other:?}"),
        }
    }
    winners
}

/// Separators, prefixes and unusual characters never make two keys one.
pub async fn separators_in_keys_do_not_make_them_collide(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let u = unique();
    let parts = [
        ("a".to_owned(), "b:c".to_owned(), u.clone()),
        ("a:b".to_owned(), "c".to_owned(), u.clone()),
        ("a".to_owned(), "b".to_owned(), format!("c:{u}")),
        (String::new(), "a:b:c".to_owned(), u.clone()),
        ("a/b".to_owned(), String::new(), u.clone()),
        ("a".to_owned(), "/b".to_owned(), u.clone()),
        (String::new(), String::new(), format!("{u}%")),
        (String::new(), String::new(), format!("{u}_")),
        (String::new(), String::new(), format!("{u}*")),
        (String::new(), String::new(), format!("{u}{{x}}")),
        (String::new(), String::new(), format!("{u}'; --")),
        (String::new(), String::new(), format!("{u}\u{0}")),
        (String::new(), String::new(), format!("{u}\n")),
        (String::new(), String::new(), format!("{u} ")),
        (String::new(), String::new(), format!("ichido#{u}")),
        (String::new(), String::new(), format!("{u}é")),
        (String::new(), String::new(), format!("{u}e\u{301}")),
        (String::new(), String::new(), u.to_uppercase()),
        (String::new(), String::new(), u.clone()),
    ];
    let mut tokens = HashSet::new();
    for (tenant, route, text) in parts {
        let key = ichido_core::Key::new(ichido_core::Scope::new(tenant, route), text.clone()).unwrap();
        let grant = granted(&ledger, &key, LONG_MS).await;
        assert!(tokens.insert(grant.token), "{text:?} met another key");
        let record = ledger.get(&key).await.unwrap().expect("it is there");
        assert_eq!(record.key.text(), text, "the caller's text is kept for operators");
    }
}

/// The same text in another scope is another key.
pub async fn tenants_and_routes_are_separate(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let text = unique();
    for (tenant, route) in [("alice", "POST /orders"), ("bob", "POST /orders"), ("alice", "POST /refunds")] {
        let key = ichido_core::Key::new(ichido_core::Scope::new(tenant, route), text.clone()).unwrap();
        granted(&ledger, &key, LONG_MS).await;
    }
}

/// Nested claims that are settled in any order keep their own outcomes.
pub async fn interleaved_claims_keep_their_own_keys(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let (outer, inner) = (scoped("t", "outer", "nest"), scoped("t", "inner", "nest"));
    let outer_grant = granted(&ledger, &outer, LONG_MS).await;
    let inner_grant = granted(&ledger, &inner, LONG_MS).await;
    assert_eq!(ledger.complete(&outer, outer_grant.token, outcome("outer")).await.unwrap(), Settled::Applied);
    assert_eq!(ledger.complete(&inner, inner_grant.token, outcome("inner")).await.unwrap(), Settled::Applied);
    assert!(matches!(
        ledger.complete(&inner, outer_grant.token, outcome("no")).await.unwrap(),
        Settled::Stale(_)
    ));
    assert_eq!(claim(&ledger, &request(&ledger, &outer, LONG_MS)).await, Claim::Done(outcome("outer")));
    assert_eq!(claim(&ledger, &request(&ledger, &inner, LONG_MS)).await, Claim::Done(outcome("inner")));
}

/// The caller's metadata can be read back.
pub async fn metadata_is_kept(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("metadata");
    let pairs = [("file_id".to_owned(), "F1".to_owned()), ("note".to_owned(), "zwölf 十二 \"'".to_owned())];
    let metadata = Metadata::new(pairs).unwrap();
    let request = ClaimRequest { metadata: metadata.clone(), ..request(&ledger, &key, LONG_MS) };
    grant_of(claim(&ledger, &request).await);
    assert_eq!(ledger.get(&key).await.unwrap().expect("it is there").metadata, metadata);
}

/// What two identical grants share: everything but the rest of the lease.
fn same(claim: Claim) -> (ichido_core::Token, u32, u64) {
    let grant = grant_of(claim);
    (grant.token, grant.attempt, grant.lease_ms)
}
