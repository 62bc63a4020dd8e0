//! Many instances, one ledger, trouble everywhere: nothing is handled twice, and what is missing is known.
//!
//! Eight processes get the same ten thousand events, each in an order of its own. Most events are marked, in batches;
//! the others are claimed one by one, and completed. Replies get lost, and processes are killed and started again. Who
//! marks asks again with the same nonces. Who claims dies with its process, and leaves open what it held.

mod claim_worker;
mod mark_worker;
mod seeded_random;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use self::claim_worker::LeftOpen;
use self::seeded_random::Dice;
use super::caller::Caller;
use super::instance::Instance;
use super::{DYNOXIDE, created, dynamodb, require_env, unique};

const INSTANCES: usize = 8;
const EVENTS: usize = 10_000;
/// So many of the events are claimed. A claim is a call of its own, and a completion another.
const CLAIMED: usize = 240;

/// What all instances share.
struct World {
    ledger: String,
    seed: u64,
    /// Where each instance listens now; a new process listens elsewhere.
    places: Vec<Mutex<SocketAddr>>,
    /// How often each event was handled.
    handled: Vec<AtomicU32>,
}

impl World {
    fn handle(&self, event: usize) {
        self.handled[event].fetch_add(1, Ordering::SeqCst);
    }

    fn handled(&self, event: usize) -> u32 {
        self.handled[event].load(Ordering::SeqCst)
    }

    fn place(&self, instance: usize) -> SocketAddr {
        *self.places[instance].lock().unwrap()
    }

    /// Chance for one worker: the same in every run with the same seed.
    fn dice(&self, worker: usize) -> Dice {
        Dice::new(self.seed.wrapping_add(worker as u64))
    }
}

fn key(event: usize) -> String {
    format!("event-{event:05}")
}

fn event(key: &str) -> usize {
    key.strip_prefix("event-").unwrap().parse().unwrap()
}

fn each_event_is_handled_once_or_in_doubt(ledger: String) {
    let seed = std::env::var("ICHIDO_TEST_SEED").map_or(20_260_610, |seed| seed.parse().unwrap());
    say(&format!("ICHIDO_TEST_SEED={seed}"));
    let started = Instant::now();
    let instances: Vec<Instance> = (0..INSTANCES).map(|_| Instance::start(&ledger)).collect();
    let world = World {
        ledger,
        seed,
        places: instances.iter().map(|instance| Mutex::new(instance.address)).collect(),
        handled: (0..EVENTS).map(|_| AtomicU32::new(0)).collect(),
    };
    let (left, survivors) = thread::scope(|scope| {
        let marking: Vec<_> = (0..INSTANCES)
            .map(|number| {
                scope.spawn({
                    let world = &world;
                    move || mark_worker::work(world, number)
                })
            })
            .collect();
        let claiming: Vec<_> = instances
            .into_iter()
            .enumerate()
            .map(|(number, instance)| {
                scope.spawn({
                    let world = &world;
                    move || claim_worker::work(world, number, instance)
                })
            })
            .collect();
        marking.into_iter().for_each(|worker| worker.join().unwrap());
        say(&format!("marked after {:.1} s", started.elapsed().as_secs_f64()));
        let mut left = LeftOpen::default();
        let mut survivors = Vec::new();
        for worker in claiming {
            let (some, instance) = worker.join().unwrap();
            left.join(some);
            survivors.push(instance);
        }
        (left, survivors)
    });
    for event in CLAIMED..EVENTS {
        assert_eq!(world.handled(event), 1, "{}: marked, so handled once", key(event));
    }
    let doubted = judge_claims(&world, &left, &mut survivors[0].caller());
    say(&format!("{doubted} of {CLAIMED} claims are in doubt; {:.1} s", started.elapsed().as_secs_f64()));
}

/// Every claim is done, and its effect happened; or it is listed as in doubt, because a kill left it open.
fn judge_claims(world: &World, left: &LeftOpen, caller: &mut Caller) -> usize {
    let all: BTreeSet<usize> = (0..CLAIMED).collect();
    let (done, doubted) = (listed(caller, "done"), listed(caller, "in-doubt"));
    assert_eq!(listed(caller, "running"), BTreeSet::new());
    assert_eq!(&done | &doubted, all, "nothing is missing");
    assert!(left.surely.is_subset(&doubted), "what was left open is listed");
    let open: BTreeSet<usize> = &left.surely | &left.perhaps;
    assert!(doubted.is_subset(&open), "and nothing else is: {:?}", &doubted - &open);
    assert!(left.surely.len() >= INSTANCES, "kills left something open");
    for event in all {
        let times = world.handled(event);
        assert!(times <= 1, "{}: handled {times} times", key(event));
        assert!(times == 1 || doubted.contains(&event), "{}: done, and not handled", key(event));
    }
    assert!(left.surely.iter().any(|event| world.handled(*event) == 0), "some had not happened");
    assert!(left.surely.iter().any(|event| world.handled(*event) == 1), "some had");
    doubted.len()
}

fn listed(caller: &mut Caller, state: &str) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut cursor = String::new();
    loop {
        let page = caller.get(&format!("/v1/claims?state={state}&limit=200{cursor}")).unwrap();
        assert_eq!(page.status, 200, "{}", page.text());
        let page = page.json();
        found
            .extend(page["claims"].as_array().unwrap().iter().map(|one| event(one["key"].as_str().unwrap())));
        let Some(next) = page["cursor"].as_str() else { return found };
        let next: String = url::form_urlencoded::byte_serialize(next.as_bytes()).collect();
        cursor = format!("&cursor={next}");
    }
}

/// Shown if the test fails.
#[allow(clippy::print_stdout, reason = "what a failed test needs to be run again")]
fn say(words: &str) {
    println!("{words}");
}

#[test]
fn on_dynamodb() {
    each_event_is_handled_once_or_in_doubt(created(dynamodb(DYNOXIDE)));
}

#[test]
fn on_postgres() {
    let ledger = format!("{}?schema=t_{}&pool=4", require_env("ICHIDO_TEST_POSTGRES_URL"), unique());
    each_event_is_handled_once_or_in_doubt(created(ledger));
}

#[test]
fn on_redis() {
    let ledger = format!("{}?prefix=t_{}:", require_env("ICHIDO_TEST_REDIS_URL"), unique());
    each_event_is_handled_once_or_in_doubt(created(ledger));
}
