//! Erasing, on real files.

use std::fs;
use std::path::Path;

use ichido_core::Timestamp;

use super::*;
use crate::batch::Batch;
use crate::notice::{Event, Notices};
use crate::receipt::read::ReceiptFiles;
use crate::receipt::{Disposition, Entry};
use crate::store::{BatchDir, Layout, Options, OwnedFile, Store};

const NOW: Timestamp = Timestamp(1_737_201_930_000);
const USER: &str = "alice@example.com";

fn open(dir: &Path) -> Store {
    Store::open(dir, Options::default(), NOW).unwrap()
}

fn record(id: &str, user: &str) -> Record {
    Record::parse(&format!(r#"{{"metadata":{{"source_event_id":"{id}","source_user_id":"{user}"}}}}"#))
        .unwrap()
}

fn accept(store: &Store, records: Vec<Record>) -> (OwnedFile, StoredBatch) {
    let stored = StoredBatch::fresh(Batch::new(records), NOW);
    (store.accept(&stored).unwrap(), stored)
}

fn user() -> Subject {
    Subject::User(USER.to_owned())
}

/// Whether a file below a directory contains a text.
fn contains(dir: &Path, text: &str) -> bool {
    fs::read_dir(dir).unwrap().flatten().any(|entry| match entry.file_type().unwrap().is_dir() {
        true => contains(&entry.path(), text),
        false => memchr::memmem::find(&fs::read(entry.path()).unwrap(), text.as_bytes()).is_some(),
    })
}

fn in_dir(root: &Path, dir: BatchDir, subject: &Subject, mode: Mode) -> Tally {
    batches(&Layout::new(root), dir, subject, mode, || Ok(open(root))).unwrap()
}

#[test]
fn records_of_a_user_are_erased_and_the_others_keep_their_batch() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let (mut mixed, mut stored) = accept(&store, vec![record("e1", USER), record("e2", "bob")]);
    stored.note(NOW, &format!("HTTP 422: {USER} is not known"));
    store.spool(&mut mixed, &stored).unwrap();
    let (mut alone, only) = accept(&store, vec![record("e3", USER)]);
    store.fail(&mut alone, only.batch.key(), NOW).unwrap();
    for dir in [BatchDir::Spool, BatchDir::Failed] {
        let found = in_dir(root.path(), dir, &user(), Mode::Find);
        assert_eq!((found.found, found.erased), (1, 1), "{found:?}");
    }
    assert!(contains(root.path(), USER), "finding changes nothing");
    for dir in [BatchDir::Spool, BatchDir::Failed] {
        let erased = in_dir(root.path(), dir, &user(), Mode::Erase);
        assert_eq!((erased.found, erased.erased), (1, 1), "{erased:?}");
        assert_eq!(in_dir(root.path(), dir, &user(), Mode::Erase), Tally::default());
    }
    assert!(!contains(root.path(), USER));
    let layout = Layout::new(root.path());
    assert_eq!(layout.count(BatchDir::Failed).unwrap(), 0);
    let [left] = &layout.oldest(BatchDir::Spool, None, 9).unwrap()[..] else { panic!("one batch is left") };
    let left = layout.read(BatchDir::Spool, left).unwrap().unwrap();
    assert_eq!((left.batch.key(), left.batch.records().len()), (stored.batch.key(), 1));
    assert_eq!(left.batch.records()[0].key(), "e2");
}

#[test]
fn message_about_another_record_loses_the_text() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let (mut owned, mut stored) = accept(&store, vec![record("e1", "bob")]);
    stored.note(NOW, &format!("HTTP 422: {USER} is not known"));
    store.update(&mut owned, &stored).unwrap();
    store.fail(&mut owned, stored.batch.key(), NOW).unwrap();
    assert_eq!(in_dir(root.path(), BatchDir::Failed, &user(), Mode::Erase).erased, 1);
    assert!(!contains(root.path(), USER));
    assert_eq!(Layout::new(root.path()).count(BatchDir::Failed).unwrap(), 1);
}

#[test]
fn batch_is_erased_by_its_key_and_a_record_by_its_id() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let (mut owned, stored) = accept(&store, vec![record("e1", "a"), record("e2", "b"), record("e3", "c")]);
    store.spool(&mut owned, &stored).unwrap();
    let id = Subject::Key("e2".to_owned());
    assert_eq!(in_dir(root.path(), BatchDir::Spool, &id, Mode::Erase).erased, 1);
    let batch = Subject::Key(stored.batch.key().to_owned());
    assert_eq!(in_dir(root.path(), BatchDir::Spool, &batch, Mode::Erase).erased, 2);
    assert_eq!(Layout::new(root.path()).count(BatchDir::Spool).unwrap(), 0);
}

#[test]
fn records_that_are_being_sent_are_kept() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let (_sending, _) = accept(&store, vec![record("e1", USER)]);
    let tally = in_flight(store.layout(), &user()).unwrap();
    assert_eq!((tally.found, tally.erased, tally.notes.len()), (1, 0, 1), "{tally:?}");
}

#[test]
fn id_is_erased_from_receipts_while_a_process_appends_to_them() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let secret = "order-\u{4e00}-\"17\"";
    let json = serde_json::json!({ "source_event_id": secret }).to_string();
    let batch = Batch::new(vec![Record::parse(&json).unwrap(), record("e2", "b")]);
    let write = |batch: &Batch| {
        store.receipts().write(&Entry::new(batch, Disposition::Delivered, NOW), NOW).unwrap();
    };
    write(&batch);
    let subject = Subject::Key(secret.to_owned());
    assert_eq!(receipts(root.path(), &subject, Mode::Find).unwrap().erased, 1);
    assert_eq!(receipts(root.path(), &subject, Mode::Erase).unwrap().erased, 1);
    assert_eq!(receipts(root.path(), &subject, Mode::Erase).unwrap(), Tally::default());
    write(&Batch::new(vec![record("e4", "d")]));
    assert!(!contains(root.path(), &subject.escaped()));
    let files = ReceiptFiles::list(root.path()).unwrap();
    assert_eq!((files.search("e2").receipts.len(), files.search("e4").receipts.len()), (1, 1));
    assert!(store.receipts().has_delivered(&batch).unwrap(), "a leftover of the batch is not sent again");
    let by_user = receipts(root.path(), &user(), Mode::Erase).unwrap();
    assert_eq!((by_user.found, by_user.notes.len()), (0, 1));
}

#[test]
fn waiting_notice_is_removed() {
    let root = tempfile::tempdir().unwrap();
    let clock = std::sync::Arc::new(ichido_core::ManualClock::at(NOW));
    let outbox = Notices::open(&root.path().join("notices"), Vec::new(), clock).unwrap();
    let notice = |reason: &str| Event::SpoolFull { reason: reason.to_owned() };
    outbox.announce(notice(&format!("{USER} sent too much"))).unwrap();
    outbox.announce(notice("no space")).unwrap();
    assert_eq!(notices(root.path(), &user(), Mode::Find).unwrap().erased, 1);
    assert_eq!(notices(root.path(), &user(), Mode::Erase).unwrap().erased, 1);
    assert_eq!(outbox.waiting().unwrap(), 1);
    assert!(!contains(root.path(), USER));
}
