//! Batches that are written together.

use std::path::PathBuf;

use super::*;
use crate::history::RequestState;

fn inflight(store: &Store) -> BTreeSet<String> {
    let dir = names(&store.layout().inflight()).into_iter().next().unwrap();
    let mut names = names(&store.layout().inflight().join(dir));
    names.remove("lock");
    names
}

fn keys(store: &Store, batch_dir: BatchDir) -> Vec<String> {
    let listed = store.layout().oldest(batch_dir, None, usize::MAX).unwrap();
    let mut keys: Vec<String> = listed
        .iter()
        .map(|listed| store.layout().read(batch_dir, listed).unwrap().unwrap().batch.key().to_owned())
        .collect();
    keys.sort();
    keys
}

fn sorted<const N: usize>(ids: [usize; N]) -> Vec<String> {
    let mut keys: Vec<String> = ids.iter().map(|id| batch(*id).key().to_owned()).collect();
    keys.sort();
    keys
}

#[test]
fn group_is_one_file_until_the_last_batch_has_left_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut group = accept_group(&store, &[1, 2, 3], 0);
    assert_eq!(inflight(&store), ["group_1".to_owned()].into());
    store.remove(&group[0].0).unwrap();
    let (owned, stored) = &mut group[1];
    store.spool(owned, stored).unwrap();
    assert_eq!(inflight(&store), ["group_1".to_owned()].into());
    let (owned, stored) = &mut group[2];
    store.fail(owned, stored.batch.key(), NOW).unwrap();
    assert!(inflight(&store).is_empty());
    assert_eq!(keys(&store, BatchDir::Spool), sorted([2]));
    assert_eq!(keys(&store, BatchDir::Failed), sorted([3]));
}

#[test]
fn after_a_crash_only_the_batches_that_are_still_in_a_group_are_recovered() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut group = accept_group(&store, &[1, 2, 3, 4, 4], 0);
    store.remove(&group[0].0).unwrap();
    let (owned, stored) = &mut group[1];
    let spooled = store.spool(owned, stored).unwrap();
    std::fs::remove_file(spooled).unwrap();
    store.note_request(&group[2].0, RequestState::Started, NOW);
    drop(store);
    let next = open(dir.path());
    assert_eq!(keys(&next, BatchDir::Spool), sorted([3, 4, 4]), "the others were delivered or taken");
    let listed = waiting(&next).into_iter().find(|listed| batch(3).key().starts_with(&listed.name.key));
    let stored = next.layout().read(BatchDir::Spool, &listed.unwrap()).unwrap().unwrap();
    assert_eq!(stored.history.response_lost, Some(NOW), "its request may have been processed");
    assert!(inflight(&next).is_empty());
}

#[test]
fn file_never_gets_the_name_of_a_batch_in_a_group() {
    let dir = tempfile::tempdir().unwrap();
    let (store, other) = (open(dir.path()), open(dir.path()));
    spool(&other, 1, 0);
    let group = accept_group(&store, &[1, 2], 0);
    let taken = store.take(BatchDir::Spool, &waiting(&store)[0]).unwrap().unwrap();
    let (alone, _) = accept(&store, 2, 0);
    let owned = group.iter().map(|(owned, _)| owned).chain([&taken, &alone]);
    let files: BTreeSet<_> = owned.map(|owned| store.path(owned)).collect();
    assert_eq!(files.len(), 4, "{files:?}");
    drop((store, other));
    let next = open(dir.path());
    assert_eq!(keys(&next, BatchDir::Spool), sorted([1, 1, 2, 2]));
}

/// Leaves a group of two batches behind, with one damaged byte.
fn damaged_group(dir: &Path, damaged: impl Fn(&[u8]) -> usize) -> (PathBuf, Vec<u8>) {
    let store = open(dir);
    accept_group(&store, &[1, 2], 0);
    let abandoned = names(&store.layout().inflight()).into_iter().next().unwrap();
    let path = store.layout().inflight().join(abandoned).join("group_1");
    let bytes = std::fs::read(&path).unwrap();
    let mut broken = bytes.clone();
    broken[damaged(&bytes)] ^= 1;
    std::fs::write(&path, &broken).unwrap();
    (path, bytes)
}

/// The damaged batch is a file without a checksum, which a pass moves to failed.
#[test]
fn damaged_batch_does_not_keep_its_group_from_recovery() {
    let dir = tempfile::tempdir().unwrap();
    damaged_group(dir.path(), |bytes| bytes.len() - 10);
    let store = open(dir.path());
    let read = |listed: &ListedFile| store.layout().read(BatchDir::Spool, listed).unwrap();
    let found: Vec<_> = waiting(&store).iter().map(read).collect();
    let whole: Vec<_> = found.iter().flatten().map(|stored| stored.batch.key()).collect();
    assert_eq!((found.len(), whole), (2, vec![batch(1).key()]));
    assert!(inflight(&store).is_empty());
}

#[test]
fn group_whose_structure_is_damaged_is_left_alone_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    // A digit of the length.
    let (path, bytes) = damaged_group(dir.path(), |_| "+ 3f2a91bc 00".len());
    let store = open(dir.path());
    assert!(waiting(&store).is_empty());
    assert!(path.exists(), "what cannot be read is kept");
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(store.recover().unwrap(), 2, "after the repair");
}

#[test]
fn only_batches_count_towards_the_quota() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = StoredBatch::fresh(batch(1), NOW).encode(false).len() as u64;
    let options = Options { max_bytes: Some(2 * bytes), ..Options::default() };
    let store = Store::open(dir.path(), options, NOW).unwrap();
    for id in 0..100 {
        let (owned, _) = accept(&store, id % 7, 0);
        // The log of requests grows beyond the quota.
        store.note_request(&owned, RequestState::Started, NOW);
        let more = [StoredBatch::fresh(batch(8), NOW), StoredBatch::fresh(batch(9), NOW)];
        assert!(store.accept_group(&more).is_err_and(|error| error.is_out_of_space()));
        store.remove(&owned).unwrap();
    }
}
