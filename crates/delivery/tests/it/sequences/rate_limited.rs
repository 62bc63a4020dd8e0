//! A receiver that accepts a limited number of requests per second.

use std::time::Duration;

use ichido_delivery::store::{BatchDir, Layout};

use super::actions::{Action, Overlap, Scenario};
use super::world::World;

const BATCHES: usize = 300;

#[test]
fn all_batches_are_delivered_in_one_run_and_few_requests_are_rejected() {
    let mut world = World::new(Scenario::default());
    world.receiver.state().requests_per_second_max = Some(5);
    world.send_many(BATCHES);
    let layout = Layout::new(&world.data());
    assert_eq!((layout.count(BatchDir::Spool).unwrap(), layout.count(BatchDir::Failed).unwrap()), (0, 0));
    let state = world.receiver.state();
    assert_eq!(state.counts.len(), BATCHES);
    assert!(state.counts.values().all(|count| *count == 1));
    let (asked, limited) = (state.seen.len(), state.limited.len());
    assert_eq!(asked, BATCHES + limited);
    assert!(limited * 10 <= asked, "{limited} of {asked} requests were refused");
    // Nothing is sent during a pause, and requests are spread after it.
    for pause in &state.limited {
        let until = *pause + Duration::from_secs(1);
        assert!(!state.seen.iter().any(|(at, _)| at > pause && *at < until), "a request within the pause");
    }
    let first = state.limited[0];
    let later: Vec<Duration> = state.seen.iter().map(|(at, _)| *at).filter(|at| *at > first).collect();
    let closest = later.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
    assert!(closest > Duration::from_millis(100), "a burst: {closest:?}");
}

#[test]
fn receiver_that_rejects_everything_is_soon_left_alone() {
    // MAX_RETRIES is 2: three requests, a little more than a second apart. Those that are under way together count once.
    left_alone(Overlap { concurrency: 1, latency_ms: 50 }, 3);
    left_alone(Overlap { concurrency: 4, latency_ms: 50 }, 3 + 3);
}

fn left_alone(overlap: Overlap, requests: usize) {
    let mut world = World::new(Scenario { overlap, ..Scenario::default() });
    world.receiver.state().requests_per_second_max = Some(0);
    let begun = world.steady();
    world.send_many(50);
    assert_eq!(world.receiver.state().seen.len(), requests);
    let took = world.steady() - begun;
    assert!(took < Duration::from_secs(10), "{took:?}");
    let layout = Layout::new(&world.data());
    let waiting = layout.oldest(BatchDir::Spool, None, 100).unwrap();
    assert_eq!(waiting.len(), 50);
    for listed in &waiting {
        let stored = layout.read(BatchDir::Spool, listed).unwrap().unwrap();
        assert_eq!(stored.retry_count, 0, "no failed pass is counted");
    }
    // Nor do later passes count, because they only probe.
    world.play(&Action::Wait(60));
    world.play(&Action::Pass);
    let was_counted = |listed| layout.read(BatchDir::Spool, listed).unwrap().unwrap().retry_count > 0;
    assert_eq!(waiting.iter().filter(|listed| was_counted(listed)).count(), 0, "a probe does not count");
    world.receiver.state().requests_per_second_max = None;
    world.play(&Action::Wait(60));
    world.play(&Action::Pass);
    assert_eq!(world.receiver.state().counts.len(), 50);
}

#[test]
fn long_pause_spools_the_rest_without_further_requests() {
    let mut world = World::new(Scenario::default());
    world.play(&Action::Script(vec![super::receiver::Behavior::RetryAfter(503, 3_600)]));
    world.send_many(20);
    assert_eq!(world.receiver.state().seen.len(), 1);
    assert_eq!(Layout::new(&world.data()).count(BatchDir::Spool).unwrap(), 20);
    world.play(&Action::Wait(1_800));
    world.play(&Action::Pass);
    assert_eq!(world.receiver.state().seen.len(), 1, "the whole lane pauses");
    world.play(&Action::Wait(1_800));
    world.play(&Action::Pass);
    assert_eq!(world.receiver.state().counts.len(), 20);
}
