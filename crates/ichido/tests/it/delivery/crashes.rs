//! Senders that are killed, and two senders on one data directory. The receiver's counts are the oracle.

use std::time::Duration;

use ichido_testkit::process::Process;
use ichido_testkit::receiver::Reply;
use ichido_testkit::wait::eventually;

use super::Fixture;

#[test]
fn batch_without_a_response_is_resent_by_the_next_process_and_counted_once() {
    let fixture = Fixture::new();
    // The batch is counted, but the sender is killed before it reads the response.
    fixture.receiver.on_batch(|_| Reply::AcceptAndDelay(Duration::from_secs(20)));
    let file = fixture.input(0..1);
    let mut process = Process::start(&mut fixture.command(&["send", file.to_str().unwrap()])).unwrap();
    eventually("the request", || (fixture.receiver.batch_count() > 0).then_some(()));
    process.kill();
    eventually("the record to be counted", || (fixture.receiver.record_count() == 1).then_some(()));
    assert!(fixture.files("spool").is_empty(), "the killed process still holds the batch in .inflight");
    fixture.receiver.on_batch(|_| Reply::Accept);
    let run = fixture.run(&["spool", "resend", "--json"], &[]);
    run.exits_with(0);
    assert_eq!(run.metrics()["send_duplicate"], 1);
    fixture.receiver.assert_each_record_once(1);
    assert_eq!(std::fs::read_dir(fixture.path().join("data/spool/.inflight")).unwrap().count(), 0);
}

#[test]
fn killed_sender_delivers_each_record_once() {
    let fixture = Fixture::new();
    // Some requests fail, some are slow, and some responses are lost.
    let mut turn = 0u32;
    fixture.receiver.on_batch(move |_| {
        turn += 1;
        match turn % 7 {
            0 | 3 => Reply::Status(503, String::new()),
            1 => Reply::AcceptAndDisconnect,
            2 => Reply::AcceptAndDelay(Duration::from_millis(5)),
            _ => Reply::Accept,
        }
    });
    let file = fixture.input(0..400);
    let settings = [("BATCH_SIZE", "4"), ("RETRY_BACKOFF_MS", "1")];
    for round in 0..12u64 {
        let mut command = fixture.command(&["send", file.to_str().unwrap()]);
        let mut process = Process::start(command.envs(settings)).unwrap();
        std::thread::sleep(Duration::from_millis(10 + 23 * round));
        process.kill();
    }
    fixture.receiver.on_batch(|_| Reply::Accept);
    fixture.run(&["send", file.to_str().unwrap()], &settings).exits_with(0);
    fixture.receiver.assert_each_record_once(400);
    assert!(fixture.files("spool").is_empty() && fixture.files("failed").is_empty());
    assert_eq!(std::fs::read_dir(fixture.path().join("data/spool/.inflight")).unwrap().count(), 0);
}

#[test]
fn concurrent_resends_send_each_batch_once() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|_| Reply::Status(503, String::new()));
    fixture.send(60, &[("BATCH_SIZE", "1"), ("MAX_RETRIES", "0")]).exits_with(3);
    let requests_before = fixture.receiver.batch_count();
    fixture.receiver.on_batch(|_| Reply::AcceptAndDelay(Duration::from_millis(3)));
    let start = || Process::start(&mut fixture.command(&["spool", "resend"])).unwrap();
    let mut both = [start(), start()];
    both.iter_mut().for_each(|process| {
        process.exit_code();
    });
    fixture.receiver.assert_each_record_once(60);
    assert_eq!(fixture.receiver.batch_count() - requests_before, 60, "no batch is sent by both processes");
}
