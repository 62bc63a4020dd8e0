//! Writes, lengths and syncs of files.

use super::{content, read, results, sectors, set, with_file};
use crate::log::storage::Storage;

#[test]
fn synced_content_survives_every_power_loss() {
    let seen = results(|disk| {
        let disk = with_file(disk, "a", &content("abcd"));
        disk.open("a").unwrap().write_at(&content("xyz"), 2048).unwrap();
        read(&disk.restart(), "a").unwrap()[..2048].to_vec()
    });
    assert_eq!(seen, [content("abcd")].into());
}

#[test]
fn unsynced_write_is_torn_at_sector_boundaries() {
    let seen = results(|disk| {
        let disk = with_file(disk, "a", &content("aaa"));
        disk.open("a").unwrap().write_at(&content("xyz"), 0).unwrap();
        sectors(&read(&disk.restart(), "a").unwrap())
    });
    assert_eq!(seen, set(["aaa", "xaa", "aya", "aaz", "xya", "xaz", "ayz", "xyz"]));
}

#[test]
fn torn_write_respects_the_sector_grid_of_the_file() {
    let seen = results(|disk| {
        let disk = with_file(disk, "a", &[b'a'; 1024]);
        disk.open("a").unwrap().write_at(&[b'x'; 512], 256).unwrap();
        read(&disk.restart(), "a").unwrap().iter().filter(|byte| **byte == b'x').count()
    });
    assert_eq!(seen, [0, 256, 512].into());
}

#[test]
fn file_grows_without_its_data_or_not_at_all() {
    let seen = results(|disk| {
        let disk = with_file(disk, "a", b"");
        disk.open("a").unwrap().write_at(&content("xy"), 0).unwrap();
        sectors(&read(&disk.restart(), "a").unwrap())
    });
    assert_eq!(seen, set(["", "0", "x", "00", "0y", "x0", "xy"]));
}

/// Independent coin flips for each sector would never show these.
#[test]
fn long_write_shows_every_pattern_of_survival() {
    const SECTORS: usize = 40;
    let seen = results(|disk| {
        let disk = with_file(disk, "a", b"");
        disk.open("a").unwrap().write_at(&content(&"x".repeat(SECTORS)), 0).unwrap();
        sectors(&read(&disk.restart(), "a").unwrap())
    });
    assert!(seen.contains(""), "nothing");
    assert!(seen.contains(&"x".repeat(SECTORS)), "everything");
    assert!(seen.contains(&"0".repeat(SECTORS)), "only the length");
    let is_suffix = |text: &String| text.starts_with("00") && text.ends_with("xx") && !text.contains("x0");
    assert!(seen.iter().any(is_suffix), "a suffix");
    let is_prefix = |text: &String| (2..SECTORS - 1).contains(&text.len()) && !text.contains('0');
    assert!(seen.iter().any(is_prefix), "a prefix");
    let lost = |text: &String| text.len() == SECTORS && text.matches('0').count() == 1;
    assert!(seen.iter().any(lost), "all but one sector");
}

#[test]
fn later_write_survives_without_an_earlier_one() {
    let seen = results(|disk| {
        let disk = with_file(with_file(disk, "a", b"-"), "b", b"-");
        disk.open("a").unwrap().write_at(b"1", 0).unwrap();
        disk.open("b").unwrap().write_at(b"2", 0).unwrap();
        let disk = disk.restart();
        let both = [read(&disk, "a").unwrap(), read(&disk, "b").unwrap()].concat();
        String::from_utf8(both).unwrap()
    });
    assert_eq!(seen, set(["--", "1-", "-2", "12"]));
}

#[test]
fn overlapping_writes_survive_in_either_order() {
    let seen = results(|disk| {
        let disk = with_file(disk, "a", b"---");
        let file = disk.open("a").unwrap();
        file.write_at(b"11", 0).unwrap();
        file.write_at(b"22", 1).unwrap();
        String::from_utf8(read(&disk.restart(), "a").unwrap()).unwrap()
    });
    assert_eq!(seen, set(["---", "11-", "-22", "122", "112"]));
}

#[test]
fn created_file_may_have_its_old_content_its_new_content_or_a_mixture() {
    let seen = results(|disk| {
        let disk = with_file(disk, "a", b"old");
        disk.create("a").unwrap().write_at(b"N", 0).unwrap();
        assert_eq!(read(&disk, "a").unwrap(), b"N");
        String::from_utf8(read(&disk.restart(), "a").unwrap()).unwrap()
    });
    assert_eq!(seen, set(["old", "", "\0", "N", "Nld"]));
}

#[test]
fn synced_truncation_is_durable() {
    let seen = results(|disk| {
        let disk = with_file(disk, "a", b"old");
        let file = disk.create("a").unwrap();
        file.write_at(b"N", 0).unwrap();
        file.sync().unwrap();
        read(&disk.restart(), "a").unwrap()
    });
    assert_eq!(seen, [b"N".to_vec()].into());
}

#[test]
fn reads_see_holes_as_zeros_and_stop_at_the_end() {
    let disk = with_file(super::SimulatedDisk::new(1), "a", b"");
    let file = disk.open("a").unwrap();
    file.write_at(b"x", 2).unwrap();
    let mut bytes = [1; 3];
    file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"\0\0x");
    assert_eq!(file.len().unwrap(), 3);
    assert_eq!(file.read_at(&mut bytes, 1).unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    assert_eq!(file.read_at(&mut bytes, u64::MAX).unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    assert_eq!(file.write_at(b"x", 1 << 60).unwrap_err().kind(), std::io::ErrorKind::FileTooLarge);
}
