//! Crashes, restarts and handles.

use std::io;

use super::super::Counts;
use super::{SimulatedDisk, read, results, set, with_file};
use crate::log::storage::{File, Storage};

fn assert_crashed<T>(result: io::Result<T>) {
    let error = result.err().expect("the operation succeeded after a crash");
    assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::Other, "simulated crash".to_owned()));
}

fn assert_stopped(disk: &SimulatedDisk, file: &dyn File) {
    assert!(disk.is_crashed());
    assert_crashed(disk.open("a"));
    assert_crashed(disk.create("a"));
    assert_crashed(disk.rename("a", "b"));
    assert_crashed(disk.remove("a"));
    assert_crashed(disk.list());
    assert_crashed(disk.sync_dir());
    assert_crashed(file.len());
    assert_crashed(file.read_at(&mut [0], 0));
    assert_crashed(file.write_at(b"!", 0));
    assert_crashed(file.sync());
}

#[test]
fn everything_fails_after_a_crash_and_old_handles_fail_forever() {
    let old = with_file(SimulatedDisk::new(1), "a", b"x");
    let file = old.open("a").unwrap();
    old.crash();
    assert_stopped(&old, &*file);
    let restarted = old.restart();
    assert_stopped(&old, &*file);
    assert!(!restarted.is_crashed());
    assert_eq!(read(&restarted, "a").unwrap(), b"x");
    let file = restarted.open("a").unwrap();
    let killed = restarted.kill();
    assert_stopped(&restarted, &*file);
    assert_eq!(read(&killed, "a").unwrap(), b"x");
}

#[test]
fn crash_happens_after_the_given_number_of_changes() {
    let disk = with_file(SimulatedDisk::new(1), "a", b"x");
    let file = disk.open("a").unwrap();
    disk.crash_after(2);
    file.write_at(b"y", 0).unwrap();
    file.read_at(&mut [0], 0).unwrap();
    file.sync().unwrap();
    file.read_at(&mut [0], 0).unwrap();
    assert!(!disk.is_crashed());
    assert_crashed(file.write_at(b"z", 0));
    assert_stopped(&disk, &*file);
    let disk = disk.restart();
    disk.open("a").unwrap().write_at(b"z", 0).unwrap();
}

#[test]
fn operation_that_crashes_may_take_effect() {
    let seen = results(|disk| {
        let disk = with_file(disk, "a", b"--");
        disk.crash_after(0);
        assert_crashed(disk.open("a").unwrap().write_at(b"xy", 0));
        String::from_utf8(read(&disk.kill(), "a").unwrap()).unwrap()
    });
    assert_eq!(seen, set(["--", "x-", "xy"]));

    let seen = results(|disk| {
        let disk = with_file(disk, "a", b"");
        disk.crash_after(0);
        assert_crashed(disk.rename("a", "b"));
        disk.kill().files()[0].0.clone()
    });
    assert_eq!(seen, set(["a", "b"]));

    let seen = results(|disk| {
        let disk = with_file(disk, "a", b"-");
        let file = disk.open("a").unwrap();
        file.write_at(b"x", 0).unwrap();
        disk.crash_after(0);
        assert_crashed(file.sync());
        let _killed = disk.kill();
        String::from_utf8(disk.durable_content("a").unwrap()).unwrap()
    });
    assert_eq!(seen, set(["-", "x"]));
}

#[test]
fn killed_process_loses_nothing_but_its_changes_stay_pending() {
    let seen = results(|disk| {
        let disk = with_file(disk, "a", b"-");
        disk.open("a").unwrap().write_at(b"x", 0).unwrap();
        disk.rename("a", "b").unwrap();
        let disk = disk.kill();
        assert_eq!(read(&disk, "b").unwrap(), b"x");
        assert_eq!((disk.durable_len("a"), disk.durable_len("b")), (Some(1), None));
        let disk = disk.restart();
        let (name, _) = disk.files().remove(0);
        format!("{name}{}", String::from_utf8(read(&disk, &name).unwrap()).unwrap())
    });
    assert_eq!(seen, set(["a-", "ax", "b-", "bx"]));
}

#[test]
fn what_survived_one_power_loss_survives_the_next() {
    results(|disk| {
        disk.create("a").unwrap().write_at(&[7; 2_000], 0).unwrap();
        disk.sync_dir().unwrap();
        let disk = disk.restart();
        let survived = read(&disk, "a");
        assert_eq!(disk.durable_content("a"), survived);
        assert_eq!(read(&disk.restart().restart(), "a"), survived);
    });
}

#[test]
fn counts_continue_across_restarts() {
    let disk = with_file(SimulatedDisk::new(1), "a", b"abc").restart().kill();
    read(&disk, "a");
    let expected = Counts {
        changes: 4,
        reads: 1,
        writes: 1,
        bytes_written: 3,
        syncs: 1,
        dir_syncs: 1,
        faults: 0,
        power_losses: 1,
        kills: 1,
    };
    assert_eq!(disk.counts(), expected);
}
