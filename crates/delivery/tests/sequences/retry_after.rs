//! A receiver that asks to be left alone for longer than anyone may.

use std::fs;

use ichido_delivery::store::{BatchDir, Layout};

use crate::actions::{Move, Rules};
use crate::receiver::Says;
use crate::world::{World, id};

const HOUR: u32 = 60 * 60;
const DAY: u32 = 24 * HOUR;

/// A world whose receiver put the first batch off by more than a hundred years.
fn put_off() -> World {
    let mut world = World::new(Rules::default());
    world.play(&Move::Script(vec![Says::RetryAfter(429, u32::MAX)]));
    world.play(&Move::Send(0));
    world.finish();
    world.check(&Move::Send(0));
    assert_eq!(Layout::new(&world.data()).count(BatchDir::Spool).unwrap(), 1);
    world
}

fn arrived(world: &World) -> bool {
    world.receiver.books().counts.contains_key(&id(0, 0))
}

#[test]
fn a_batch_is_put_off_by_a_day_at_most() {
    let mut world = put_off();
    world.play(&Move::Wait(DAY - HOUR));
    world.play(&Move::Pass);
    assert!(!arrived(&world), "the receiver is left alone until then");
    world.play(&Move::Wait(HOUR));
    world.play(&Move::Pass);
    assert!(arrived(&world));
    world.heal();
}

#[test]
fn a_file_that_waits_for_the_year_9999_is_sent() {
    let mut world = put_off();
    let spool = Layout::new(&world.data()).dir(BatchDir::Spool);
    let files = fs::read_dir(&spool).unwrap().map(|entry| entry.unwrap().path());
    let path = files.into_iter().find(|path| path.is_file()).unwrap();
    let mut file: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let fields = file.as_object_mut().unwrap();
    fields.remove("format");
    fields.remove("checksum");
    fields["notBefore"] = "9999-12-30T22:00:00Z".into();
    fs::write(&path, file.to_string()).unwrap();
    world.play(&Move::Kill);
    world.play(&Move::Pass);
    assert!(arrived(&world));
    world.heal();
}

#[test]
fn retention_applies_to_what_was_put_off() {
    let mut world = put_off();
    world.play(&Move::Wait(6 * DAY + 12 * HOUR));
    world.play(&Move::Script(vec![Says::RetryAfter(503, DAY)]));
    world.play(&Move::Pass);
    // It is to wait for another ten hours, but no longer may.
    world.play(&Move::Wait(14 * HOUR));
    world.play(&Move::Pass);
    world.check(&Move::Pass);
    let layout = Layout::new(&world.data());
    assert_eq!((layout.count(BatchDir::Spool).unwrap(), layout.count(BatchDir::Failed).unwrap()), (0, 1));
    assert_eq!(world.failed_told(), 1);
    let listed = layout.oldest(BatchDir::Failed, None, 1).unwrap().remove(0);
    let stored = layout.read(BatchDir::Failed, &listed).unwrap().unwrap();
    assert!(stored.last_error.unwrap().contains("SPOOL_RETENTION_DAYS"));
    world.heal();
}
