//! kill -9, a receiver that fails, and two exports at once. The generator's books are the oracle.

use super::receiver::Habit;
use super::{ALL_DAYS, Stage};

fn killed_at_random(habit: Habit) {
    let mut stage = Stage::new(habit);
    stage.settings("mode = \"per_model\"");
    stage.dify.generate(3, 2..=7, 300, "UTC");
    stage.killed_again_and_again();
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
    let run = stage.run(&ALL_DAYS, &[]);
    run.ends_with(2);
    assert!(run.last().contains("process 4711 since 2025-11-29"), "{}", run.last());
    drop(lock);
    stage.run(&ALL_DAYS, &[]).ends_with(0);
}
