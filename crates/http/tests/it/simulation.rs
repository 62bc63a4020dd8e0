//! The layer on a ledger on a simulated disk, with crashes: at most one effect per key.
//!
//! Everything is driven by one seed: clients that retry, messages that get lost, an upstream that is slow or fails, and power
//! losses in the middle of the ledger's writes. One runtime in virtual time is one life of the process: a crash ends it
//! with everything in it, except for what is on the disk, what clients have seen, and requests that the upstream has already
//! received. Nobody overrules a doubt here, so a second effect is always a bug.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use ichido_core::{Clock, SeededEntropy, Timestamp};
use ichido_http::{Failure, Route};
use ichido_ledger::simulation::PlantedBug;
use ichido_ledger::simulation::backend::SimulatedLedger;
use ichido_ledger::simulation::disk::SimulatedDisk;
use ichido_ledger::{Ledger, Settings};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::support::{Instance, Received, Upstream, order, route, rules, text};

const SEEDS: u64 = 400;
const KEYS: usize = 6;
const LIVES: u64 = 5;

/// Virtual time, which goes on through crashes.
#[derive(Debug)]
struct VirtualClock {
    base: Duration,
    started: tokio::time::Instant,
}

impl VirtualClock {
    fn elapsed(&self) -> Duration {
        self.base + self.started.elapsed()
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp(1_700_000_000_000 + u64::try_from(self.elapsed().as_millis()).unwrap())
    }

    fn steady(&self) -> Duration {
        self.elapsed()
    }
}

/// What survives a crash of the process: the world around it.
#[derive(Default)]
struct World {
    /// How often the effect of a key happened.
    effects: BTreeMap<String, usize>,
    /// Requests that the upstream has received and not finished.
    received: BTreeMap<String, usize>,
    /// The final response that a client got for a key.
    responses: BTreeMap<String, (StatusCode, String)>,
    doubts: usize,
    crashes: usize,
    /// Why the ledger could not be opened.
    refusal: Option<String>,
}

type Shared<T> = Arc<Mutex<T>>;

/// Draws a number below `bound`.
fn draw(random: &Shared<StdRng>, bound: u64) -> u64 {
    random.lock().unwrap().random_range(0..bound)
}

/// An upstream whose effect happens at some moment between the request and the response.
fn upstream(world: &Shared<World>, random: &Shared<StdRng>) -> Upstream {
    let (world, random) = (world.clone(), random.clone());
    Upstream::new(move |call| {
        let (world, random) = (world.clone(), random.clone());
        async move {
            let key = call.parts.headers["idempotency-key"].to_str().unwrap().to_owned();
            match draw(&random, 20) {
                0 => return Err(Failure::NotSent("connection refused".into())),
                1 => return Ok(text(503, "overloaded")),
                _ => {}
            }
            *world.lock().unwrap().received.entry(key.clone()).or_default() += 1;
            tokio::time::sleep(Duration::from_millis(draw(&random, 200))).await;
            world.lock().unwrap().finish(&key);
            tokio::time::sleep(Duration::from_millis(draw(&random, 200))).await;
            match draw(&random, 20) {
                0 => Err(Failure::Lost("connection reset".into())),
                1 => Ok(text(500, &key)),
                _ => Ok(text(201, &key)),
            }
        }
    })
}

impl World {
    /// The effect of a request that was received happens.
    fn finish(&mut self, key: &str) {
        if let Some(count) = self.received.get_mut(key).filter(|count| **count > 0) {
            *count -= 1;
            *self.effects.entry(key.to_owned()).or_default() += 1;
        }
    }

    /// The process is gone. The upstream does not know that, and may finish what it received.
    fn crash(&mut self, random: &Shared<StdRng>) {
        self.crashes += 1;
        let received: Vec<_> = self.received.iter().map(|(key, count)| (key.clone(), *count)).collect();
        for (key, count) in received {
            for _ in 0..count {
                if draw(random, 2) == 0 {
                    self.finish(&key);
                }
            }
        }
        self.received.clear();
    }

    fn respond(&mut self, key: &str, got: &Received) {
        let problem = got.problem();
        match problem.as_deref() {
            Some("in-doubt" | "answer-lost" | "upstream-timeout") => self.doubts += 1,
            Some(_) => {}
            None => {
                let response = (got.status, got.text().to_owned());
                let known = self.responses.entry(key.to_owned()).or_insert_with(|| response.clone());
                assert_eq!(*known, response, "every retry of {key} gets the first response");
            }
        }
    }
}

/// A client that sends the same key again and again. Requests and responses may get lost.
async fn client(instance: Instance, number: usize, world: Shared<World>, random: Shared<StdRng>) {
    let key = format!("\"k{number}\"");
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(draw(&random, 300))).await;
        if draw(&random, 10) == 0 {
            continue;
        }
        let request = instance.send(order(key.trim_matches('"')));
        // A client that hangs up does not stop the work.
        let patience = Duration::from_millis(50 + draw(&random, 2_000));
        if let Ok(got) = tokio::time::timeout(patience, request).await
            && draw(&random, 10) > 0
        {
            let is_final = got.status != StatusCode::SERVICE_UNAVAILABLE && got.problem().is_none();
            if is_final || got.problem().is_some() {
                world.lock().unwrap().respond(&key, &got);
            }
        }
    }
}

/// One life of the process, on a ledger that may have a bug. Returns the time that has passed.
fn live(
    disk: &SimulatedDisk,
    world: &Shared<World>,
    random: &Shared<StdRng>,
    base: Duration,
    seed: u64,
    bug: Option<PlantedBug>,
) -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.unwrap();
    let elapsed = runtime.block_on(async {
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock { base, started: tokio::time::Instant::now() });
        let opened = SimulatedLedger::open(disk, &clock, seed, bug);
        let backend = match opened {
            Ok(backend) => Arc::new(backend),
            Err(_) if disk.is_crashed() => return clock.steady(),
            Err(error) => {
                world.lock().unwrap().refusal = Some(format!("the ledger cannot be opened: {error}"));
                return clock.steady();
            }
        };
        let settings = Settings {
            clock: clock.clone(),
            entropy: Arc::new(SeededEntropy::new(seed)),
            lease_ms: 2_000,
            ..Settings::default()
        };
        let ledger = Ledger::new(backend.clone(), settings);
        let route = Route { lease: Duration::from_secs(2), ..route() };
        let instance = Instance::of(ledger, rules(route), &upstream(world, random));
        let mut clients = tokio::task::JoinSet::new();
        for number in 0..KEYS * 2 {
            clients.spawn(client(instance.clone(), number % KEYS, world.clone(), random.clone()));
        }
        let work = async {
            while let Some(ended) = clients.join_next().await {
                ended.unwrap();
            }
        };
        tokio::select! {
            () = work => {}
            () = backend.crashed() => {}
        }
        clock.steady()
    });
    runtime.shutdown_background();
    elapsed
}

fn run(seed: u64, bug: Option<PlantedBug>) -> World {
    let random = Arc::new(Mutex::new(StdRng::seed_from_u64(seed)));
    let world = Arc::new(Mutex::new(World::default()));
    let mut disk = SimulatedDisk::new(seed);
    let mut time = Duration::ZERO;
    for life in 0..LIVES {
        disk.crash_after(3 + draw(&random, 120));
        time = live(&disk, &world, &random, time, seed * LIVES + life, bug) + Duration::from_millis(100);
        world.lock().unwrap().crash(&random);
        disk = if draw(&random, 3) == 0 { disk.kill() } else { disk.restart() };
    }
    std::mem::take(&mut *world.lock().unwrap())
}

impl World {
    /// The first promise that was broken.
    fn violation(&self) -> Option<String> {
        let twice = self.effects.iter().find(|(_, effects)| **effects > 1);
        let twice = twice.map(|(key, effects)| format!("the effect of {key} happened {effects} times"));
        let succeeded = self.responses.iter().filter(|(_, (status, _))| status.is_success());
        let mut nothing = succeeded.filter(|(key, _)| !self.effects.contains_key(*key));
        let refusal = || self.refusal.clone();
        twice
            .or_else(refusal)
            .or_else(|| nothing.next().map(|(key, _)| format!("{key} succeeded without an effect")))
    }
}

#[test]
fn at_most_one_effect_per_key_through_crashes() {
    let (mut effects, mut doubts, mut crashes) = (0, 0, 0);
    for seed in 0..SEEDS {
        let world = run(seed, None);
        assert_eq!(world.violation(), None, "seed {seed}");
        effects += world.effects.len();
        doubts += world.doubts;
        crashes += world.crashes;
    }
    // The simulation is of no use if nothing happens in it.
    assert!(crashes >= 1_000 && effects >= 500 && doubts >= 100, "{crashes} {effects} {doubts}");
}

#[test]
fn a_ledger_that_does_not_sync_is_found() {
    let found = (0..SEEDS).find(|seed| run(*seed, Some(PlantedBug::NoSync)).violation().is_some());
    assert!(found.is_some(), "the simulation cannot tell a ledger that loses claims");
}
