//! The store, on real files.

mod groups;
mod recovery;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ichido_core::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::batch::Batch;
use crate::record::Record;

const NOW: Timestamp = Timestamp(1_737_201_930_000);

fn batch(id: usize) -> Batch {
    Batch::new(vec![Record::parse(&format!(r#"{{"source_event_id":"e{id}"}}"#)).unwrap()])
}

fn open(dir: &Path) -> Store {
    Store::open(dir, Options::default(), NOW).unwrap()
}

fn accept(store: &Store, id: usize, at: u64) -> (OwnedFile, StoredBatch) {
    let stored = StoredBatch::fresh(batch(id), NOW + at);
    (store.accept(&stored).unwrap(), stored)
}

fn accept_group(store: &Store, ids: &[usize], at: u64) -> Vec<(OwnedFile, StoredBatch)> {
    let stored: Vec<_> = ids.iter().map(|id| StoredBatch::fresh(batch(*id), NOW + at)).collect();
    store.accept_group(&stored).unwrap().into_iter().zip(stored).collect()
}

/// Puts a batch into the spool.
fn spool(store: &Store, id: usize, at: u64) -> std::path::PathBuf {
    let (mut owned, stored) = accept(store, id, at);
    store.spool(&mut owned, &stored).unwrap()
}

fn names(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn waiting(store: &Store) -> Vec<ListedFile> {
    store.layout().oldest(BatchDir::Spool, None, usize::MAX).unwrap()
}

#[test]
fn batch_is_on_disk_before_it_is_sent_and_removed_when_delivered() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (owned, stored) = accept(&store, 1, 0);
    assert!(waiting(&store).is_empty(), "this process has taken it, so it is not in the spool");
    let read = store.read(&owned).unwrap().unwrap();
    assert_eq!(read.batch.key(), stored.batch.key());
    store.remove(&owned).unwrap();
    drop(store);
    assert!(names(&dir.path().join("spool/.inflight")).is_empty(), "nothing is left behind");
}

#[test]
fn spool_file_has_the_documented_name_and_is_private() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let path = spool(&store, 1, 0);
    let name = path.file_name().unwrap().to_str().unwrap();
    assert_eq!(name, format!("spool_20250118T120530Z_{}.json", batch(1).key_prefix()));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    for dir in ["spool", "spool/.inflight", "failed"].map(|name| dir.path().join(name)) {
        assert_eq!(fs::metadata(dir).unwrap().permissions().mode() & 0o777, 0o700);
    }
}

#[test]
fn batches_of_a_crashed_process_are_recovered_and_temporary_files_removed() {
    let dir = tempfile::tempdir().unwrap();
    let abandoned = dir.path().join("spool/.inflight/99999-1");
    let left = {
        let store = open(dir.path());
        let (owned, _) = accept(&store, 1, 0);
        let path = store.path(&owned);
        fs::create_dir(&abandoned).unwrap();
        fs::write(abandoned.join("lock"), "").unwrap();
        fs::copy(&path, abandoned.join(path.file_name().unwrap())).unwrap();
        store.remove(&owned).unwrap();
        path.file_name().unwrap().to_owned()
    };
    fs::write(abandoned.join(".half-spool_20250118T120530Z_abc.json"), "{\"rec").unwrap();
    let store = open(dir.path());
    assert_eq!(
        names(&dir.path().join("spool")),
        BTreeSet::from([".inflight".to_owned(), left.to_str().unwrap().to_owned()])
    );
    assert!(!abandoned.exists());
    drop(store);
}

#[test]
fn interrupted_split_leaves_the_whole_batch() {
    let dir = tempfile::tempdir().unwrap();
    let abandoned = dir.path().join("spool/.inflight/99999-1");
    let store = open(dir.path());
    fs::create_dir(&abandoned).unwrap();
    fs::write(abandoned.join("lock"), "").unwrap();
    let records = [1, 2, 3].map(|id| batch(id).records()[0].clone());
    let whole = StoredBatch::fresh(Batch::new(records.to_vec()), NOW);
    let other = StoredBatch::fresh(batch(9), NOW);
    for stored in [&whole, &whole.with(whole.batch.slice(0..1)), &whole.with(whole.batch.slice(1..3)), &other]
    {
        let owned = store.write(stored).unwrap();
        let path = store.path(&owned);
        fs::rename(&path, abandoned.join(path.file_name().unwrap())).unwrap();
    }
    assert_eq!(store.recover().unwrap(), 2);
    let kept = waiting(&store).iter().map(|listed| listed.name.key.clone()).collect::<BTreeSet<_>>();
    assert_eq!(kept, [&whole, &other].map(|stored| stored.batch.key_prefix().to_owned()).into());
    // All of a batch under its own key is the batch itself.
    assert_eq!(whole.with(whole.batch.slice(0..3)).part_of, None);
}

#[test]
fn files_of_a_running_process_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (open(dir.path()), open(dir.path()));
    let (owned, _) = accept(&one, 1, 0);
    assert_eq!(other.recover().unwrap(), 0);
    assert!(one.path(&owned).exists());
}

#[test]
fn one_of_two_processes_gets_the_batch() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (open(dir.path()), open(dir.path()));
    spool(&one, 1, 0);
    let listed = &waiting(&one)[0];
    assert!(one.take(BatchDir::Spool, listed).unwrap().is_some());
    assert!(other.take(BatchDir::Spool, listed).unwrap().is_none());
}

#[test]
fn identical_batches_are_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let first = spool(&store, 1, 0);
    assert_eq!(spool(&store, 1, 60_000), first);
    assert_eq!(waiting(&store).len(), 1);
    // Also if another process put the first one there.
    let other = open(dir.path());
    assert_eq!(spool(&other, 1, 120_000), first);
    assert_eq!(waiting(&store).len(), 1);
}

#[test]
fn different_batch_with_the_same_name_gets_a_suffix() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let batch_with = |n: u32| {
        let record = Record::parse(&format!(r#"{{"n":{n}}}"#)).unwrap();
        StoredBatch::fresh(Batch::stored("a3f2e1b9c4d5".to_owned(), vec![record]), NOW)
    };
    let paths: BTreeSet<_> = [1, 2]
        .map(|n| {
            let mut owned = store.accept(&batch_with(n)).unwrap();
            store.spool(&mut owned, &batch_with(n)).unwrap()
        })
        .into();
    assert_eq!(paths.len(), 2, "nothing is overwritten: {paths:?}");
    assert!(dir.path().join("spool/spool_20250118T120530Z_a3f2e1b9c4d5_2.json").exists());
}

#[test]
fn update_is_atomic() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (mut owned, mut stored) = accept(&store, 1, 0);
    stored.retry_count = 5;
    // A leftover temporary file does not prevent the write.
    let half = store
        .path(&owned)
        .with_file_name(format!(".half-{}", store.path(&owned).file_name().unwrap().to_str().unwrap()));
    fs::write(&half, "torn").unwrap();
    store.update(&mut owned, &stored).unwrap();
    assert_eq!(store.read(&owned).unwrap().unwrap().retry_count, 5);
    assert!(!half.exists());
}

#[test]
fn compressed_and_plain_files_are_read_whatever_the_setting() {
    let dir = tempfile::tempdir().unwrap();
    spool(&open(dir.path()), 1, 0);
    let packing = Store::open(dir.path(), Options { gzip: true, ..Options::default() }, NOW).unwrap();
    let path = spool(&packing, 2, 1_000);
    assert!(path.to_str().unwrap().ends_with(".json.gz"));
    for listed in waiting(&packing) {
        assert!(packing.layout().read(BatchDir::Spool, &listed).unwrap().is_ok());
    }
}

#[test]
fn full_quota_refuses_new_batches_and_deletes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { max_bytes: Some(1_000), ..Options::default() };
    let store = Store::open(dir.path(), options, NOW).unwrap();
    let mut spooled = 0;
    let refused = loop {
        let stored = StoredBatch::fresh(batch(spooled), NOW);
        match store.accept(&stored) {
            Ok(mut owned) => store.spool(&mut owned, &stored).map(|_| spooled += 1).unwrap(),
            Err(error) => break error,
        }
    };
    assert!(
        matches!(refused, Error::Quota { .. }) && refused.to_string().contains("SPOOL_MAX_BYTES"),
        "{refused}"
    );
    assert_eq!(waiting(&store).len(), spooled);
    // Space that another process frees is noticed.
    let other = open(dir.path());
    let owned = other.take(BatchDir::Spool, &waiting(&other)[0]).unwrap().unwrap();
    other.remove(&owned).unwrap();
    assert!(store.accept(&StoredBatch::fresh(batch(99), NOW)).is_ok());
}

#[test]
fn foreign_files_are_left_alone_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    spool(&store, 1, 0);
    let spool = dir.path().join("spool");
    fs::write(spool.join("notes.txt"), "mine").unwrap();
    fs::write(spool.join("spool_20250118T120530Z_abcdef.json"), "{\"records\":[").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", spool.join("spool_20250118T120531Z_fedcba.json")).unwrap();
    let mut findings = Vec::new();
    assert_eq!(fsck(store.layout(), |finding| findings.push(finding)).unwrap(), 1);
    let kinds: Vec<_> = findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, ["foreign", "corrupt", "corrupt"], "{findings:?}");
    assert!(spool.join("notes.txt").exists() && waiting(&store).len() == 3);
}

#[test]
fn oversized_file_is_refused_before_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let path = dir.path().join("spool/spool_20250118T120530Z_abcdef.json");
    fs::File::create(&path).unwrap().set_len(2 << 30).unwrap();
    let corrupt = store.layout().read(BatchDir::Spool, &waiting(&store)[0]).unwrap().unwrap_err();
    assert!(corrupt.to_string().contains("larger than"), "{corrupt}");
}

#[test]
fn unusable_directory_is_named_with_its_permissions() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("data"), "a file").unwrap();
    let error = Store::open(&dir.path().join("data"), Options::default(), NOW).unwrap_err().to_string();
    assert!(error.contains("data/spool") && error.contains("mode 0"), "{error}");
}

#[test]
fn oldest_files_come_first_and_memory_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for id in (0..25).rev() {
        spool(&store, id, id as u64 * 1_000);
    }
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let some = store.layout().oldest(BatchDir::Spool, after.as_ref(), 10).unwrap();
        let Some(last) = some.last().cloned() else { break };
        assert!(some.len() <= 10);
        seen.extend(some);
        after = Some(last);
    }
    assert_eq!(seen.len(), 25);
    assert!(seen.is_sorted());
}

#[derive(Clone, Debug)]
enum Action {
    Send(usize),
    /// Batches that are written together, perhaps the same one twice.
    SendGroup(Vec<usize>),
    Park(usize),
    Arrive(usize),
    Take,
    Fail(usize),
    /// The process crashes, and another one starts.
    Crash,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let one = prop_oneof![
        4 => (0usize..6).prop_map(Action::Send),
        2 => prop::collection::vec(0usize..5, 2..4).prop_map(Action::SendGroup),
        3 => (0usize..4).prop_map(Action::Park),
        2 => (0usize..4).prop_map(Action::Arrive),
        3 => Just(Action::Take),
        1 => (0usize..4).prop_map(Action::Fail),
        1 => Just(Action::Crash),
    ];
    prop::collection::vec(one, 0..12)
}

proptest! {
    // Each case syncs real files.
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn accepted_batch_is_delivered_or_on_disk(script in actions()) {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(dir.path());
        let mut taken: Vec<(OwnedFile, StoredBatch)> = Vec::new();
        let (mut accepted, mut arrived) = (BTreeSet::new(), BTreeSet::new());
        for (turn, action) in script.into_iter().enumerate() {
            match action {
                Action::Send(id) => {
                    let (owned, stored) = accept(&store, id, turn as u64 * 1_000);
                    accepted.insert(stored.batch.key().to_owned());
                    arrived.remove(stored.batch.key());
                    taken.push((owned, stored));
                }
                Action::SendGroup(ids) => {
                    for (owned, stored) in accept_group(&store, &ids, turn as u64 * 1_000) {
                        accepted.insert(stored.batch.key().to_owned());
                        arrived.remove(stored.batch.key());
                        taken.push((owned, stored));
                    }
                }
                Action::Park(at) if at < taken.len() => {
                    let (mut owned, stored) = taken.remove(at);
                    store.spool(&mut owned, &stored).unwrap();
                }
                Action::Arrive(at) if at < taken.len() => {
                    let (owned, stored) = taken.remove(at);
                    store.remove(&owned).unwrap();
                    arrived.insert(stored.batch.key().to_owned());
                }
                Action::Fail(at) if at < taken.len() => {
                    let (mut owned, stored) = taken.remove(at);
                    store.fail(&mut owned, stored.batch.key(), NOW).unwrap();
                }
                Action::Take => {
                    if let Some(listed) = waiting(&store).first() {
                        let owned = store.take(BatchDir::Spool, listed).unwrap().unwrap();
                        let stored = store.read(&owned).unwrap().unwrap();
                        taken.push((owned, stored));
                    }
                }
                Action::Crash => {
                    taken.clear();
                    // The lock is released but the directory stays, so its files are recovered.
                    drop(store);
                    store = open(dir.path());
                }
                Action::Park(_) | Action::Arrive(_) | Action::Fail(_) => {}
            }
            let mut seen: BTreeSet<String> = taken.iter().map(|(_, stored)| stored.batch.key().to_owned()).collect();
            for batch_dir in [BatchDir::Spool, BatchDir::Failed] {
                for listed in store.layout().oldest(batch_dir, None, usize::MAX).unwrap() {
                    seen.insert(store.layout().read(batch_dir, &listed).unwrap().unwrap().batch.key().to_owned());
                }
            }
            for key in &accepted {
                prop_assert!(arrived.contains(key) || seen.contains(key), "{} is nowhere", key);
            }
        }
    }
}
