//! SIGKILL, a failing receiver, and two concurrent exports. The expected totals come from the usage generator.

use super::receiver::ReceiverKind;
use super::{ALL_DAYS, Stage};

fn assert_totals_survive_kills(kind: ReceiverKind) {
    let mut stage = Stage::new(kind);
    stage.settings("mode = \"per_model\"");
    stage.dify.generate(3, 2..=7, 300, "UTC");
    stage.export_despite_kills();
    assert_eq!(stage.receiver.totals(), stage.dify.totals, "exact totals by day and model");
    assert!(stage.files("spool").is_empty() && stage.files("failed").is_empty());
}

#[test]
fn killed_export_counts_every_token_once() {
    assert_totals_survive_kills(ReceiverKind::FirstWins);
}

#[test]
fn killed_export_gives_an_upserting_receiver_the_same_totals() {
    assert_totals_survive_kills(ReceiverKind::Upsert);
}

#[test]
fn concurrent_export_is_refused_and_names_the_running_process() {
    let stage = Stage::new(ReceiverKind::FirstWins);
    let dir = stage.path().join("data/export");
    std::fs::create_dir_all(&dir).unwrap();
    let lock = std::fs::File::create(dir.join("lock")).unwrap();
    std::fs::write(dir.join("lock"), "process 4711 since 2025-11-29T00:00:00Z\n").unwrap();
    lock.lock().unwrap();
    let run = stage.run(&ALL_DAYS, &[]);
    run.exits_with(2);
    assert!(run.last_line().contains("process 4711 since 2025-11-29"), "{}", run.last_line());
    drop(lock);
    stage.run(&ALL_DAYS, &[]).exits_with(0);
}
