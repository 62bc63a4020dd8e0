//! kill -9, a receiver that fails, and two exports at once. The generator's books are the oracle.

use std::time::Duration;

use super::Stage;
use super::receiver::{Act, Habit};
use crate::support::Process;

const DAYS: [&str; 7] = ["export", "dify", "--json", "--from", "2025-11-01", "--to", "2025-11-08"];

fn killed_at_random(habit: Habit) {
    let mut stage = Stage::new(habit);
    stage.settings("mode = \"per_model\"");
    stage.dify.generate(3, 2..=7, 300, "UTC");
    // Every third request fails, and some answers are lost.
    stage.receiver.does(|turn| match turn % 7 {
        0 | 3 => Act::Say(503),
        1 => Act::CountAndHangUp,
        5 => Act::HangUp,
        _ => Act::Count,
    });
    let settings = [("BATCH_SIZE", "5"), ("RETRY_BACKOFF_MS", "1")];
    for round in 0..10u64 {
        let mut process = Process::start(stage.command(&DAYS).envs(settings));
        std::thread::sleep(Duration::from_millis(20 + 31 * round));
        process.kill();
    }
    stage.receiver.does(|_| Act::Count);
    // What a dead process left in the spool goes first; a newer total would wait for it.
    for _ in 0..2 {
        stage.run(&DAYS, &settings);
    }
    let last = stage.run(&DAYS, &settings);
    last.ends_with(0);
    assert_eq!(last.sum("new"), 0);
    assert_eq!(stage.receiver.books(), stage.dify.books, "equal to the last digit, by day and model");
    assert!(stage.files("spool").is_empty() && stage.files("failed").is_empty());
}

#[test]
fn whenever_the_export_is_killed_each_token_is_counted_once() {
    killed_at_random(Habit::FirstWins);
}

#[test]
fn whenever_the_export_is_killed_a_receiver_that_replaces_has_the_same_totals() {
    killed_at_random(Habit::Upsert);
}

#[test]
fn a_second_export_is_refused_and_told_who_runs() {
    let stage = Stage::new(Habit::FirstWins);
    let dir = stage.path().join("data/export");
    std::fs::create_dir_all(&dir).unwrap();
    let lock = std::fs::File::create(dir.join("lock")).unwrap();
    std::fs::write(dir.join("lock"), "process 4711 since 2025-11-29T00:00:00Z\n").unwrap();
    lock.lock().unwrap();
    let run = stage.run(&DAYS, &[]);
    run.ends_with(2);
    assert!(run.last().contains("process 4711 since 2025-11-29"), "{}", run.last());
    drop(lock);
    stage.run(&DAYS, &[]).ends_with(0);
}
