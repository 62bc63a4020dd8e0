//! kill -9, and two processes on one directory. The receiver's ledger is the oracle.

use std::time::Duration;

use super::Stage;
use super::receiver::Reply;
use crate::support::{Process, eventually};

#[test]
fn a_batch_whose_answer_never_came_is_sent_by_the_next_process_and_counted_once() {
    let stage = Stage::new();
    // Taken, and the sender dies before it reads the answer.
    stage.receiver.does(|_| Reply::TakeSlowly(Duration::from_secs(20)));
    let file = stage.input(0..1);
    let mut process = Process::start(&mut stage.command(&["send", file.to_str().unwrap()]));
    eventually("the request", || (!stage.receiver.seen().is_empty()).then_some(()));
    process.kill();
    eventually("the effect", || (stage.receiver.counts().len() == 1).then_some(()));
    assert!(stage.files("spool").is_empty(), "it is in the hands of a dead process");
    stage.receiver.does(|_| Reply::Take);
    let run = stage.run(&["spool", "resend", "--json"], &[]);
    run.ends_with(0);
    assert_eq!(run.metrics()["sendDuplicate"], 1);
    stage.receiver.has_each_once(1);
    assert_eq!(std::fs::read_dir(stage.path().join("data/spool/.inflight")).unwrap().count(), 0);
}

#[test]
fn whenever_the_sender_is_killed_each_record_is_counted_once() {
    let stage = Stage::new();
    // Every third request fails, some are slow, some answers are lost.
    let mut turn = 0u32;
    stage.receiver.does(move |_| {
        turn += 1;
        match turn % 7 {
            0 | 3 => Reply::Say(503, String::new()),
            1 => Reply::TakeAndHangUp,
            2 => Reply::TakeSlowly(Duration::from_millis(5)),
            _ => Reply::Take,
        }
    });
    let file = stage.input(0..400);
    let settings = [("BATCH_SIZE", "4"), ("RETRY_BACKOFF_MS", "1")];
    for round in 0..12u64 {
        let mut command = stage.command(&["send", file.to_str().unwrap()]);
        let mut process = Process::start(command.envs(settings));
        std::thread::sleep(Duration::from_millis(10 + 23 * round));
        process.kill();
    }
    stage.receiver.does(|_| Reply::Take);
    stage.run(&["send", file.to_str().unwrap()], &settings).ends_with(0);
    stage.receiver.has_each_once(400);
    assert!(stage.files("spool").is_empty() && stage.files("failed").is_empty());
    assert_eq!(std::fs::read_dir(stage.path().join("data/spool/.inflight")).unwrap().count(), 0);
}

#[test]
fn two_processes_share_the_work_and_send_nothing_twice() {
    let stage = Stage::new();
    stage.receiver.does(|_| Reply::Say(503, String::new()));
    stage.send(60, &[("BATCH_SIZE", "1"), ("MAX_RETRIES", "0")]).ends_with(3);
    let before = stage.receiver.seen().len();
    stage.receiver.does(|_| Reply::TakeSlowly(Duration::from_millis(3)));
    let start = || Process::start(&mut stage.command(&["spool", "resend"]));
    let mut both = [start(), start()];
    both.iter_mut().for_each(|process| {
        process.exit_code();
    });
    stage.receiver.has_each_once(60);
    assert_eq!(stage.receiver.seen().len() - before, 60, "no batch was sent by both");
}
