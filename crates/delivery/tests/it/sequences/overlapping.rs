//! Several requests under way.

use std::time::Duration;

use ichido_delivery::store::{BatchDir, Layout};

use super::actions::{Action, Overlap, Scenario};
use super::receiver::Behavior;
use super::world::World;

const LATENCY: Duration = Duration::from_millis(50);

fn world(concurrency: usize) -> World {
    let overlap = Overlap { concurrency, latency_ms: 50 };
    World::new(Scenario { overlap, ..Scenario::default() })
}

fn spooled(world: &World) -> u64 {
    Layout::new(&world.data()).count(BatchDir::Spool).unwrap()
}

/// When each request arrived, by the steady clock.
fn arrivals(world: &World) -> Vec<Duration> {
    world.receiver.state().seen.iter().map(|(at, _)| *at).collect()
}

#[test]
fn as_many_requests_are_under_way_as_allowed() {
    for (concurrency, rounds) in [(1, 32), (4, 8), (16, 2)] {
        let mut world = world(concurrency);
        let begun = world.steady();
        world.send_many(32);
        let took = world.steady() - begun;
        assert_eq!(world.receiver.state().most_under_way, concurrency);
        assert!(took >= LATENCY * rounds && took < LATENCY * (rounds + 1), "{concurrency}: {took:?}");
        assert_eq!((world.receiver.state().counts.len(), spooled(&world)), (32, 0));
    }
}

#[test]
fn same_batch_is_never_under_way_twice() {
    let mut world = world(4);
    world.play(&Action::SendGroup(vec![1, 1, 2, 1]));
    world.finish();
    let state = world.receiver.state();
    assert_eq!(state.seen.len(), 4);
    let first: Vec<Duration> = state.seen.iter().filter(|(_, id)| id == "e1-0").map(|(at, _)| *at).collect();
    assert!(first.windows(2).all(|pair| pair[1] - pair[0] >= LATENCY), "{first:?}");
    assert!(state.counts.values().all(|count| *count == 1));
}

#[test]
fn success_of_an_older_request_does_not_reopen_a_held_lane() {
    let mut world = world(4);
    let refused = Behavior::Status(401);
    world.play(&Action::Script(vec![refused, Behavior::Accept, refused, refused]));
    world.send_many(20);
    assert_eq!(arrivals(&world).len(), 4, "only those that were under way");
    assert!(world.held().unwrap().contains("401"));
    assert_eq!((world.receiver.state().counts.len(), spooled(&world)), (1, 19));
    // Until an operator acts, a probe is the only request under way.
    world.receiver.state().accepts_token = false;
    world.play(&Action::Wait(301));
    world.play(&Action::Pass);
    assert_eq!(arrivals(&world).len(), 5, "one probe");
    world.receiver.state().accepts_token = true;
    world.play(&Action::Wait(301));
    world.play(&Action::Pass);
    assert_eq!((world.held(), spooled(&world)), (None, 0));
    let after: Vec<Duration> = arrivals(&world).split_off(5);
    assert!(after[1] - after[0] >= LATENCY, "nothing is sent before the probe has succeeded: {after:?}");
    assert_eq!(after[1], after[2], "then requests overlap again");
    world.recover();
}

#[test]
fn outage_trips_the_lane_and_ends_with_one_probe() {
    let mut world = world(4);
    world.receiver.state().is_down = true;
    world.send_many(40);
    // MAX_RETRIES is 2: at most three requests for each batch that could wait for a retry or was under way.
    let tried = arrivals(&world).len();
    assert!((9..=3 * (16 + 4)).contains(&tried), "{tried}");
    assert_eq!(spooled(&world), 40);
    world.play(&Action::Wait(60));
    world.play(&Action::Pass);
    assert_eq!(arrivals(&world).len(), tried + 1, "one probe, and the rest waits");
    world.receiver.state().is_down = false;
    world.play(&Action::Wait(60));
    world.play(&Action::Pass);
    assert_eq!((world.receiver.state().counts.len(), spooled(&world)), (40, 0));
    world.recover();
}

#[test]
fn one_overload_counts_once_and_nothing_is_sent_during_the_pause() {
    let mut world = world(4);
    world.play(&Action::Script(vec![Behavior::RetryAfter(429, 5); 4]));
    world.send_many(40);
    assert_eq!((world.receiver.state().counts.len(), spooled(&world)), (40, 0), "the lane stays open");
    let arrivals = arrivals(&world);
    assert_eq!(arrivals[0], arrivals[3], "all four were under way");
    assert!(arrivals[4] - arrivals[3] >= Duration::from_secs(5), "{arrivals:?}");
    assert!(arrivals[5..].windows(2).all(|pair| pair[0] < pair[1]), "requests are spread after the pause");
}

#[test]
fn rate_is_kept_whatever_is_under_way() {
    let overlap = Overlap { concurrency: 4, latency_ms: 2_000 };
    let mut world = World::new(Scenario { overlap, rate: 2, ..Scenario::default() });
    world.send_many(20);
    let arrivals = arrivals(&world);
    assert!(arrivals.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_millis(500)), "{arrivals:?}");
    assert_eq!(world.receiver.state().most_under_way, 4);
}

#[test]
fn due_retries_go_before_new_batches() {
    let mut world = world(2);
    world.play(&Action::Script(vec![Behavior::Status(503)]));
    world.play(&Action::Send(0));
    world.play(&Action::Wait(1));
    world.play(&Action::Send(1));
    world.play(&Action::Wait(60));
    world.play(&Action::SendGroup(vec![2, 3, 4]));
    world.finish();
    let state = world.receiver.state();
    let order: Vec<&str> = state.seen.iter().map(|(_, id)| id.as_str()).collect();
    assert_eq!(order, ["e0-0", "e1-0", "e0-0", "e2-0", "e3-0", "e4-0"]);
}

#[test]
fn requests_under_way_may_end_when_the_process_stops() {
    let mut world = world(4);
    world.play(&Action::SendGroup(vec![0, 1, 2, 3]));
    world.play(&Action::Stop);
    assert_eq!((arrivals(&world).len(), spooled(&world)), (4, 0), "their responses were read");
    world.recover();
}
