//! The store with real files.

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

/// Puts a batch into the spool.
fn park(store: &Store, id: usize, at: u64) -> std::path::PathBuf {
    let (mut owned, stored) = accept(store, id, at);
    store.park(&mut owned, &stored).unwrap()
}

fn names(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn waiting(store: &Store) -> Vec<ListedFile> {
    store.layout().oldest(BatchDir::Spool, None, usize::MAX).unwrap()
}

#[test]
fn a_batch_is_on_disk_before_anything_is_sent_and_gone_when_it_has_arrived() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (owned, stored) = accept(&store, 1, 0);
    assert!(waiting(&store).is_empty(), "it is in this process's hands, not in the spool");
    let read = store.read(&owned).unwrap().unwrap();
    assert_eq!(read.batch.key(), stored.batch.key());
    store.remove(&owned).unwrap();
    drop(store);
    assert!(names(&dir.path().join("spool/.inflight")).is_empty(), "nothing is left behind");
}

#[test]
fn the_spool_file_has_the_seeds_name_and_the_owners_rights() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let path = park(&store, 1, 0);
    let name = path.file_name().unwrap().to_str().unwrap();
    assert_eq!(name, format!("spool_20250118T120530Z_{}.json", batch(1).key_prefix()));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    for dir in ["spool", "spool/.inflight", "failed"].map(|name| dir.path().join(name)) {
        assert_eq!(fs::metadata(dir).unwrap().permissions().mode() & 0o777, 0o700);
    }
}

#[test]
fn what_a_dead_process_held_is_taken_back_and_what_it_had_not_finished_is_swept() {
    let dir = tempfile::tempdir().unwrap();
    let dead = dir.path().join("spool/.inflight/99999-1");
    let left = {
        let store = open(dir.path());
        let (owned, _) = accept(&store, 1, 0);
        let path = store.path(&owned);
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join("lock"), "").unwrap();
        fs::copy(&path, dead.join(path.file_name().unwrap())).unwrap();
        store.remove(&owned).unwrap();
        path.file_name().unwrap().to_owned()
    };
    fs::write(dead.join(".half-spool_20250118T120530Z_abc.json"), "{\"rec").unwrap();
    let store = open(dir.path());
    assert_eq!(
        names(&dir.path().join("spool")),
        BTreeSet::from([".inflight".to_owned(), left.to_str().unwrap().to_owned()])
    );
    assert!(!dead.exists());
    drop(store);
}

#[test]
fn a_division_that_did_not_come_to_its_end_leaves_the_whole() {
    let dir = tempfile::tempdir().unwrap();
    let dead = dir.path().join("spool/.inflight/99999-1");
    let store = open(dir.path());
    fs::create_dir(&dead).unwrap();
    fs::write(dead.join("lock"), "").unwrap();
    let records = [1, 2, 3].map(|id| batch(id).records()[0].clone());
    let whole = StoredBatch::fresh(Batch::new(records.to_vec()), NOW);
    let other = StoredBatch::fresh(batch(9), NOW);
    for stored in [&whole, &whole.with(whole.batch.slice(0..1)), &whole.with(whole.batch.slice(1..3)), &other]
    {
        let owned = store.write(stored).unwrap();
        let path = store.path(&owned);
        fs::rename(&path, dead.join(path.file_name().unwrap())).unwrap();
    }
    assert_eq!(store.adopt().unwrap(), 2);
    let kept = waiting(&store).iter().map(|listed| listed.name.key.clone()).collect::<BTreeSet<_>>();
    assert_eq!(kept, [&whole, &other].map(|stored| stored.batch.key_prefix().to_owned()).into());
    // All of a batch under its own key is the batch.
    assert_eq!(whole.with(whole.batch.slice(0..3)).part_of, None);
}

#[test]
fn what_a_living_process_holds_is_left_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (open(dir.path()), open(dir.path()));
    let (owned, _) = accept(&one, 1, 0);
    assert_eq!(other.adopt().unwrap(), 0);
    assert!(one.path(&owned).exists());
}

#[test]
fn of_two_takers_one_gets_the_batch() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (open(dir.path()), open(dir.path()));
    park(&one, 1, 0);
    let listed = &waiting(&one)[0];
    assert!(one.take(BatchDir::Spool, listed).unwrap().is_some());
    assert!(other.take(BatchDir::Spool, listed).unwrap().is_none());
}

#[test]
fn the_same_batch_twice_is_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let first = park(&store, 1, 0);
    assert_eq!(park(&store, 1, 60_000), first);
    assert_eq!(waiting(&store).len(), 1);
    // Also for a process that did not put the first one there.
    let other = open(dir.path());
    assert_eq!(park(&other, 1, 120_000), first);
    assert_eq!(waiting(&store).len(), 1);
}

#[test]
fn another_batch_with_the_same_name_gets_a_suffix() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let twin = |n: u32| {
        let record = Record::parse(&format!(r#"{{"n":{n}}}"#)).unwrap();
        StoredBatch::fresh(Batch::stored("a3f2e1b9c4d5".to_owned(), vec![record]), NOW)
    };
    let paths: BTreeSet<_> = [1, 2]
        .map(|n| {
            let mut owned = store.accept(&twin(n)).unwrap();
            store.park(&mut owned, &twin(n)).unwrap()
        })
        .into();
    assert_eq!(paths.len(), 2, "nothing is overwritten: {paths:?}");
    assert!(dir.path().join("spool/spool_20250118T120530Z_a3f2e1b9c4d5_2.json").exists());
}

#[test]
fn an_update_is_the_old_version_or_the_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (mut owned, mut stored) = accept(&store, 1, 0);
    stored.retry_count = 5;
    // A file of the name that an unfinished write would have does not stand in the way.
    let half = store
        .path(&owned)
        .with_file_name(format!(".half-{}", store.path(&owned).file_name().unwrap().to_str().unwrap()));
    fs::write(&half, "torn").unwrap();
    store.update(&mut owned, &stored).unwrap();
    assert_eq!(store.read(&owned).unwrap().unwrap().retry_count, 5);
    assert!(!half.exists());
}

#[test]
fn gzip_is_a_setting_and_both_kinds_are_read() {
    let dir = tempfile::tempdir().unwrap();
    park(&open(dir.path()), 1, 0);
    let packing = Store::open(dir.path(), Options { gzip: true, ..Options::default() }, NOW).unwrap();
    let path = park(&packing, 2, 1_000);
    assert!(path.to_str().unwrap().ends_with(".json.gz"));
    for listed in waiting(&packing) {
        assert!(packing.layout().read(BatchDir::Spool, &listed).unwrap().is_ok());
    }
}

#[test]
fn a_full_quota_refuses_new_work_and_deletes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { max_bytes: Some(1_000), ..Options::default() };
    let store = Store::open(dir.path(), options, NOW).unwrap();
    let mut parked = 0;
    let refused = loop {
        let stored = StoredBatch::fresh(batch(parked), NOW);
        match store.accept(&stored) {
            Ok(mut owned) => store.park(&mut owned, &stored).map(|_| parked += 1).unwrap(),
            Err(error) => break error,
        }
    };
    assert!(
        matches!(refused, Error::Quota { .. }) && refused.to_string().contains("SPOOL_MAX_BYTES"),
        "{refused}"
    );
    assert_eq!(waiting(&store).len(), parked);
    // Room that another process makes is seen.
    let other = open(dir.path());
    let owned = other.take(BatchDir::Spool, &waiting(&other)[0]).unwrap().unwrap();
    other.remove(&owned).unwrap();
    assert!(store.accept(&StoredBatch::fresh(batch(99), NOW)).is_ok());
}

#[test]
fn files_of_others_are_left_alone_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    park(&store, 1, 0);
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
fn a_file_beyond_all_bounds_is_refused_by_its_size() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let path = dir.path().join("spool/spool_20250118T120530Z_abcdef.json");
    fs::File::create(&path).unwrap().set_len(2 << 30).unwrap();
    let corrupt = store.layout().read(BatchDir::Spool, &waiting(&store)[0]).unwrap().unwrap_err();
    assert!(corrupt.to_string().contains("larger than"), "{corrupt}");
}

#[test]
fn a_directory_that_cannot_be_worked_in_is_named_with_its_rights() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("data"), "a file").unwrap();
    let error = Store::open(&dir.path().join("data"), Options::default(), NOW).unwrap_err().to_string();
    assert!(error.contains("data/spool") && error.contains("mode 0"), "{error}");
}

#[test]
fn the_oldest_come_first_and_memory_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for id in (0..25).rev() {
        park(&store, id, id as u64 * 1_000);
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
enum Move {
    Send(usize),
    Park(usize),
    Arrive(usize),
    Take,
    Fail(usize),
    /// The process dies and another one starts.
    Crash,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        4 => (0usize..6).prop_map(Move::Send),
        3 => (0usize..4).prop_map(Move::Park),
        2 => (0usize..4).prop_map(Move::Arrive),
        3 => Just(Move::Take),
        1 => (0usize..4).prop_map(Move::Fail),
        1 => Just(Move::Crash),
    ];
    prop::collection::vec(one, 0..12)
}

proptest! {
    // Each case syncs real files.
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn what_was_accepted_has_arrived_or_can_be_seen(script in moves()) {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(dir.path());
        let mut hands: Vec<(OwnedFile, StoredBatch)> = Vec::new();
        let (mut accepted, mut arrived) = (BTreeSet::new(), BTreeSet::new());
        for (turn, act) in script.into_iter().enumerate() {
            match act {
                Move::Send(id) => {
                    let (owned, stored) = accept(&store, id, turn as u64 * 1_000);
                    accepted.insert(stored.batch.key().to_owned());
                    arrived.remove(stored.batch.key());
                    hands.push((owned, stored));
                }
                Move::Park(at) if at < hands.len() => {
                    let (mut owned, stored) = hands.remove(at);
                    store.park(&mut owned, &stored).unwrap();
                }
                Move::Arrive(at) if at < hands.len() => {
                    let (owned, stored) = hands.remove(at);
                    store.remove(&owned).unwrap();
                    arrived.insert(stored.batch.key().to_owned());
                }
                Move::Fail(at) if at < hands.len() => {
                    let (owned, stored) = hands.remove(at);
                    store.fail(&owned, stored.batch.key(), NOW).unwrap();
                }
                Move::Take => {
                    if let Some(listed) = waiting(&store).first() {
                        let owned = store.take(BatchDir::Spool, listed).unwrap().unwrap();
                        let stored = store.read(&owned).unwrap().unwrap();
                        hands.push((owned, stored));
                    }
                }
                Move::Crash => {
                    hands.clear();
                    // The lock goes with the process, the directory stays: what is in it is adopted.
                    drop(store);
                    store = open(dir.path());
                }
                Move::Park(_) | Move::Arrive(_) | Move::Fail(_) => {}
            }
            let mut seen: BTreeSet<String> = hands.iter().map(|(_, stored)| stored.batch.key().to_owned()).collect();
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
