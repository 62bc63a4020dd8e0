//! A receiver that takes only so many requests in a second.

use std::time::Duration;

use ichido_delivery::store::{BatchDir, Layout};

use crate::actions::{Move, Rules};
use crate::world::World;

const BATCHES: usize = 300;

#[test]
fn all_batches_arrive_in_one_run_and_few_requests_are_refused() {
    let mut world = World::new(Rules::default());
    world.receiver.books().most_per_second = Some(5);
    world.send_many(BATCHES);
    let layout = Layout::new(&world.data());
    assert_eq!((layout.count(BatchDir::Spool).unwrap(), layout.count(BatchDir::Failed).unwrap()), (0, 0));
    let books = world.receiver.books();
    assert_eq!(books.counts.len(), BATCHES);
    assert!(books.counts.values().all(|count| *count == 1));
    let (asked, limited) = (books.seen.len(), books.limited.len());
    assert_eq!(asked, BATCHES + limited);
    assert!(limited * 10 <= asked, "{limited} of {asked} requests were refused");
    // During a pause nothing is sent, and after it requests are spread.
    for pause in &books.limited {
        let until = *pause + Duration::from_secs(1);
        assert!(!books.seen.iter().any(|(at, _)| at > pause && *at < until), "a request within the pause");
    }
    let first = books.limited[0];
    let later: Vec<Duration> = books.seen.iter().map(|(at, _)| *at).filter(|at| *at > first).collect();
    let closest = later.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
    assert!(closest > Duration::from_millis(100), "a burst: {closest:?}");
}

#[test]
fn a_receiver_that_refuses_everything_is_left_alone_soon() {
    let mut world = World::new(Rules::default());
    world.receiver.books().most_per_second = Some(0);
    let begun = world.steady();
    world.send_many(50);
    // MAX_RETRIES is 2: three requests, a second and a little more apart.
    assert_eq!(world.receiver.books().seen.len(), 3);
    let took = world.steady() - begun;
    assert!(took < Duration::from_secs(10), "{took:?}");
    let layout = Layout::new(&world.data());
    let waiting = layout.oldest(BatchDir::Spool, None, 100).unwrap();
    assert_eq!(waiting.len(), 50);
    for listed in &waiting {
        let stored = layout.read(BatchDir::Spool, listed).unwrap().unwrap();
        assert_eq!(stored.retry_count, 0, "nobody is charged");
    }
    // Nor in the passes that follow, but for the batch that asks.
    world.play(&Move::Wait(60));
    world.play(&Move::Pass);
    let charged = |listed| layout.read(BatchDir::Spool, listed).unwrap().unwrap().retry_count > 0;
    assert_eq!(waiting.iter().filter(|listed| charged(listed)).count(), 0, "a probe is not charged");
    world.receiver.books().most_per_second = None;
    world.play(&Move::Wait(60));
    world.play(&Move::Pass);
    assert_eq!(world.receiver.books().counts.len(), 50);
}

#[test]
fn a_long_pause_sends_the_rest_to_the_spool_without_asking_again() {
    let mut world = World::new(Rules::default());
    world.play(&Move::Script(vec![crate::receiver::Says::RetryAfter(503, 3_600)]));
    world.send_many(20);
    assert_eq!(world.receiver.books().seen.len(), 1);
    assert_eq!(Layout::new(&world.data()).count(BatchDir::Spool).unwrap(), 20);
    world.play(&Move::Wait(1_800));
    world.play(&Move::Pass);
    assert_eq!(world.receiver.books().seen.len(), 1, "the whole lane rests");
    world.play(&Move::Wait(1_800));
    world.play(&Move::Pass);
    assert_eq!(world.receiver.books().counts.len(), 20);
}
