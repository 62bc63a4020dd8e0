//! What is known of a batch after its process has died.

use super::*;
use crate::history::{History, RequestState};
use crate::receipt::{Disposition, Entry};

/// The history of the one batch in the spool, after the process that did this died.
fn after_death(act: impl FnOnce(&Store, &OwnedFile)) -> Option<History> {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (owned, _) = accept(&store, 1, 0);
    act(&store, &owned);
    drop(store);
    let next = open(dir.path());
    assert!(names(&dir.path().join("spool/.inflight")).len() == 1, "only its own directory is left");
    let waiting = waiting(&next);
    assert!(waiting.len() <= 1);
    waiting.first().map(|listed| next.layout().read(BatchDir::Spool, listed).unwrap().unwrap().history)
}

#[test]
fn a_request_that_was_under_way_may_have_been_processed() {
    let lost = History { response_lost: Some(NOW), ..History::default() };
    let timed_out = History { timed_out: Some(NOW), ..History::default() };
    let note = |requests: &'static [RequestState]| {
        after_death(|store, owned| {
            requests.iter().for_each(|request| store.note_request(owned, *request, NOW))
        })
    };
    assert_eq!(note(&[]), Some(History::default()), "nothing was sent");
    assert_eq!(note(&[RequestState::Started]), Some(lost.clone()));
    assert_eq!(note(&[RequestState::Started, RequestState::ResponseLost]), Some(lost));
    assert_eq!(note(&[RequestState::Started, RequestState::Settled]), Some(History::default()));
    assert_eq!(note(&[RequestState::Started, RequestState::TimedOut]), Some(timed_out));
}

#[test]
fn a_file_that_was_left_behind_by_a_delivered_batch_is_removed() {
    let left = |disposition, batch: Batch| {
        after_death(|store, owned| {
            store.note_request(owned, RequestState::Started, NOW);
            let entry = Entry { batch: &batch, disposition, proof: None, attempts: &[] };
            store.receipts().write(&entry, NOW).unwrap();
        })
    };
    assert_eq!(left(Disposition::Delivered, batch(1)), None);
    assert_eq!(left(Disposition::Accepted, batch(1)), None);
    assert!(left(Disposition::Spooled, batch(1)).is_some());
    let record = Record::parse(r#"{"source_event_id":"e1","tokens":2}"#).unwrap();
    assert!(left(Disposition::Delivered, Batch::new(vec![record])).is_some(), "the content is another");
}

#[test]
fn what_happened_to_requests_survives_in_the_file_but_not_in_parts() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (mut owned, mut stored) = accept(&store, 1, 0);
    stored.history = History { response_lost: Some(NOW), timed_out: Some(NOW + 1), spooled_elsewhere: true };
    stored.by_record = true;
    store.park(&mut owned, &stored).unwrap();
    let read = store.layout().read(BatchDir::Spool, &waiting(&store)[0]).unwrap().unwrap();
    assert_eq!((&read.history, read.by_record), (&stored.history, true));
    let part = read.with(batch(2));
    assert_eq!((part.history, part.by_record), (History::default(), true));
}

#[test]
fn a_plain_file_was_spooled_by_another_program_and_an_edited_one_was_not() {
    let read =
        |text: &str| StoredBatch::decode(text.as_bytes(), false, NOW).unwrap().history.spooled_elsewhere;
    assert!(read(r#"{"batchIdempotencyKey":"a","records":[{}],"retryCount":0,"lastError":"HTTP 503"}"#));
    assert!(!read(r#"{"batchIdempotencyKey":"a","records":[{}],"attempts":[{"at":"x","error":"y"}]}"#));
    let ours = String::from_utf8(StoredBatch::fresh(batch(1), NOW).encode(false)).unwrap();
    assert!(!read(&ours));
}
