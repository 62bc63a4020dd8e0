//! Every call follows the rules.

use ichido_core::mark::{self, Mark};
use ichido_core::{
    Adopted, Claim, ClaimRequest, CurrentState, DoubtReason, Fingerprint, InDoubtPolicy, MarkKey, Metadata,
    Nonce, Outcome, Resolution, Resolved, Settle, Settled, Token,
};

use super::{LEASE_MS, RETENTION_MS, clock, complete, grant, key, open, request};
use crate::{Backend, Maintain, Query, StateName};

#[tokio::test]
async fn a_claim_is_held_then_done_then_free() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    let grant = grant(&ledger, "k", 1).await;
    assert_eq!(grant.attempt, 1);
    assert_eq!(
        ledger.claim(&request("k", 1)).await.unwrap(),
        Claim::Granted(grant),
        "the same nonce wins again"
    );
    assert_eq!(ledger.claim(&request("k", 2)).await.unwrap(), Claim::Held { retry_after_ms: LEASE_MS });
    let mut other = request("k", 2);
    other.fingerprint = ichido_core::Fingerprint::of(["other"]);
    assert_eq!(ledger.claim(&other).await.unwrap(), Claim::Mismatch);

    let action = Settle::Complete(Outcome::kept("answer"));
    assert_eq!(ledger.settle(&key("k"), grant.token, &action).await.unwrap(), Settled::Applied);
    for _ in 0..3 {
        assert_eq!(ledger.claim(&request("k", 2)).await.unwrap(), Claim::Done(Outcome::kept("answer")));
    }
    assert_eq!(ledger.claim(&other).await.unwrap(), Claim::Mismatch);
    let late = Settle::Complete(Outcome::kept("late"));
    let stale = Settled::Stale(CurrentState::Done(Outcome::kept("answer")));
    assert_eq!(ledger.settle(&key("k"), Token::from_bytes([9; 16]), &late).await.unwrap(), stale);

    clock.advance(RETENTION_MS);
    let again = super::grant(&ledger, "k", 3).await;
    assert_eq!(again.attempt, 1, "its retention is over");
    assert!(matches!(ledger.claim(&request("k", 4)).await.unwrap(), Claim::Held { .. }), "no cached outcome");
}

#[tokio::test]
async fn a_lapsed_lease_is_in_doubt_and_can_be_taken_over_by_policy() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    let first = grant(&ledger, "k", 1).await;
    clock.advance(LEASE_MS);
    let Claim::InDoubt(doubt) = ledger.claim(&request("k", 2)).await.unwrap() else { panic!("not in doubt") };
    assert_eq!(doubt.reason, DoubtReason::LeaseLapsed);
    let mut takeover = request("k", 2);
    takeover.in_doubt = InDoubtPolicy::Retry { silent_ms: LEASE_MS };
    let Claim::Granted(second) = ledger.claim(&takeover).await.unwrap() else { panic!("not taken over") };
    assert_eq!(second.attempt, 2);
    let late = ledger.settle(&key("k"), first.token, &Settle::Release).await.unwrap();
    assert_eq!(late, Settled::Stale(CurrentState::Running));
}

#[tokio::test]
async fn an_operator_resolves_doubt() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    for (text, resolution) in [
        ("done", Resolution::Done(Outcome::kept("x"))),
        ("absent", Resolution::Absent),
        ("free", Resolution::Release),
    ] {
        let grant = grant(&ledger, text, 1).await;
        let doubt = Settle::Doubt("timeout".to_owned());
        assert_eq!(ledger.settle(&key(text), grant.token, &doubt).await.unwrap(), Settled::Applied);
        assert_eq!(ledger.resolve(&key(text), &resolution).await.unwrap(), Resolved::Applied);
    }
    assert_eq!(ledger.claim(&request("done", 2)).await.unwrap(), Claim::Done(Outcome::kept("x")));
    assert!(matches!(ledger.claim(&request("absent", 2)).await.unwrap(), Claim::Granted(_)));
    assert_eq!(ledger.get(&key("free")).await.unwrap(), None);
}

#[tokio::test]
async fn marks_are_new_once() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    let metadata = Metadata::new([("file_id".to_owned(), "F1".to_owned())]).unwrap();
    let request = |text: &str, nonce: u8| mark::Request {
        key: MarkKey::new(text.to_owned()).unwrap(),
        nonce: Nonce::from_bytes([nonce; 16]),
        retention_ms: 1000,
        metadata: metadata.clone(),
    };
    let first: Vec<_> = (0..300).map(|number| request(&format!("e{number}"), 1)).collect();
    assert!(ledger.mark(&first).await.unwrap().iter().all(|mark| *mark == Mark::New));
    assert!(ledger.mark(&first).await.unwrap().iter().all(|mark| *mark == Mark::New), "a lost reply");
    let mixed = [request("e7", 2), request("new", 2), request("e8", 2)];
    let seen = Mark::Seen { first_seen: super::START, metadata: metadata.clone() };
    assert_eq!(ledger.mark(&mixed).await.unwrap(), [seen.clone(), Mark::New, seen]);
    clock.advance(1000);
    assert_eq!(ledger.mark(&[request("e7", 3)]).await.unwrap(), [Mark::New]);
}

#[tokio::test]
async fn a_completed_record_of_another_ledger_is_adopted_once() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let clock = clock();
    let (here, there) = (open(here.path(), &clock), open(there.path(), &clock));
    complete(&there, "k", 1, "theirs").await;
    let record = there.get(&key("k")).await.unwrap().unwrap();
    assert_eq!(here.adopt(&record).await.unwrap(), Adopted::Stored);
    assert_eq!(here.adopt(&record).await.unwrap(), Adopted::Stored);
    assert_eq!(here.claim(&request("k", 2)).await.unwrap(), Claim::Done(Outcome::kept("theirs")));
    complete(&here, "j", 1, "ours").await;
    complete(&there, "j", 2, "theirs").await;
    let record = there.get(&key("j")).await.unwrap().unwrap();
    assert_eq!(here.adopt(&record).await.unwrap(), Adopted::Conflict);
}

#[tokio::test]
async fn every_claim_is_listed_once_whatever_the_page() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path(), &clock());
    for number in 0..20 {
        grant(&ledger, &format!("run-{number}"), 1).await;
        complete(&ledger, &format!("end-{number}"), 1, "four").await;
    }
    let mut texts = Vec::new();
    let mut query = Query { limit: 7, ..Query::default() };
    loop {
        let page = ledger.list(&query).await.unwrap();
        texts.extend(page.claims.into_iter().map(|claim| (claim.key, claim.outcome_bytes)));
        query.cursor = page.cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    assert_eq!(texts.len(), 40);
    assert!(texts.iter().all(|(text, bytes)| bytes.is_some() == text.starts_with("end")));
    let done = Query { state: Some(StateName::Done), limit: 100, ..Query::default() };
    assert_eq!(ledger.list(&done).await.unwrap().claims.len(), 20);
    let prefix = Query { prefix: Some("run-1".to_owned()), limit: 100, ..Query::default() };
    assert_eq!(ledger.list(&prefix).await.unwrap().claims.len(), 11);
    let stats = ledger.stats().await.unwrap();
    assert_eq!((stats.running, stats.in_doubt, stats.done), (Some(20), Some(0), Some(20)));
}

#[tokio::test]
async fn the_cache_answers_only_what_the_store_would() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    let again = request("k", 2);
    assert_eq!(ledger.cached_claim(&again), None);
    complete(&ledger, "k", 1, "x").await;
    assert_eq!(ledger.cached_claim(&again), None, "it is cached by the first repeat");
    let done = Claim::Done(Outcome::kept("x"));
    assert_eq!(ledger.claim(&again).await.unwrap(), done);
    assert_eq!(ledger.cached_claim(&again), Some(done));
    let other = ClaimRequest { fingerprint: Fingerprint::of(["other"]), ..again.clone() };
    assert_eq!(ledger.cached_claim(&other), Some(Claim::Mismatch));
    clock.advance(RETENTION_MS);
    assert_eq!(ledger.cached_claim(&again), None, "its retention is over");
    ledger.close().await.unwrap();
    assert_eq!(ledger.cached_claim(&again), None);
}

/// A reader that was slow brings the old record only after the claim was forgotten.
#[tokio::test]
async fn a_forgotten_claim_is_not_cached_again_by_a_slow_reader() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path(), &clock());
    complete(&ledger, "k", 1, "nothing happened").await;
    let done = Claim::Done(Outcome::kept("nothing happened"));
    assert_eq!(ledger.claim(&request("k", 2)).await.unwrap(), done);
    assert_eq!(ledger.cached_claim(&request("k", 2)), Some(done));
    let read = ledger.get(&key("k")).await.unwrap().unwrap();
    let forget = Resolution::Forget(read.token);
    assert_eq!(ledger.resolve(&key("k"), &forget).await.unwrap(), Resolved::Applied);
    ledger.shared.cache.keep(&read);
    assert_eq!(ledger.cached_claim(&request("k", 2)), None);
    complete(&ledger, "k", 3, "happened").await;
    assert_eq!(ledger.claim(&request("k", 4)).await.unwrap(), Claim::Done(Outcome::kept("happened")));
}
