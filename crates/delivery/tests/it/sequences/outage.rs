//! A receiver that is down for days.

use std::time::Duration;

use ichido_delivery::store::{BatchDir, Layout};

use super::actions::{Action, BATCHES, Scenario};
use super::world::{World, id};

const MINUTES: u32 = 3 * 24 * 60;

#[test]
fn after_a_three_day_outage_spooled_batches_are_sent_oldest_first_within_the_rate() {
    let mut world = World::new(Scenario { rate: 2, ..Scenario::default() });
    world.receiver.state().is_down = true;
    for batch in 0..BATCHES.len() {
        world.play(&Action::Send(batch));
        world.finish();
        world.play(&Action::Wait(60));
    }
    for _ in 0..MINUTES / 10 {
        world.play(&Action::Pass);
        world.check(&Action::Pass);
        world.play(&Action::Wait(600));
    }
    let layout = Layout::new(&world.data());
    let waiting = layout.count(BatchDir::Spool).unwrap();
    assert_eq!((waiting, layout.count(BatchDir::Failed).unwrap()), (BATCHES.len() as u64, 0));
    let tried = std::mem::take(&mut world.receiver.state().seen);
    // One request per pass, and the retries of the batches that tripped the lane.
    assert!(tried.len() < 450, "{}", tried.len());
    has_jitter(&tried);

    world.receiver.state().is_down = false;
    world.play(&Action::Pass);
    let drained = world.receiver.state().seen.clone();
    let order: Vec<String> = drained.iter().map(|(_, id)| id.clone()).collect();
    assert_eq!(order, (0..BATCHES.len()).map(|batch| id(batch, 0)).collect::<Vec<_>>());
    for pair in drained.windows(2) {
        assert!(pair[1].0 - pair[0].0 >= Duration::from_millis(500), "{drained:?}");
    }
    world.recover();
}

/// The first batch was tried three times, after pauses of one and two seconds plus jitter.
fn has_jitter(tried: &[(Duration, String)]) {
    let first: Vec<Duration> = tried.iter().take(3).map(|(at, _)| *at).collect();
    for (pair, seconds) in first.windows(2).zip([1, 2]) {
        let (pause, plain) = (pair[1] - pair[0], Duration::from_secs(seconds));
        assert!(pause > plain && pause <= plain * 3 / 2 + Duration::from_millis(2), "{pause:?}");
    }
}
