//! Events that share content: it is handled once, and no event is lost.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use ichido_core::mark::{self, Mark};
use ichido_core::{Claim, Entropy, Key, MarkKey, Metadata, Scope, Settled, SystemEntropy};
use tokio::time::Instant;

use super::{BOUND, LONG_MS, Subject, claim, granted, instance, outcome, request, scoped, unique};
use crate::content::{
    CheckedEvent, ContentCheck, ContentHit, ContentKey, ContentMode, Event, EventResult, PATIENCE,
};
use crate::{Ledger, Result};

/// Events of one round, over four keys that they share.
const EVENTS: usize = 6;
const KEYS: usize = 4;
/// Rounds of random events. Each has a different interleaving.
const ROUNDS: usize = 12;

fn content(space: &str, names: &[&str]) -> Vec<ContentKey> {
    names.iter().map(|name| ContentKey::new(space, name, "1").unwrap()).collect()
}

fn event(ledger: &Ledger, id: &str, content: Vec<ContentKey>) -> Event {
    Event { id: ledger.mark_request(MarkKey::new(id).unwrap()), content }
}

async fn check(ledger: &Ledger, event: Event, mode: ContentMode) -> CheckedEvent {
    ledger.check_events(vec![event], mode).await.expect("the event is checked").remove(0)
}

fn hits(hits: &[ContentHit]) -> Vec<(&str, &str)> {
    hits.iter().map(|hit| (hit.name.as_str(), hit.event.as_str())).collect()
}

/// The second id is new if content is only observed, and is not handled if it is enforced. A repeat of an id is a repeat.
pub async fn content_under_another_id_is_reported_or_refused(subject: &dyn Subject) {
    let (ledger, other) = (instance(subject).await, instance(subject).await);
    let space = unique();
    let id = |name: &str| format!("{name}-{space}");
    let file = || content(&space, &["file"]);
    let first = check(&ledger, event(&ledger, &id("A"), file()), ContentMode::Enforce).await;
    assert_eq!((first.result, hits(&first.content_hits)), (EventResult::New, vec![]));
    let refused = check(&other, event(&other, &id("B"), file()), ContentMode::Enforce).await;
    assert_eq!(refused.result, EventResult::SameContent);
    assert_eq!(hits(&refused.content_hits), [("file", id("A").as_str())]);
    let observed = check(&other, event(&other, &id("C"), file()), ContentMode::Observe).await;
    assert_eq!(observed.result, EventResult::New);
    assert_eq!(hits(&observed.content_hits), [("file", id("A").as_str())]);
    let repeat = check(&other, event(&other, &id("A"), file()), ContentMode::Enforce).await;
    assert!(matches!(repeat.result, EventResult::Seen { .. }), "{repeat:?}");
    assert_eq!(hits(&repeat.content_hits), []);
    // In one batch, the first event owns the content.
    let batch = ["D", "E"].map(|name| event(&ledger, &id(name), content(&space, &["form", "page"])));
    let checked = ledger.check_events(batch.to_vec(), ContentMode::Enforce).await.unwrap();
    assert_eq!(checked[0].result, EventResult::New);
    assert_eq!(checked[1].result, EventResult::SameContent);
}

/// The caller's process died after its content was marked, or its answer was lost: the retry is new.
pub async fn content_of_a_retry_is_its_own(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let space = unique();
    let request = event(&ledger, &format!("A-{space}"), content(&space, &["file", "text"]));
    mark_as(&ledger, &request.content[0], request.id.key.text()).await;
    for _ in 0..2 {
        let checked = check(&ledger, request.clone(), ContentMode::Enforce).await;
        assert_eq!((checked.result, checked.content_hits), (EventResult::New, vec![]));
    }
}

/// Marks content for an event, as a process does that dies before it marks the id.
async fn mark_as(ledger: &Ledger, key: &ContentKey, event: &str) {
    let metadata = Metadata::new([("event".to_owned(), event.to_owned())]).unwrap();
    let request = mark::Request { metadata, ..ledger.mark_request(key.mark_key().clone()) };
    assert_eq!(ledger.mark(&[request]).await.unwrap()[0].mark, Mark::New);
}

/// A crash between the content and the id must not block the same content under another id.
pub async fn an_owner_that_never_decided_is_replaced(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let space = unique();
    let file = content(&space, &["file"]);
    mark_as(&ledger, &file[0], "crashed").await;
    let id = format!("B-{space}");
    let checked = check(&ledger, event(&ledger, &id, file.clone()), ContentMode::Enforce).await;
    assert_eq!(checked.result, EventResult::New);
    let later = check(&ledger, event(&ledger, &format!("C-{space}"), file), ContentMode::Enforce).await;
    assert_eq!(hits(&later.content_hits), [("file", id.as_str())]);
}

/// Random sets of shared keys, one for each event of a round, each in an order of its own.
fn random_sets(space: &str) -> Vec<Vec<ContentKey>> {
    let draw = SystemEntropy.draw();
    let set = |number: usize| {
        // One to four keys; bits choose them and their direction.
        let bits = draw[number].max(1) & 0x0f;
        let bits = if bits == 0 { 0x0f } else { bits };
        let mut names: Vec<&str> =
            (0..KEYS).filter(|key| bits & (1 << key) != 0).map(|key| ["a", "b", "c", "d"][key]).collect();
        if number % 2 == 1 {
            names.reverse();
        }
        content(space, &names)
    };
    (0..EVENTS).map(set).collect()
}

/// Every event was handled, or shares a key with one that was. If nobody was slow, no two handled events share a key.
fn judge(sets: &[Vec<ContentKey>], is_handled: &[bool], took: Duration) {
    let shares = |one: usize, other: usize| sets[one].iter().any(|key| sets[other].contains(key));
    for event in 0..sets.len() {
        let of_handled = (0..sets.len()).filter(|other| *other != event && is_handled[*other]);
        let shared: Vec<usize> = of_handled.filter(|other| shares(event, *other)).collect();
        if is_handled[event] {
            assert!(shared.is_empty() || took >= PATIENCE, "{event} and {shared:?} were handled: {sets:?}");
        } else {
            assert!(!shared.is_empty(), "{event} was lost: {sets:?} {is_handled:?}");
        }
    }
}

/// Concurrent events on two instances mark shared keys in any order.
pub async fn shared_keys_in_any_order_lose_no_event(subject: &dyn Subject) {
    let instances = [instance(subject).await, instance(subject).await];
    for _ in 0..ROUNDS {
        let space = unique();
        let sets = random_sets(&space);
        let started = Instant::now();
        let checks = sets.iter().enumerate().map(|(number, keys)| {
            let ledger = &instances[number % 2];
            check(ledger, event(ledger, &format!("{number}-{space}"), keys.clone()), ContentMode::Enforce)
        });
        let checked = join_all(checks).await;
        let is_handled: Vec<bool> = checked.iter().map(|event| event.result == EventResult::New).collect();
        judge(&sets, &is_handled, started.elapsed());
    }
}

/// An event whose claim was released or is in doubt was not handled: its content is free for other events.
pub async fn content_of_an_unhandled_claim_refuses_nobody(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let (space, route) = (unique(), "POST /events");
    let own = async |key: &Key| {
        ledger.check_content(key, content(&space, &["file"]), LONG_MS, ContentMode::Enforce).await.unwrap()
    };
    let keys: Vec<Key> = ["A", "B", "C", "D"].map(|name| scoped("", route, name)).to_vec();
    let first = granted(&ledger, &keys[0], LONG_MS).await;
    assert_eq!(own(&keys[0]).await, ContentCheck::Handle(vec![]));
    let second = granted(&ledger, &keys[1], LONG_MS).await;
    let ContentCheck::InFlight(hit) = own(&keys[1]).await else { panic!("the first one is running") };
    assert_eq!((hit.name.as_str(), hit.event.as_str()), ("file", keys[0].text()));
    assert_eq!(ledger.release(&keys[0], first.token).await.unwrap(), Settled::Applied);
    assert_eq!(own(&keys[1]).await, ContentCheck::Handle(vec![]));
    assert_eq!(ledger.declare_in_doubt(&keys[1], second.token, "test").await.unwrap(), Settled::Applied);
    let third = granted(&ledger, &keys[2], LONG_MS).await;
    assert_eq!(own(&keys[2]).await, ContentCheck::Handle(vec![]));
    assert_eq!(ledger.complete(&keys[2], third.token, outcome("done")).await.unwrap(), Settled::Applied);
    granted(&ledger, &keys[3], LONG_MS).await;
    let ContentCheck::Handled(hit) = own(&keys[3]).await else { panic!("the third one was handled") };
    assert_eq!(hit.event, keys[2].text());
    let observed =
        ledger.check_content(&keys[3], content(&space, &["file"]), LONG_MS, ContentMode::Observe).await;
    assert_eq!(observed.unwrap(), ContentCheck::Handle(vec![hit]));
}

/// The same as for marks, with claims: senders retry what is in flight.
pub async fn claims_with_shared_keys_lose_no_event(subject: &dyn Subject) {
    let instances = [Arc::new(instance(subject).await), Arc::new(instance(subject).await)];
    for _ in 0..ROUNDS {
        let space = unique();
        let sets = random_sets(&space);
        let started = Instant::now();
        let deliveries = sets.iter().enumerate().map(|(number, keys)| {
            let key = Key::new(Scope::new("", "POST /events"), format!("{number}-{space}")).unwrap();
            deliver(&instances[number % 2], key, keys)
        });
        let delivered =
            tokio::time::timeout(BOUND, join_all(deliveries)).await.expect("every event is decided");
        let is_handled: Vec<bool> = delivered.into_iter().map(|delivered| delivered.unwrap()).collect();
        judge(&sets, &is_handled, started.elapsed());
    }
}

/// Delivers an event until it is decided. Returns whether it was handled.
async fn deliver(ledger: &Ledger, key: Key, keys: &[ContentKey]) -> Result<bool> {
    loop {
        let Claim::Granted(grant) = claim(ledger, &request(ledger, &key, LONG_MS)).await else {
            panic!("nobody else delivers it")
        };
        match ledger.check_content(&key, keys.to_vec(), LONG_MS, ContentMode::Enforce).await? {
            ContentCheck::Handle(_) => {
                assert_eq!(ledger.complete(&key, grant.token, outcome("handled")).await?, Settled::Applied);
                return Ok(true);
            }
            ContentCheck::Handled(_) => {
                assert_eq!(
                    ledger.complete(&key, grant.token, outcome("same content")).await?,
                    Settled::Applied
                );
                return Ok(false);
            }
            ContentCheck::InFlight(_) => {
                assert_eq!(ledger.release(&key, grant.token).await?, Settled::Applied);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}
