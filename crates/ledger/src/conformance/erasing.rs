//! What callers wrote is erased, and the record still protects its effect.

use ichido_core::mark::{self, Erased, Mark};
use ichido_core::{
    Claim, ClaimRequest, CurrentState, Key, MarkKey, Metadata, Outcome, Record, Resolved, Settled, State,
};

use super::{
    LONG_MS, SHORT_MS, Subject, claim, granted, instance, key, lapse, mark_key, outcome, request, scoped,
};
use crate::{Ledger, MarkQuery, MarkSummary, Query};

const SECRET: &str = "alice@example.com";

fn secret_metadata() -> Metadata {
    Metadata::new([("user".to_owned(), SECRET.to_owned())]).expect("short metadata")
}

fn secret_request(ledger: &Ledger, key: &Key) -> ClaimRequest {
    ClaimRequest { metadata: secret_metadata(), ..request(ledger, key, LONG_MS) }
}

/// Claims a key with metadata, completes it, and reads it.
async fn completed(ledger: &Ledger, key: &Key) -> Record {
    let Claim::Granted(grant) = claim(ledger, &secret_request(ledger, key)).await else {
        panic!("not granted")
    };
    assert_eq!(ledger.complete(key, grant.token, outcome(SECRET)).await.unwrap(), Settled::Applied);
    read(ledger, key).await
}

async fn read(ledger: &Ledger, key: &Key) -> Record {
    ledger.get(key).await.unwrap().expect("it is there")
}

fn erased_outcome() -> Outcome {
    Outcome::Tombstone("erased by an operator".to_owned())
}

fn assert_erased(record: &Record, before: &Record) {
    assert!(record.key.is_erased() && record.metadata.is_empty(), "{:?}", record.key.text());
    assert_eq!((record.key.index(), record.key.scope().route.as_str()), (before.key.index(), ""));
    assert_eq!((record.fingerprint, record.caller), (before.fingerprint, before.caller));
    assert_eq!((record.token, record.expires_at()), (before.token, before.expires_at()));
    assert!(matches!(&record.state, State::Done(done) if done.outcome == erased_outcome()), "{record:?}");
}

/// Every instance finds the claim by the text of its key, and answers retries as if the outcome had not been kept.
pub async fn an_erased_claim_still_answers_retries(subject: &dyn Subject) {
    let (ledger, other) = (instance(subject).await, instance(subject).await);
    let key = scoped("tenant", "POST /orders", SECRET);
    let before = completed(&ledger, &key).await;
    // Both may have it in a cache.
    for ledger in [&ledger, &other] {
        let retry = claim(ledger, &request(ledger, &key, LONG_MS)).await;
        assert_eq!(retry, Claim::Done(outcome(SECRET)));
    }
    // Erasing it again changes nothing.
    for _ in 0..2 {
        assert_eq!(other.erase(&key, before.token).await.unwrap(), Resolved::Applied);
        assert_erased(&read(&ledger, &key).await, &before);
        for ledger in [&ledger, &other] {
            let retry = request(ledger, &key, LONG_MS);
            assert_eq!(claim(ledger, &retry).await, Claim::Done(erased_outcome()));
            let other_request =
                ClaimRequest { fingerprint: ichido_core::Fingerprint::of(["other"]), ..retry };
            assert_eq!(claim(ledger, &other_request).await, Claim::Mismatch);
        }
    }
    // Its holder lost the reply and completes again.
    assert_eq!(ledger.complete(&key, before.token, outcome(SECRET)).await.unwrap(), Settled::Applied);
    assert_erased(&read(&ledger, &key).await, &before);
}

/// A holder may still write to a claim that is running or in doubt, and a newer claim was not seen.
pub async fn only_the_completed_claim_that_was_seen_is_erased(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let [running, lapsed, newer] = ["running", "lapsed", "newer"].map(key);
    granted(&ledger, &running, LONG_MS).await;
    let refused = ledger.erase(&running, read(&ledger, &running).await.token).await.unwrap();
    assert_eq!(refused, Resolved::Refused(CurrentState::Running));
    granted(&ledger, &lapsed, SHORT_MS).await;
    lapse(&ledger, &lapsed).await;
    let refused = ledger.erase(&lapsed, read(&ledger, &lapsed).await.token).await.unwrap();
    assert_eq!(refused, Resolved::Refused(CurrentState::InDoubt));
    granted(&ledger, &newer, LONG_MS).await;
    let older = read(&ledger, &newer).await;
    assert_eq!(ledger.release(&newer, older.token).await.unwrap(), Settled::Applied);
    let after = completed(&ledger, &newer).await;
    let refused = ledger.erase(&newer, older.token).await.unwrap();
    assert_eq!(refused, Resolved::Refused(CurrentState::Done(outcome(SECRET))));
    assert_eq!(read(&ledger, &newer).await.key.text(), after.key.text());
}

/// Lists show the hash of the key, and never its text.
pub async fn an_erased_claim_is_listed_without_its_texts(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = key(SECRET);
    let before = completed(&ledger, &key).await;
    assert_eq!(ledger.erase(&key, before.token).await.unwrap(), Resolved::Applied);
    let list = async |prefix: &str| {
        let mut query = Query { prefix: Some(prefix.to_owned()), limit: 1_000, ..Query::default() };
        let mut claims = Vec::new();
        loop {
            let page = ledger.list(&query).await.unwrap();
            claims.extend(page.claims);
            match page.cursor {
                Some(cursor) => query.cursor = Some(cursor),
                None => return claims,
            }
        }
    };
    assert_eq!(list(key.text()).await, []);
    let erased = key.erased();
    let [listed] = &list(erased.text()).await[..] else { panic!("it is listed once") };
    assert_eq!((&listed.index, &listed.key), (&key.index().to_string(), &erased.text().to_owned()));
    assert!(listed.metadata.is_empty() && listed.outcome_bytes.is_none(), "{listed:?}");
}

/// Whichever comes first: the holder's outcome is not written after the claim was erased.
pub async fn erasing_and_settling_at_once_leaves_no_outcome(subject: &dyn Subject) {
    let (ledger, other) = (instance(subject).await, instance(subject).await);
    for _ in 0..10 {
        let key = key("at-once");
        granted(&ledger, &key, LONG_MS).await;
        let seen = read(&ledger, &key).await;
        let (completed, erased) =
            tokio::join!(ledger.complete(&key, seen.token, outcome(SECRET)), other.erase(&key, seen.token));
        assert_eq!(completed.unwrap(), Settled::Applied);
        // A store that reads before it writes may notice the completion and ask for a retry.
        if !matches!(erased, Ok(Resolved::Applied)) {
            assert_eq!(other.erase(&key, seen.token).await.unwrap(), Resolved::Applied);
        }
        assert_erased(&read(&ledger, &key).await, &Record { state: read(&ledger, &key).await.state, ..seen });
    }
}

async fn mark(ledger: &Ledger, key: &MarkKey, metadata: Metadata) -> Mark {
    let request = mark::Request { metadata, ..ledger.mark_request(key.clone()) };
    ledger.mark(std::slice::from_ref(&request)).await.unwrap().remove(0).mark
}

async fn seen(ledger: &Ledger, key: &MarkKey) -> mark::Record {
    ledger.get_mark(key).await.unwrap().expect("it is there")
}

async fn listed(ledger: &Ledger, prefix: &str) -> Vec<MarkSummary> {
    let mut query = MarkQuery { prefix: Some(prefix.to_owned()), limit: 1_000, cursor: None };
    let mut marks = Vec::new();
    loop {
        let page = ledger.list_marks(&query).await.unwrap();
        marks.extend(page.marks);
        match page.cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => return marks,
        }
    }
}

/// The event is no longer new for any instance, and its metadata is gone. Its key is gone unless the store needs it.
pub async fn an_erased_mark_is_still_seen(subject: &dyn Subject) {
    let (ledger, other) = (instance(subject).await, instance(subject).await);
    let key = mark_key(SECRET);
    assert_eq!(mark(&ledger, &key, secret_metadata()).await, Mark::New);
    let before = seen(&ledger, &key).await;
    for _ in 0..2 {
        let erased = other.erase_mark(&before).await.unwrap();
        let after = seen(&ledger, &key).await;
        assert_eq!(
            (after.nonce, after.marked_at, after.expires_at),
            (before.nonce, before.marked_at, before.expires_at)
        );
        assert!(after.metadata.is_empty());
        let retry = mark(&ledger, &key, secret_metadata()).await;
        assert_eq!(retry, Mark::Seen { first_seen: before.marked_at, metadata: Metadata::default() });
        let (by_text, by_hash) =
            (listed(&ledger, key.text()).await, listed(&ledger, key.erased().text()).await);
        match erased {
            Erased::Whole => assert_eq!((by_text.len(), by_hash.len()), (0, 1), "{by_text:?}"),
            Erased::KeyKept => assert!(by_text.iter().all(|mark| mark.metadata.is_empty()), "{by_text:?}"),
            Erased::Gone => panic!("the mark was there"),
        }
    }
}

/// An operator who looked at an older mark changes no newer one.
pub async fn only_the_mark_that_was_seen_is_erased(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = mark_key("newer");
    assert_eq!(mark(&ledger, &key, secret_metadata()).await, Mark::New);
    let older = seen(&ledger, &key).await;
    assert_eq!(ledger.forget_mark(&older).await.unwrap(), mark::Forgotten::Removed);
    assert_eq!(ledger.erase_mark(&older).await.unwrap(), Erased::Gone);
    assert_eq!(mark(&ledger, &key, secret_metadata()).await, Mark::New);
    assert_eq!(ledger.erase_mark(&older).await.unwrap(), Erased::Gone);
    assert_eq!(seen(&ledger, &key).await.metadata, secret_metadata());
}

/// Without its owner, the same content would be handled again.
pub async fn an_erased_content_mark_keeps_its_owner(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = mark_key("content:file=F1");
    let owned = Metadata::new([(mark::OWNER.to_owned(), "Ev1".to_owned())]).expect("short metadata");
    assert_eq!(mark(&ledger, &key, owned.clone()).await, Mark::New);
    let erased = ledger.erase_mark(&seen(&ledger, &key).await).await.unwrap();
    assert_ne!(erased, Erased::Gone);
    assert_eq!(seen(&ledger, &key).await.metadata, owned);
}
