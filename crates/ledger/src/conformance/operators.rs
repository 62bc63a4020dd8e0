//! What operators can see and do.

use std::collections::HashSet;
use std::time::Duration;

use ichido_core::mark::Mark;
use ichido_core::{
    Adopted, Claim, ClaimRequest, CurrentState, Done, Doubt, DoubtReason, Key, Outcome, Record, Resolution,
    Resolved, Seen, Settled, State, Timestamp,
};

use super::{
    LONG_MS, SHORT_MS, Subject, claim, grant_of, granted, instance, key, lapse, mark_key, outcome, request,
    unique,
};
use crate::{Ledger, Query, StateName, Summary};

/// All fields of a claim can be read.
pub async fn a_claim_can_be_read(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = super::scoped("tenant", "POST /orders", "look");
    assert_eq!(ledger.get(&key).await.unwrap(), None);
    let ask = request(&ledger, &key, LONG_MS);
    grant_of(claim(&ledger, &ask).await);
    let record = ledger.get(&key).await.unwrap().expect("it is there");
    assert_eq!(record.key.scope(), key.scope());
    assert_eq!((record.nonce, record.token, record.fingerprint), (ask.nonce, ask.token, ask.fingerprint));
    assert_eq!((record.attempt, record.renewals, record.holder), (1, 0, ask.holder));
    assert_eq!((record.lease_ms, record.retention_ms), (LONG_MS, ask.retention_ms));
    assert_eq!(record.state, State::Running);
    assert_eq!(ledger.complete(&key, ask.token, outcome("seen")).await.unwrap(), Settled::Applied);
    match ledger.get(&key).await.unwrap().expect("it is there").state {
        State::Done(done) => assert_eq!(done.outcome, outcome("seen")),
        other => panic!("expected done, got {other:?}"),
    }
}

async fn list_all(ledger: &Ledger, query: Query) -> Vec<Summary> {
    let mut query = query;
    let mut claims = Vec::new();
    for _ in 0..100_000 {
        let page = ledger.list(&query).await.unwrap();
        assert!(
            page.claims.len() <= query.limit,
            "{} claims on a page of {}",
            page.claims.len(),
            query.limit
        );
        claims.extend(page.claims);
        match page.cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => return claims,
        }
    }
    panic!("the list has no end");
}

/// States are told apart; a lapsed lease is listed as in doubt at once.
pub async fn claims_are_listed_by_state(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let prefix = format!("list-{}", unique());
    let named = |name: &str| Key::unscoped(format!("{prefix}-{name}")).unwrap();
    granted(&ledger, &named("running"), LONG_MS).await;
    granted(&ledger, &named("lapsed"), SHORT_MS).await;
    let declared = granted(&ledger, &named("declared"), LONG_MS).await;
    assert_eq!(
        ledger.declare_in_doubt(&named("declared"), declared.token, "why").await.unwrap(),
        Settled::Applied
    );
    let done = granted(&ledger, &named("done"), LONG_MS).await;
    assert_eq!(
        ledger.complete(&named("done"), done.token, outcome("12345")).await.unwrap(),
        Settled::Applied
    );
    tokio::time::sleep(Duration::from_millis(SHORT_MS + 100)).await;
    let names = async |state: Option<StateName>| {
        let query = Query { state, prefix: Some(prefix.clone()), limit: 100, cursor: None };
        let claims = list_all(&ledger, query).await;
        let mut names: Vec<_> = claims.iter().map(|claim| claim.key[prefix.len() + 1..].to_owned()).collect();
        names.sort();
        (names, claims)
    };
    assert_eq!(names(None).await.0, ["declared", "done", "lapsed", "running"]);
    assert_eq!(names(Some(StateName::Running)).await.0, ["running"]);
    let (doubts, claims) = names(Some(StateName::InDoubt)).await;
    assert_eq!(doubts, ["declared", "lapsed"]);
    assert!(claims.iter().all(|claim| claim.doubt_since.is_some() && claim.doubt_reason.is_some()));
    let (done, claims) = names(Some(StateName::Done)).await;
    assert_eq!(done, ["done"]);
    assert_eq!(claims[0].outcome_bytes, Some(5));
    assert!(claims[0].expires_at.is_some());
}

/// Pages of seven contain every claim once.
pub async fn a_list_is_paged_without_gaps_or_duplicates(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let prefix = format!("page-{}", unique());
    let mut expected = HashSet::new();
    for number in 0..40 {
        let text = format!("{prefix}-{number}");
        granted(&ledger, &Key::unscoped(text.clone()).unwrap(), LONG_MS).await;
        expected.insert(text);
    }
    let query = Query { state: Some(StateName::Running), prefix: Some(prefix), limit: 7, cursor: None };
    let listed: Vec<_> = list_all(&ledger, query).await.into_iter().map(|claim| claim.key).collect();
    assert_eq!(listed.len(), 40);
    assert_eq!(listed.into_iter().collect::<HashSet<_>>(), expected);
}

async fn in_doubt(ledger: &Ledger, name: &str) -> (Key, ichido_core::Grant) {
    let key = key(name);
    let grant = granted(ledger, &key, SHORT_MS).await;
    lapse(ledger, &key).await;
    (key, grant)
}

/// The operator knows that the effect happened.
pub async fn a_doubt_is_resolved_as_done(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let (key, grant) = in_doubt(&ledger, "resolve-done").await;
    let resolution = Resolution::Done(outcome("checked by hand"));
    assert_eq!(ledger.resolve(&key, &resolution).await.unwrap(), Resolved::Applied);
    assert_eq!(
        claim(&ledger, &request(&ledger, &key, LONG_MS)).await,
        Claim::Done(outcome("checked by hand"))
    );
    assert_eq!(ledger.complete(&key, grant.token, outcome("late")).await.unwrap(), Settled::Applied);
    assert_eq!(
        claim(&ledger, &request(&ledger, &key, LONG_MS)).await,
        Claim::Done(outcome("checked by hand"))
    );
}

/// The operator knows that the effect did not happen.
pub async fn a_doubt_is_resolved_as_absent(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let (key, grant) = in_doubt(&ledger, "resolve-absent").await;
    assert_eq!(ledger.resolve(&key, &Resolution::Absent).await.unwrap(), Resolved::Applied);
    assert_eq!(
        ledger.complete(&key, grant.token, outcome("late")).await.unwrap(),
        Settled::Stale(CurrentState::Absent)
    );
    assert_eq!(granted(&ledger, &key, LONG_MS).await.attempt, 1);
}

/// Between a look at a claim and its resolution, its holder may come back, or another grant may replace it.
pub async fn only_the_claim_that_was_seen_is_resolved(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let (key, grant) = in_doubt(&ledger, "resolve-seen").await;
    let seen = Seen::of(&ledger.get(&key).await.unwrap().unwrap());
    assert_eq!(ledger.renew(&key, grant.token, SHORT_MS).await.unwrap(), Settled::Applied);
    lapse(&ledger, &key).await;
    let refused = Resolved::Refused(CurrentState::InDoubt);
    for resolution in [Resolution::AbsentAsSeen(seen), Resolution::DoneAsSeen(seen, outcome("x"))] {
        assert_eq!(ledger.resolve(&key, &resolution).await.unwrap(), refused);
    }
    let renewed = Seen::of(&ledger.get(&key).await.unwrap().unwrap());
    assert_ne!(renewed.version(), seen.version());
    assert_eq!(ledger.resolve(&key, &Resolution::AbsentAsSeen(renewed)).await.unwrap(), Resolved::Applied);
    granted(&ledger, &key, SHORT_MS).await;
    lapse(&ledger, &key).await;
    assert_eq!(ledger.resolve(&key, &Resolution::AbsentAsSeen(renewed)).await.unwrap(), refused);
    let newer = Seen::of(&ledger.get(&key).await.unwrap().unwrap());
    let done = Resolution::DoneAsSeen(newer, outcome("as the service says"));
    assert_eq!(ledger.resolve(&key, &done).await.unwrap(), Resolved::Applied);
    assert_eq!(
        claim(&ledger, &request(&ledger, &key, LONG_MS)).await,
        Claim::Done(outcome("as the service says"))
    );
}

/// A claim with a valid lease is not in doubt.
pub async fn a_running_claim_cannot_be_resolved(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("resolve-running");
    granted(&ledger, &key, LONG_MS).await;
    for resolution in [Resolution::Absent, Resolution::Done(outcome("x"))] {
        assert_eq!(
            ledger.resolve(&key, &resolution).await.unwrap(),
            Resolved::Refused(CurrentState::Running)
        );
    }
    assert!(matches!(claim(&ledger, &request(&ledger, &key, LONG_MS)).await, Claim::Held { .. }));
}

/// The operator knows that the holder is gone and nothing happened.
pub async fn a_running_claim_can_be_released_by_force(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("force");
    let grant = granted(&ledger, &key, LONG_MS).await;
    assert_eq!(ledger.resolve(&key, &Resolution::Release).await.unwrap(), Resolved::Applied);
    assert_eq!(
        ledger.complete(&key, grant.token, outcome("late")).await.unwrap(),
        Settled::Stale(CurrentState::Absent)
    );
    granted(&ledger, &key, LONG_MS).await;
}

/// A recorded outcome cannot be changed; an absent key cannot be resolved.
pub async fn a_done_claim_cannot_be_resolved(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("resolve-recorded");
    for resolution in [Resolution::Absent, Resolution::Done(outcome("x")), Resolution::Release] {
        assert_eq!(ledger.resolve(&key, &resolution).await.unwrap(), Resolved::Refused(CurrentState::Absent));
    }
    let grant = granted(&ledger, &key, LONG_MS).await;
    assert_eq!(ledger.complete(&key, grant.token, outcome("recorded")).await.unwrap(), Settled::Applied);
    for resolution in [Resolution::Absent, Resolution::Done(outcome("x")), Resolution::Release] {
        let refused = Resolved::Refused(CurrentState::Done(outcome("recorded")));
        assert_eq!(ledger.resolve(&key, &resolution).await.unwrap(), refused);
    }
}

/// A sweep removes expired records, and nothing else.
pub async fn a_sweep_removes_expired_records_only(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let mut over = Vec::new();
    for _ in 0..20 {
        let key = key("over");
        let ask = ClaimRequest { retention_ms: 1, ..request(&ledger, &key, LONG_MS) };
        let grant = grant_of(claim(&ledger, &ask).await);
        assert_eq!(ledger.complete(&key, grant.token, outcome("x")).await.unwrap(), Settled::Applied);
        over.push(key);
    }
    let (doubt, _) = in_doubt(&ledger, "kept-doubt").await;
    let kept = key("kept");
    let grant = granted(&ledger, &kept, LONG_MS).await;
    assert_eq!(ledger.complete(&kept, grant.token, outcome("kept")).await.unwrap(), Settled::Applied);
    let event = ledger.mark_request(mark_key("kept"));
    assert_eq!(ledger.mark(std::slice::from_ref(&event)).await.unwrap()[0].mark, Mark::New);
    for _ in 0..1_000 {
        if !ledger.sweep(10).await.unwrap().more {
            break;
        }
    }
    for key in &over {
        assert_eq!(ledger.get(key).await.unwrap(), None);
    }
    assert!(matches!(claim(&ledger, &request(&ledger, &doubt, LONG_MS)).await, Claim::InDoubt(_)));
    assert_eq!(claim(&ledger, &request(&ledger, &kept, LONG_MS)).await, Claim::Done(outcome("kept")));
    let again = ledger.mark_request(event.key);
    assert!(matches!(ledger.mark(&[again]).await.unwrap()[0].mark, Mark::Seen { .. }));
}

/// A completed record, as another ledger would hand it over.
async fn foreign(ledger: &Ledger, key: &Key, token: ichido_core::Token) -> Record {
    let record = foreign_running(ledger, key, token).await;
    let done = Done { outcome: Outcome::kept("from afar"), completed_at: record.claimed_at };
    Record { state: State::Done(done), ..record }
}

/// A running claim, as another ledger would hand it over.
async fn foreign_running(ledger: &Ledger, key: &Key, token: ichido_core::Token) -> Record {
    let home = Ledger::new(
        std::sync::Arc::new(crate::memory::Memory::new(ledger.settings().clock.clone(), 10)),
        ledger.settings().clone(),
    );
    let ask = ClaimRequest { token, ..request(&home, key, LONG_MS) };
    grant_of(claim(&home, &ask).await);
    home.get(key).await.unwrap().expect("it is there")
}

/// A claim that was completed elsewhere is completed here.
pub async fn a_completed_record_is_adopted_if_absent(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("adopt");
    let record = foreign(&ledger, &key, ledger.request(key.clone()).token).await;
    assert_eq!(ledger.adopt(&record).await.unwrap(), Adopted::Stored);
    assert_eq!(ledger.adopt(&record).await.unwrap(), Adopted::Stored, "a retry after a lost reply");
    assert_eq!(
        claim(&ledger, &request(&ledger, &key, LONG_MS)).await,
        Claim::Done(Outcome::kept("from afar"))
    );
}

/// A claim that is in doubt elsewhere is in doubt here, and can be resolved here.
pub async fn a_doubt_is_adopted_as_a_doubt(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("adopt-doubt");
    let record = foreign_running(&ledger, &key, ledger.request(key.clone()).token).await;
    let doubt = Doubt { since: record.claimed_at, reason: DoubtReason::Declared("status 500".to_owned()) };
    let record = Record { state: State::InDoubt(doubt.clone()), ..record };
    assert_eq!(ledger.adopt(&record).await.unwrap(), Adopted::Stored);
    assert_eq!(ledger.adopt(&record).await.unwrap(), Adopted::Stored, "a retry after a lost reply");
    assert_eq!(claim(&ledger, &request(&ledger, &key, LONG_MS)).await, Claim::InDoubt(doubt));
    assert_eq!(ledger.resolve(&key, &Resolution::Absent).await.unwrap(), Resolved::Applied);
    granted(&ledger, &key, LONG_MS).await;
    assert_eq!(ledger.adopt(&record).await.unwrap(), Adopted::Conflict);
}

/// A claim that runs elsewhere continues here: its token renews and completes it.
pub async fn a_running_claim_is_adopted_with_its_token(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("adopt-running-claim");
    let record = foreign_running(&ledger, &key, ledger.request(key.clone()).token).await;
    // The clocks of two ledgers need not agree: the lease counts from the handover.
    let record = Record { claimed_at: Timestamp(1), renewed_at: Timestamp(1), ..record };
    for _ in 0..2 {
        assert_eq!(ledger.adopt(&record).await.unwrap(), Adopted::Stored);
        let held = claim(&ledger, &request(&ledger, &key, LONG_MS)).await;
        assert!(matches!(held, Claim::Held { .. }), "{held:?}");
    }
    assert_eq!(ledger.renew(&key, record.token, LONG_MS).await.unwrap(), Settled::Applied);
    assert_eq!(ledger.complete(&key, record.token, outcome("here")).await.unwrap(), Settled::Applied);
    assert_eq!(ledger.adopt(&record).await.unwrap(), Adopted::Stored, "and what is done stays done");
    assert_eq!(claim(&ledger, &request(&ledger, &key, LONG_MS)).await, Claim::Done(outcome("here")));
}

/// The first record wins, unless both belong to the same grant.
pub async fn an_adopted_record_does_not_overwrite_another(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let running = key("adopt-running");
    let grant = granted(&ledger, &running, LONG_MS).await;
    let other = foreign(&ledger, &running, ledger.request(running.clone()).token).await;
    assert_eq!(ledger.adopt(&other).await.unwrap(), Adopted::Conflict);
    assert!(matches!(claim(&ledger, &request(&ledger, &running, LONG_MS)).await, Claim::Held { .. }));
    let same = foreign(&ledger, &running, grant.token).await;
    assert_eq!(ledger.adopt(&same).await.unwrap(), Adopted::Stored);
    assert_eq!(
        claim(&ledger, &request(&ledger, &running, LONG_MS)).await,
        Claim::Done(Outcome::kept("from afar"))
    );
    assert_eq!(ledger.adopt(&other).await.unwrap(), Adopted::Conflict);
}

/// The store can be counted and checked.
pub async fn stats_and_check_succeed(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    granted(&ledger, &key("stats"), LONG_MS).await;
    let stats = ledger.stats().await.unwrap();
    assert!(stats.running.is_none_or(|running| running >= 1), "{stats:?}");
    for warning in ledger.check().await.unwrap() {
        assert!(!warning.is_empty());
    }
    ledger.init().await.unwrap();
    assert!(ledger.capabilities().to_string().contains("reach"));
}
