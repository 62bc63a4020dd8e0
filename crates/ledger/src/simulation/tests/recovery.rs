//! Bugs that the simulation found, as small as they get.

use std::sync::Arc;

use ichido_core::{
    Claim, ClaimRequest, Fingerprint, Holder, InDoubtPolicy, Key, ManualClock, Metadata, Nonce, Settle,
    Settled, SteadyTime, Timestamp, Token,
};
use tokio::sync::oneshot;

use super::super::disk::{Fault, Operation, SimulatedDisk};
use crate::log::storage::{Storage, read_all};
use crate::log::{Call, Compaction, Effort, Engine, Next, Options, Reason, open};

const NOW: Timestamp = Timestamp(1_700_000_000_000);

fn start(disk: &SimulatedDisk) -> crate::Result<Engine> {
    let options = Options { segment_bytes: 8192, fill_bytes: 512, ..Options::standard("simulated") };
    let clock = Arc::new(ManualClock::at(NOW));
    let time = |last| SteadyTime::start(clock.clone(), last);
    Ok(open(Arc::new(disk.clone()), options, &Reason::Start(&time), || [7; 16])?.engine)
}

fn key(number: u8) -> Key {
    Key::unscoped(format!("key-{number}")).unwrap()
}

fn token(number: u8) -> Token {
    Token::from_bytes([number; 16])
}

/// Claims a key. Fails if the disk does.
fn claim(engine: &mut Engine, number: u8) -> crate::Result<Claim> {
    let request = ClaimRequest {
        key: key(number),
        fingerprint: Fingerprint::NONE,
        caller: None,
        nonce: Nonce::from_bytes([number; 16]),
        token: token(number),
        lease_ms: 30_000,
        retention_ms: 60_000,
        holder: Holder::Process,
        metadata: Metadata::default(),
        in_doubt: InDoubtPolicy::Reject,
    };
    ask(engine, |reply| Call::Claim { request, reply })
}

fn ask<T>(
    engine: &mut Engine,
    call: impl FnOnce(oneshot::Sender<crate::Result<T>>) -> Call,
) -> crate::Result<T> {
    let (reply, mut answer) = oneshot::channel();
    engine.run(vec![call(reply)], NOW);
    answer.try_recv().unwrap()
}

fn has(engine: &Engine, number: u8) -> bool {
    engine.view().claim(&key(number).index()).unwrap().is_some()
}

#[test]
fn spare_file_of_an_interrupted_rotation_brings_nothing_back() {
    for (seed, changes, later) in cases(30, 10, 6) {
        let disk = SimulatedDisk::new(seed);
        let mut engine = start(&disk).unwrap();
        engine.view().prepare_spare().unwrap();
        disk.sync_dir().unwrap();
        claim(&mut engine, 1).unwrap();
        disk.crash_after(changes);
        let _ = ask(&mut engine, |reply| Call::Rotate { reply });
        let disk = disk.restart();
        let mut engine = start(&disk).unwrap();
        claim(&mut engine, 2).unwrap();
        disk.crash_after(later);
        let _ = ask(&mut engine, |reply| Call::Rotate { reply });
        let disk = disk.kill();
        let engine = start(&disk).unwrap_or_else(|error| panic!("seed {seed}, {changes}, {later}: {error}"));
        assert!(has(&engine, 1) && has(&engine, 2), "seed {seed}, {changes}, {later}");
    }
}

#[test]
fn segment_is_not_removed_before_the_log_durably_says_so() {
    for (seed, changes, _) in cases(60, 12, 1) {
        let disk = SimulatedDisk::new(seed);
        let mut engine = start(&disk).unwrap();
        claim(&mut engine, 1).unwrap();
        ask(&mut engine, |reply| Call::Rotate { reply }).unwrap();
        let action = Settle::Release;
        let released = ask(&mut engine, |reply| Call::Settle { key: key(1), token: token(1), action, reply });
        assert_eq!(released.unwrap(), Settled::Applied);
        claim(&mut engine, 2).unwrap();
        let next = Compaction::default().next(engine.view(), NOW, Effort::Compact).unwrap();
        let Next::Drop(segment) = next else { panic!("{next:?}") };
        disk.schedule_fault(Operation::Sync, 0, Fault::Io);
        ask(&mut engine, |reply| Call::Drop { segment, reply }).unwrap_err();
        let disk = disk.kill();
        disk.crash_after(changes);
        drop(start(&disk));
        let disk = disk.restart();
        let engine = start(&disk).unwrap_or_else(|error| panic!("seed {seed}, {changes}: {error}"));
        assert!(!has(&engine, 1) && has(&engine, 2), "seed {seed}, {changes}");
    }
}

#[test]
fn last_segment_may_end_anywhere() {
    let disk = SimulatedDisk::new(1);
    let mut engine = start(&disk).unwrap();
    claim(&mut engine, 1).unwrap();
    let last = "00000001.log";
    let length = read_all(&disk, last).unwrap().unwrap().len();
    for end in 0..length {
        let copy = SimulatedDisk::new(2);
        for (name, _) in disk.files() {
            let bytes = read_all(&disk, &name).unwrap().unwrap();
            let bytes = if name == last { &bytes[..end] } else { &bytes[..] };
            copy.create(&name).unwrap().write_at(bytes, 0).unwrap();
        }
        // What was acknowledged is either there, or missed.
        if let Ok(engine) = start(&copy) {
            assert!(has(&engine, 1), "cut to {end} bytes");
        }
    }
}

fn cases(seeds: u64, changes: u64, later: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    let pairs =
        move |seed| (0..changes).flat_map(move |change| (0..later).map(move |late| (seed, change, late)));
    (0..seeds).flat_map(pairs)
}
