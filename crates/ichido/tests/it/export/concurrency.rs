//! Two exports at the same time.

use super::receiver::ReceiverKind;
use super::{ALL_DAYS, Stage};

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
