//! Marks: each event is new once.

use std::time::Duration;

use ichido_core::mark::{self, Mark};
use ichido_core::{MarkKey, Metadata};

use super::{BOUND, LONG_MS, Subject, granted, instance, mark_key, unique};
use crate::Ledger;

async fn mark(ledger: &Ledger, request: &mark::Request) -> Mark {
    mark_all(ledger, std::slice::from_ref(request)).await.remove(0)
}

async fn mark_all(ledger: &Ledger, requests: &[mark::Request]) -> Vec<Mark> {
    let marked = ledger.mark(requests).await.expect("the marks are answered");
    assert!(marked.iter().all(|marked| !marked.degraded));
    marked.into_iter().map(|marked| marked.mark).collect()
}

fn is_new(marks: &[Mark]) -> Vec<bool> {
    marks.iter().map(|mark| *mark == Mark::New).collect()
}

/// The first caller is told "new", all others "seen" with the first one's metadata.
pub async fn an_event_is_new_once(subject: &dyn Subject) {
    let (ledger, other) = (instance(subject).await, instance(subject).await);
    let metadata = Metadata::new([("file_id".to_owned(), "F1".to_owned())]).unwrap();
    let first = mark::Request { metadata: metadata.clone(), ..ledger.mark_request(mark_key("once")) };
    assert_eq!(mark(&ledger, &first).await, Mark::New);
    for ledger in [&ledger, &other] {
        match mark(ledger, &ledger.mark_request(first.key.clone())).await {
            Mark::Seen { metadata: seen, first_seen } => {
                assert_eq!(seen, metadata);
                assert!(first_seen.0 > 1_600_000_000_000, "{first_seen:?}");
            }
            Mark::New => panic!("new twice"),
        }
    }
}

/// A lost reply must not lose the event.
pub async fn a_retry_with_the_same_nonce_is_new_again(subject: &dyn Subject) {
    let (ledger, other) = (instance(subject).await, instance(subject).await);
    let request = ledger.mark_request(mark_key("again"));
    for ledger in [&ledger, &ledger, &other] {
        assert_eq!(mark(ledger, &request).await, Mark::New);
    }
}

/// A hundred keys, some of them seen: one result each, in the order of the requests.
pub async fn a_batch_of_a_hundred_is_answered_in_order(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let keys: Vec<MarkKey> = (0..100).map(|number| mark_key(&format!("batch-{number}"))).collect();
    let thirds: Vec<_> = keys.iter().step_by(3).map(|key| ledger.mark_request(key.clone())).collect();
    assert!(is_new(&mark_all(&ledger, &thirds).await).iter().all(|new| *new));
    let all: Vec<_> = keys.iter().map(|key| ledger.mark_request(key.clone())).collect();
    let expected: Vec<bool> = (0..100).map(|number| number % 3 != 0).collect();
    assert_eq!(is_new(&mark_all(&ledger, &all).await), expected);
    assert!(mark_all(&ledger, &[]).await.is_empty());
}

/// A key that occurs twice in one batch is new once.
pub async fn a_key_twice_in_a_batch_is_new_once(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let key = mark_key("twice");
    let batch =
        [ledger.mark_request(key.clone()), ledger.mark_request(mark_key("x")), ledger.mark_request(key)];
    assert_eq!(is_new(&mark_all(&ledger, &batch).await), [true, true, false]);
}

/// A mark does not expire early, and expires on time even if its deletion lags behind.
pub async fn a_mark_expires_on_time(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let granularity = subject.mark_granularity_ms();
    let retention_ms = 1_500;
    let key = mark_key("forgotten");
    let started = tokio::time::Instant::now();
    let first = mark::Request { retention_ms, ..ledger.mark_request(key.clone()) };
    assert_eq!(mark(&ledger, &first).await, Mark::New);
    loop {
        let answer = mark(&ledger, &ledger.mark_request(key.clone())).await;
        let elapsed = started.elapsed();
        if answer == Mark::New {
            let earliest = Duration::from_millis(retention_ms.saturating_sub(granularity.max(2)));
            assert!(elapsed >= earliest, "forgotten after {elapsed:?}");
            return;
        }
        assert!(elapsed < BOUND, "never forgotten");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Of fifty callers that come after a mark has expired, one is told "new".
pub async fn an_expired_mark_is_new_for_one_caller(subject: &dyn Subject) {
    let instances = [instance(subject).await, instance(subject).await];
    let key = mark_key("expired");
    let first = mark::Request { retention_ms: 300, ..instances[0].mark_request(key.clone()) };
    assert_eq!(mark(&instances[0], &first).await, Mark::New);
    tokio::time::sleep(Duration::from_millis(400 + 2 * subject.mark_granularity_ms())).await;
    assert_eq!(new_among(&instances, &[key]).await, [1]);
}

/// Fifty callers race for each of ten events: one "new" per event.
pub async fn racers_on_marks_have_one_winner_each(subject: &dyn Subject) {
    let instances = [instance(subject).await, instance(subject).await];
    let keys: Vec<MarkKey> = (0..10).map(|_| mark_key("race")).collect();
    assert_eq!(new_among(&instances, &keys).await, vec![1; keys.len()]);
}

/// For each key, how many of fifty concurrent callers were told "new".
async fn new_among(instances: &[Ledger; 2], keys: &[MarkKey]) -> Vec<usize> {
    let mut tasks = tokio::task::JoinSet::new();
    for racer in 0..50 {
        let ledger = instances[racer % 2].clone();
        let batch: Vec<_> = keys.iter().map(|key| ledger.mark_request(key.clone())).collect();
        tasks.spawn(async move { is_new(&mark_all(&ledger, &batch).await) });
    }
    let answers = tasks.join_all().await;
    (0..keys.len()).map(|key| answers.iter().filter(|answer| answer[key]).count()).collect()
}

/// Batches with the same keys in opposite order succeed, and each key is new once.
pub async fn opposite_batches_do_not_deadlock(subject: &dyn Subject) {
    let instances = [instance(subject).await, instance(subject).await];
    let keys: Vec<MarkKey> = (0..60).map(|_| mark_key("opposite")).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for racer in 0..8 {
        let ledger = instances[racer % 2].clone();
        let forward = racer % 4 < 2;
        let mut batch: Vec<_> = keys.iter().map(|key| ledger.mark_request(key.clone())).collect();
        if !forward {
            batch.reverse();
        }
        tasks.spawn(async move {
            let mut new = is_new(&mark_all(&ledger, &batch).await);
            if !forward {
                new.reverse();
            }
            new
        });
    }
    let answers = tasks.join_all().await;
    for key in 0..keys.len() {
        assert_eq!(answers.iter().filter(|answer| answer[key]).count(), 1, "key {key}");
    }
}

/// A mark and a claim of the same name are independent.
pub async fn marks_and_claims_do_not_collide(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let text = unique();
    let claim = ichido_core::Key::unscoped(text.clone()).unwrap();
    granted(&ledger, &claim, LONG_MS).await;
    for name in [text.clone(), claim.index().to_string(), format!("ichido#{}", claim.index())] {
        let key = MarkKey::new(name.clone()).unwrap();
        assert_eq!(mark(&ledger, &ledger.mark_request(key)).await, Mark::New, "{name}");
    }
    let record = ledger.get(&claim).await.unwrap().expect("the claim is untouched");
    assert_eq!(record.key.text(), text);
}

/// Unusual characters never make two events one.
pub async fn mark_keys_are_used_verbatim(subject: &dyn Subject) {
    let ledger = instance(subject).await;
    let u = unique();
    let names = ["", ":", "%", "_", "*", "'", "\"", " ", "\n", "\u{0}", "{a}", "é", "e\u{301}", "十"];
    let batch: Vec<_> = names
        .iter()
        .flat_map(|odd| [format!("{u}{odd}"), format!("ichido#{u}{odd}")])
        .map(|name| ledger.mark_request(MarkKey::new(name).unwrap()))
        .collect();
    assert!(is_new(&mark_all(&ledger, &batch).await).iter().all(|new| *new));
    let again: Vec<_> = batch.iter().map(|request| ledger.mark_request(request.key.clone())).collect();
    assert!(is_new(&mark_all(&ledger, &again).await).iter().all(|new| !*new));
}
