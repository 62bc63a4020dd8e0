//! Injected faults and damage.

use std::io;

use super::super::{Fault, FaultRates, Operation};
use super::{SimulatedDisk, content, read, results, sectors, set, with_file};
use crate::log::storage::Storage;

#[test]
fn data_of_a_failed_sync_may_be_lost_although_the_next_sync_succeeds() {
    let seen = results(|disk| {
        let disk = with_file(disk, "a", &content("aa"));
        let file = disk.open("a").unwrap();
        file.write_at(&content("xy"), 0).unwrap();
        disk.schedule_fault(Operation::Sync, 0, Fault::Io);
        assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(5));
        assert_eq!(sectors(&read(&disk, "a").unwrap()), "xy");
        // Restarting the process does not help: the cache still shows what the medium has lost.
        let disk = disk.kill();
        let file = disk.open("a").unwrap();
        file.write_at(&content("z"), 1024).unwrap();
        file.sync().unwrap();
        assert_eq!(sectors(&read(&disk, "a").unwrap()), "xyz");
        sectors(&read(&disk.restart(), "a").unwrap())
    });
    assert_eq!(seen, set(["aaz", "xaz", "ayz", "xyz"]));
}

#[test]
fn length_of_a_failed_sync_is_written_by_the_next_one() {
    let seen = results(|disk| {
        let disk = with_file(disk, "a", b"");
        let file = disk.open("a").unwrap();
        file.write_at(b"x", 0).unwrap();
        disk.schedule_fault(Operation::Sync, 0, Fault::NoSpace);
        assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(28));
        file.sync().unwrap();
        read(&disk.restart(), "a").unwrap()
    });
    assert_eq!(seen, [b"\0".to_vec(), b"x".to_vec()].into());
}

#[test]
fn names_of_a_failed_directory_sync_stay_pending() {
    let seen = results(|disk| {
        disk.create("a").unwrap();
        disk.schedule_fault(Operation::SyncDir, 0, Fault::Io);
        assert!(disk.sync_dir().is_err());
        read(&disk.restart(), "a").is_some()
    });
    assert_eq!(seen, [false, true].into());

    let seen = results(|disk| {
        disk.create("a").unwrap();
        disk.schedule_fault(Operation::SyncDir, 0, Fault::Io);
        assert!(disk.sync_dir().is_err());
        disk.sync_dir().unwrap();
        read(&disk.restart(), "a").is_some()
    });
    assert_eq!(seen, [true].into());
}

#[test]
fn failed_write_is_applied_up_to_any_byte() {
    let seen = results(|disk| {
        let disk = with_file(disk, "a", b"aaa");
        disk.schedule_fault(Operation::Write, 0, Fault::NoSpace);
        assert!(disk.open("a").unwrap().write_at(b"xyz", 0).is_err());
        String::from_utf8(read(&disk, "a").unwrap()).unwrap()
    });
    assert_eq!(seen, set(["aaa", "xaa", "xya", "xyz"]));
}

#[test]
fn failed_rename_may_have_happened_unless_the_disk_is_full() {
    let rename = |disk: SimulatedDisk, fault| {
        let disk = with_file(disk, "a", b"");
        disk.schedule_fault(Operation::Rename, 0, fault);
        assert!(disk.rename("a", "b").is_err());
        disk.files()[0].0.clone()
    };
    assert_eq!(results(|disk| rename(disk, Fault::Io)), set(["a", "b"]));
    assert_eq!(results(|disk| rename(disk, Fault::NoSpace)), set(["a"]));
}

#[test]
fn scheduled_fault_hits_one_operation_of_its_kind() {
    let disk = with_file(SimulatedDisk::new(1), "a", b"x");
    let file = disk.open("a").unwrap();
    disk.schedule_fault(Operation::Read, 1, Fault::Io);
    disk.schedule_fault(Operation::Read, 1, Fault::Io);
    let results: Vec<_> = (0..4).map(|_| file.read_at(&mut [0], 0).is_ok()).collect();
    assert_eq!(results, [true, false, false, true]);
    assert_eq!(disk.counts().faults, 2);
}

#[test]
fn every_operation_can_fail() {
    let disk = with_file(SimulatedDisk::new(1), "a", b"x");
    let file = disk.open("a").unwrap();
    disk.set_fault_rates(FaultRates::all(1.0));
    let results = [
        disk.open("a").map(drop),
        disk.create("b").map(drop),
        disk.rename("a", "c"),
        disk.remove("a"),
        disk.list().map(drop),
        disk.sync_dir(),
        file.len().map(drop),
        file.read_at(&mut [0], 0),
        file.write_at(b"x", 0),
        file.sync(),
    ];
    for result in results {
        assert!(matches!(result.unwrap_err().raw_os_error(), Some(5 | 28)));
    }
    disk.clear_faults();
    file.sync().unwrap();
}

#[test]
fn fault_rates_apply_to_their_operations_only() {
    let disk = with_file(SimulatedDisk::new(1), "a", b"x");
    let file = disk.open("a").unwrap();
    disk.set_fault_rates(FaultRates { write: 0.5, ..FaultRates::default() });
    let failed = (0..1_000).filter(|_| file.write_at(b"x", 0).is_err()).count();
    assert!((400..600).contains(&failed), "{failed} of 1000 writes failed");
    file.sync().unwrap();
    file.len().unwrap();
}

#[test]
fn flipped_bit_survives_restarts_and_syncs() {
    let disk = with_file(SimulatedDisk::new(1), "a", b"ab");
    disk.flip_bit("a", 1, 0).unwrap();
    assert_eq!(read(&disk, "a").unwrap(), b"ac");
    let disk = disk.restart();
    assert_eq!(read(&disk, "a").unwrap(), b"ac");
    disk.flip_bit("a", 0, 1).unwrap();
    disk.open("a").unwrap().sync().unwrap();
    assert_eq!(disk.durable_content("a").unwrap(), b"cc");
    assert_eq!(read(&disk, "a").unwrap(), b"cc");
    assert_eq!(disk.flip_bit("a", 2, 0).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(disk.flip_bit("b", 0, 0).unwrap_err().kind(), io::ErrorKind::NotFound);
}
