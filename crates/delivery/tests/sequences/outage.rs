//! A receiver that is down for days.

use std::time::Duration;

use ichido_delivery::store::{BatchDir, Layout};

use crate::actions::{BATCHES, Move, Rules};
use crate::world::{World, id};

const MINUTES: u32 = 3 * 24 * 60;

#[test]
fn after_three_days_what_waits_goes_oldest_first_within_the_rate_and_nothing_was_given_up() {
    let mut world = World::new(Rules { rate: 2, ..Rules::default() });
    world.receiver.books().is_down = true;
    for batch in 0..BATCHES.len() {
        world.play(&Move::Send(batch));
        world.finish();
        world.play(&Move::Wait(60));
    }
    for _ in 0..MINUTES / 10 {
        world.play(&Move::Pass);
        world.check(&Move::Pass);
        world.play(&Move::Wait(600));
    }
    let layout = Layout::new(&world.data());
    let waiting = layout.count(BatchDir::Spool).unwrap();
    assert_eq!((waiting, layout.count(BatchDir::Failed).unwrap()), (BATCHES.len() as u64, 0));
    let tried = std::mem::take(&mut world.receiver.books().seen);
    // One request for each pass, and the retries of the batches that found out.
    assert!(tried.len() < 450, "{}", tried.len());
    has_jitter(&tried);

    world.receiver.books().is_down = false;
    world.play(&Move::Pass);
    let drained = world.receiver.books().seen.clone();
    let order: Vec<String> = drained.iter().map(|(_, id)| id.clone()).collect();
    assert_eq!(order, (0..BATCHES.len()).map(|batch| id(batch, 0)).collect::<Vec<_>>());
    for pair in drained.windows(2) {
        assert!(pair[1].0 - pair[0].0 >= Duration::from_millis(500), "{drained:?}");
    }
    world.heal();
}

/// The first batch was tried three times: pauses of one and two seconds, stretched by chance, never shortened.
fn has_jitter(tried: &[(Duration, String)]) {
    let first: Vec<Duration> = tried.iter().take(3).map(|(at, _)| *at).collect();
    for (pair, seconds) in first.windows(2).zip([1, 2]) {
        let (pause, plain) = (pair[1] - pair[0], Duration::from_secs(seconds));
        assert!(pause > plain && pause <= plain * 3 / 2 + Duration::from_millis(2), "{pause:?}");
    }
}
