//! What operators see of marks, and how marks and completed claims are forgotten.

use std::collections::HashSet;
use std::time::Duration;

use ichido_core::mark::{self, Forgotten, Mark};
use ichido_core::{Claim, CurrentState, Grant, Key, MarkKey, Metadata, Resolution, Resolved, Settled};

use super::{
    BOUND, LONG_MS, SHORT_MS, Subject, claim, granted, instance, key, lapse, mark_key, outcome, request,
    unique,
};
use crate::{Ledger, MarkQuery, MarkSummary};

/// Marks an event that must be new.
async fn marked(ledger: &Ledger, key: &MarkKey) -> mark::Request {
    let request = ledger.mark_request(key.clone());
    assert_eq!(mark(ledger, &request).await, Mark::New);
    request
}

async fn mark(ledger: &Ledger, request: &mark::Request) -> Mark {
    ledger.mark(std::slice::from_ref(request)).await.unwrap().remove(0).mark
}

async fn seen(ledger: &Ledger, key: &MarkKey) -> mark::Record {
    ledger.get_mark(key).await.unwrap().expect("it is there")
}

/// All fields of a mark can be read, until it expires.
pub async fn a_mark_can_be_read(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = mark_key("look");
    assert_eq!(ledger.get_mark(&key).await.unwrap(), None);
    let metadata = Metadata::new([("instance_id".to_owned(), "bot-1".to_owned())]).unwrap();
    let first =
        mark::Request { retention_ms: 1_500, metadata: metadata.clone(), ..ledger.mark_request(key.clone()) };
    assert_eq!(mark(&ledger, &first).await, Mark::New);
    let record = seen(&ledger, &key).await;
    assert_eq!((record.key.text(), record.nonce, &record.metadata), (key.text(), first.nonce, &metadata));
    let kept_ms = record.expires_at.ms_since(record.marked_at);
    assert!((1_500..=1_500 + 2 * subject.mark_granularity_ms()).contains(&kept_ms), "{kept_ms}");
    let Mark::Seen { first_seen, .. } = mark(&ledger, &ledger.mark_request(key.clone())).await else {
        panic!("new twice")
    };
    assert_eq!(record.marked_at, first_seen);
    expires(&ledger, &key).await;
}

/// Waits until a mark is not shown any more.
async fn expires(ledger: &Ledger, key: &MarkKey) {
    let expired = async {
        while ledger.get_mark(key).await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(BOUND, expired).await.expect("an expired mark is not shown");
}

async fn list_all(ledger: &Ledger, prefix: &str, limit: usize) -> Vec<MarkSummary> {
    let mut query = MarkQuery { prefix: Some(prefix.to_owned()), limit, cursor: None };
    let mut marks = Vec::new();
    for _ in 0..100_000 {
        let page = ledger.list_marks(&query).await.unwrap();
        assert!(page.marks.len() <= limit, "{} marks on a page of {limit}", page.marks.len());
        marks.extend(page.marks);
        match page.cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => return marks,
        }
    }
    panic!("the list has no end");
}

/// Marks are found by the beginning of their keys, whatever the key. Claims and expired marks are not listed.
pub async fn marks_are_listed_by_prefix(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    for prefix in [format!("list-{}", unique()), format!("ichido#{}", unique())] {
        let key = MarkKey::new(format!("{prefix}%_*-é")).unwrap();
        marked(&ledger, &key).await;
        marked(&ledger, &mark_key("other")).await;
        granted(&ledger, &Key::unscoped(format!("{prefix}-claim")).unwrap(), LONG_MS).await;
        let expired = MarkKey::new(format!("{prefix}-expired")).unwrap();
        let request = mark::Request { retention_ms: 1, ..ledger.mark_request(expired.clone()) };
        assert_eq!(mark(&ledger, &request).await, Mark::New);
        expires(&ledger, &expired).await;
        let listed = list_all(&ledger, &prefix, 100).await;
        assert_eq!(listed, [MarkSummary::of(&seen(&ledger, &key).await)]);
    }
}

/// Pages of seven contain every mark once.
pub async fn a_list_of_marks_is_paged_without_gaps_or_duplicates(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let prefix = format!("page-{}", unique());
    let expected: HashSet<String> = (0..40).map(|number| format!("{prefix}-{number}")).collect();
    let keys = expected.iter().map(|text| MarkKey::new(text.clone()).unwrap());
    let requests: Vec<_> = keys.map(|key| ledger.mark_request(key)).collect();
    ledger.mark(&requests).await.unwrap();
    let listed: Vec<_> = list_all(&ledger, &prefix, 7).await.into_iter().map(|mark| mark.key).collect();
    assert_eq!(listed.len(), 40);
    assert_eq!(listed.into_iter().collect::<HashSet<_>>(), expected);
}

/// The event is new again for every instance, and once only.
pub async fn a_forgotten_mark_is_new_again(subject: &dyn Subject) {
    let (ledger, other) = (instance(subject).await, instance(subject).await);
    for key in [mark_key("forget"), MarkKey::new(format!("ichido#{}", unique())).unwrap()] {
        marked(&ledger, &key).await;
        assert_ne!(mark(&other, &other.mark_request(key.clone())).await, Mark::New);
        assert_eq!(ledger.forget_mark(&seen(&ledger, &key).await).await.unwrap(), Forgotten::Removed);
        assert_eq!(ledger.get_mark(&key).await.unwrap(), None);
        assert_eq!(mark(&other, &other.mark_request(key.clone())).await, Mark::New);
        assert_ne!(mark(&ledger, &ledger.mark_request(key)).await, Mark::New);
    }
}

/// An operator who looked at an older mark does not remove a newer one.
pub async fn a_newer_mark_is_not_forgotten(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = mark_key("newer");
    marked(&ledger, &key).await;
    let older = seen(&ledger, &key).await;
    assert_eq!(ledger.forget_mark(&older).await.unwrap(), Forgotten::Removed);
    assert_eq!(ledger.forget_mark(&older).await.unwrap(), Forgotten::Gone);
    let newer = marked(&ledger, &key).await;
    assert_eq!(ledger.forget_mark(&older).await.unwrap(), Forgotten::Gone);
    assert_eq!(seen(&ledger, &key).await.nonce, newer.nonce);
}

/// If two operators forget the same mark concurrently, at most one gets `Removed`.
pub async fn one_of_two_operators_forgets_a_mark(subject: &dyn Subject) {
    let (ledger, other) = (instance(subject).await, instance(subject).await);
    let key = mark_key("operators");
    marked(&ledger, &key).await;
    let record = seen(&ledger, &key).await;
    let (one, two) = tokio::join!(ledger.forget_mark(&record), other.forget_mark(&record));
    // A store that reads before it removes may notice the other operator and ask for a retry.
    let removed = [one, two].into_iter().filter(|result| matches!(result, Ok(Forgotten::Removed)));
    assert_eq!(removed.count(), 1);
    assert_eq!(ledger.get_mark(&key).await.unwrap(), None);
}

async fn completed(ledger: &Ledger, key: &Key, text: &str) -> Grant {
    let grant = granted(ledger, key, LONG_MS).await;
    assert_eq!(ledger.complete(key, grant.token, outcome(text)).await.unwrap(), Settled::Applied);
    grant
}

/// A forgotten claim is granted again on every instance, even where retries had its outcome before.
pub async fn a_forgotten_claim_is_granted_again(subject: &dyn Subject) {
    let (ledger, other) = (instance(subject).await, instance(subject).await);
    let key = key("forget");
    let first = completed(&ledger, &key, "nothing happened").await;
    for ledger in [&ledger, &other] {
        let retry = claim(ledger, &request(ledger, &key, LONG_MS)).await;
        assert_eq!(retry, Claim::Done(outcome("nothing happened")));
    }
    let forget = Resolution::Forget(first.token);
    assert_eq!(other.resolve(&key, &forget).await.unwrap(), Resolved::Applied);
    assert_eq!(ledger.get(&key).await.unwrap(), None);
    assert_eq!(ledger.cached_outcome(&request(&ledger, &key, LONG_MS)), None);
    let second = completed(&ledger, &key, "happened").await;
    assert_eq!(second.attempt, 1);
    for ledger in [&ledger, &other] {
        let retry = claim(ledger, &request(ledger, &key, LONG_MS)).await;
        assert_eq!(retry, Claim::Done(outcome("happened")));
    }
    let refused = Resolved::Refused(CurrentState::Done(outcome("happened")));
    assert_eq!(ledger.resolve(&key, &forget).await.unwrap(), refused);
}

/// A running claim, a claim in doubt and an absent one are refused, each with its state.
pub async fn only_a_completed_claim_is_forgotten(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let [running, lapsed, absent] = ["running", "lapsed", "absent"].map(key);
    let token = granted(&ledger, &running, LONG_MS).await.token;
    let refused = |state| Resolved::Refused(state);
    let forget = async |key: &Key, token| ledger.resolve(key, &Resolution::Forget(token)).await.unwrap();
    assert_eq!(forget(&running, token).await, refused(CurrentState::Running));
    assert_eq!(forget(&absent, token).await, refused(CurrentState::Absent));
    let token = granted(&ledger, &lapsed, SHORT_MS).await.token;
    lapse(&ledger, &lapsed).await;
    assert_eq!(forget(&lapsed, token).await, refused(CurrentState::InDoubt));
}

/// An operator who looked at an older claim does not remove a newer one.
pub async fn a_newer_claim_is_not_forgotten(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key("newer");
    let older = granted(&ledger, &key, LONG_MS).await;
    assert_eq!(ledger.release(&key, older.token).await.unwrap(), Settled::Applied);
    completed(&ledger, &key, "newer").await;
    let refused = Resolved::Refused(CurrentState::Done(outcome("newer")));
    assert_eq!(ledger.resolve(&key, &Resolution::Forget(older.token)).await.unwrap(), refused);
}
