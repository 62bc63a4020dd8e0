//! Created, renamed and removed files.

use std::collections::BTreeSet;
use std::io;

use super::{SEEDS, SimulatedDisk, read, results, set, with_file};
use crate::log::storage::{Storage, replace};

fn names(disk: &SimulatedDisk) -> String {
    disk.files().into_iter().map(|(name, _)| name).collect()
}

#[test]
fn synced_file_is_lost_along_with_its_unsynced_name() {
    let seen = results(|disk| {
        let file = disk.create("a").unwrap();
        file.write_at(b"x", 0).unwrap();
        file.sync().unwrap();
        read(&disk.restart(), "a")
    });
    assert_eq!(seen, [None, Some(b"x".to_vec())].into());
}

#[test]
fn synced_name_survives_with_or_without_unsynced_content() {
    let seen = results(|disk| {
        disk.create("a").unwrap().write_at(b"x", 0).unwrap();
        disk.sync_dir().unwrap();
        read(&disk.restart(), "a").unwrap()
    });
    assert_eq!(seen, [b"".to_vec(), b"\0".to_vec(), b"x".to_vec()].into());
}

#[test]
fn name_changes_survive_independently_of_each_other() {
    let seen = results(|disk| {
        let disk = with_file(with_file(disk, "a", b""), "b", b"");
        disk.remove("a").unwrap();
        disk.remove("b").unwrap();
        disk.create("c").unwrap();
        names(&disk.restart())
    });
    assert_eq!(seen, set(["ab", "a", "b", "", "abc", "ac", "bc", "c"]));
}

#[test]
fn synced_name_changes_survive_every_power_loss() {
    let seen = results(|disk| {
        let disk = with_file(with_file(disk, "a", b""), "b", b"");
        disk.remove("a").unwrap();
        disk.rename("b", "c").unwrap();
        disk.sync_dir().unwrap();
        names(&disk.restart())
    });
    assert_eq!(seen, set(["c"]));
}

#[test]
fn rename_survives_as_a_whole_or_not_at_all() {
    let seen = results(|disk| {
        let disk = with_file(with_file(disk, "a", b"old"), "b", b"new");
        disk.rename("b", "a").unwrap();
        let disk = disk.restart();
        (read(&disk, "a"), read(&disk, "b"))
    });
    let (old, new) = (Some(b"old".to_vec()), Some(b"new".to_vec()));
    assert_eq!(seen, [(old, new.clone()), (new, None)].into());
}

#[test]
fn file_never_gets_two_names() {
    let seen = results(|disk| {
        let disk = with_file(disk, "a", b"");
        disk.rename("a", "b").unwrap();
        disk.rename("b", "c").unwrap();
        names(&disk.restart())
    });
    assert_eq!(seen, set(["a", "b", "c"]));
}

#[test]
fn rename_without_a_sync_of_the_content_can_leave_an_empty_file() {
    let seen = results(|disk| {
        let disk = with_file(disk, "a", b"old");
        disk.create("a.tmp").unwrap().write_at(b"new", 0).unwrap();
        disk.rename("a.tmp", "a").unwrap();
        read(&disk.restart(), "a").unwrap()
    });
    assert!(seen.contains(b"".as_slice()));
}

#[test]
fn replaced_file_has_its_old_or_its_new_content_wherever_the_crash_happens() {
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        let disk = with_file(SimulatedDisk::new(seed), "a", b"old");
        disk.crash_after(seed % 6);
        let result = replace(&disk, "a", b"new");
        assert_eq!(result.is_ok(), seed % 6 == 5);
        let content = read(&disk.restart(), "a").unwrap();
        assert!(result.is_err() || content == b"new");
        seen.insert(content);
    }
    assert_eq!(seen, [b"old".to_vec(), b"new".to_vec()].into());
}

#[test]
fn removed_file_remains_readable_while_it_is_open() {
    let disk = with_file(SimulatedDisk::new(1), "a", b"x");
    let file = disk.open("a").unwrap();
    disk.remove("a").unwrap();
    disk.sync_dir().unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, 0).unwrap();
    assert_eq!(&byte, b"x");
    assert_eq!(disk.open("a").unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn missing_file_is_not_found() {
    let disk = SimulatedDisk::new(1);
    assert_eq!(disk.open("a").unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(disk.rename("a", "b").unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(disk.remove("a").unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn list_returns_all_names_in_any_order() {
    let seen = results(|disk| {
        for name in ["a", "b", "c"] {
            disk.create(name).unwrap();
        }
        disk.list().unwrap().concat()
    });
    assert_eq!(seen, set(["abc", "acb", "bac", "bca", "cab", "cba"]));
}
