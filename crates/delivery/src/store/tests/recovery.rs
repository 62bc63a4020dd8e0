//! What is known about a batch after its process has crashed.

use super::*;
use crate::history::{History, RequestState};
use crate::receipt::{Disposition, Entry};

/// The history of the only batch in the spool, after a process that did `act` has crashed.
fn after_crash(act: impl FnOnce(&Store, &OwnedFile)) -> Option<History> {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (owned, _) = accept(&store, 1, 0);
    act(&store, &owned);
    drop(store);
    let next = open(dir.path());
    assert!(names(&dir.path().join("spool/.inflight")).len() == 1, "only the new process has a directory");
    let waiting = waiting(&next);
    assert!(waiting.len() <= 1);
    waiting.first().map(|listed| next.layout().read(BatchDir::Spool, listed).unwrap().unwrap().history)
}

#[test]
fn interrupted_request_may_have_been_processed() {
    let lost = History { response_lost: Some(NOW), ..History::default() };
    let timed_out = History { timed_out: Some(NOW), ..History::default() };
    let note = |requests: &'static [RequestState]| {
        after_crash(|store, owned| {
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
fn leftover_file_of_a_delivered_batch_is_removed() {
    let left = |disposition, batch: Batch| {
        after_crash(|store, owned| {
            store.note_request(owned, RequestState::Started, NOW);
            let entry = Entry::new(&batch, disposition, NOW);
            store.receipts().write(&entry, NOW).unwrap();
        })
    };
    assert_eq!(left(Disposition::Delivered, batch(1)), None);
    assert_eq!(left(Disposition::Accepted, batch(1)), None);
    assert!(left(Disposition::Spooled, batch(1)).is_some());
    let record = Record::parse(r#"{"source_event_id":"e1","tokens":2}"#).unwrap();
    assert!(left(Disposition::Delivered, Batch::new(vec![record])).is_some(), "the content differs");
}

#[test]
fn request_history_is_kept_in_the_file_but_not_inherited_by_parts() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (mut owned, mut stored) = accept(&store, 1, 0);
    stored.history = History { response_lost: Some(NOW), timed_out: Some(NOW + 1), spooled_elsewhere: true };
    stored.by_record = true;
    store.spool(&mut owned, &stored).unwrap();
    let read = store.layout().read(BatchDir::Spool, &waiting(&store)[0]).unwrap().unwrap();
    assert_eq!((&read.history, read.by_record), (&stored.history, true));
    let part = read.with(batch(2));
    assert_eq!((part.history, part.by_record), (History::default(), true));
}

#[test]
fn plain_file_is_from_another_program_and_an_edited_file_is_not() {
    let read =
        |text: &str| StoredBatch::decode(text.as_bytes(), false, NOW).unwrap().history.spooled_elsewhere;
    assert!(read(r#"{"batchIdempotencyKey":"a","records":[{}],"retryCount":0,"lastError":"HTTP 503"}"#));
    assert!(!read(r#"{"batchIdempotencyKey":"a","records":[{}],"attempts":[{"at":"x","error":"y"}]}"#));
    let ours = String::from_utf8(StoredBatch::fresh(batch(1), NOW).encode(false)).unwrap();
    assert!(!read(&ours));
}
