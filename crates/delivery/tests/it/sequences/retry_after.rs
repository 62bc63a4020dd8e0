//! A receiver that asks for a longer pause than it may have.

use std::fs;

use ichido_delivery::store::{BatchDir, Layout};

use super::actions::{Action, Scenario};
use super::receiver::Behavior;
use super::world::{World, id};

const HOUR: u32 = 60 * 60;
const DAY: u32 = 24 * HOUR;

/// A world whose receiver deferred the first batch by more than a hundred years.
fn deferred() -> World {
    let mut world = World::new(Scenario::default());
    world.play(&Action::Script(vec![Behavior::RetryAfter(429, u32::MAX)]));
    world.play(&Action::Send(0));
    world.finish();
    world.check(&Action::Send(0));
    assert_eq!(Layout::new(&world.data()).count(BatchDir::Spool).unwrap(), 1);
    world
}

fn arrived(world: &World) -> bool {
    world.receiver.state().counts.contains_key(&id(0, 0))
}

#[test]
fn batch_is_deferred_by_a_day_at_most() {
    let mut world = deferred();
    world.play(&Action::Wait(DAY - HOUR));
    world.play(&Action::Pass);
    assert!(!arrived(&world), "the receiver is left alone until then");
    world.play(&Action::Wait(HOUR));
    world.play(&Action::Pass);
    assert!(arrived(&world));
    world.recover();
}

#[test]
fn file_deferred_to_the_year_9999_is_sent() {
    let mut world = deferred();
    let spool = Layout::new(&world.data()).dir(BatchDir::Spool);
    let files = fs::read_dir(&spool).unwrap().map(|entry| entry.unwrap().path());
    let path = files.into_iter().find(|path| path.is_file()).unwrap();
    let mut file: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let fields = file.as_object_mut().unwrap();
    fields.remove("format");
    fields.remove("checksum");
    fields["notBefore"] = "9999-12-30T22:00:00Z".into();
    fs::write(&path, file.to_string()).unwrap();
    world.play(&Action::Kill);
    world.play(&Action::Pass);
    assert!(arrived(&world));
    world.recover();
}

#[test]
fn retention_applies_to_deferred_batches() {
    let mut world = deferred();
    world.play(&Action::Wait(6 * DAY + 12 * HOUR));
    world.play(&Action::Script(vec![Behavior::RetryAfter(503, DAY)]));
    world.play(&Action::Pass);
    // The batch is deferred for another ten hours, but exceeds its retention.
    world.play(&Action::Wait(14 * HOUR));
    world.play(&Action::Pass);
    world.check(&Action::Pass);
    let layout = Layout::new(&world.data());
    assert_eq!((layout.count(BatchDir::Spool).unwrap(), layout.count(BatchDir::Failed).unwrap()), (0, 1));
    assert_eq!(world.failed_reported(), 1);
    let listed = layout.oldest(BatchDir::Failed, None, 1).unwrap().remove(0);
    let stored = layout.read(BatchDir::Failed, &listed).unwrap().unwrap();
    assert!(stored.last_error.unwrap().contains("SPOOL_RETENTION_DAYS"));
    world.recover();
}
