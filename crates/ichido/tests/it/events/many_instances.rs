//! Many instances on one ledger, with lost responses and crashes: nothing is handled twice, and nothing is lost silently.
//!
//! Eight processes get the same ten thousand events, each in an order of its own. Most events are marked in batches; the
//! others are claimed one by one and completed. Responses get lost, and processes are killed and restarted. A worker that
//! marks retries with the same nonces. A worker that claims crashes with its process and leaves its claims open.

mod claim_worker;
mod mark_worker;
mod seeded_random;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use self::claim_worker::OpenClaims;
use self::seeded_random::SeededRandom;
use super::caller::Caller;
use super::instance::Instance;
use super::{DYNOXIDE, create_ledger, dynamodb_url};
use ichido_testkit::ledger_server::unique;
use ichido_testkit::required_env;

const INSTANCES: usize = 8;
const EVENTS: usize = 10_000;
/// The number of events that are claimed. It is small because each needs two requests: a claim and a completion.
const CLAIMED: usize = 240;

/// What all instances share.
struct Scenario {
    ledger: String,
    seed: u64,
    /// The current address of each instance; a restarted process listens on another port.
    addresses: Vec<Mutex<SocketAddr>>,
    /// How often each event was handled.
    handled: Vec<AtomicU32>,
}

impl Scenario {
    fn handle(&self, event: usize) {
        self.handled[event].fetch_add(1, Ordering::SeqCst);
    }

    fn handled(&self, event: usize) -> u32 {
        self.handled[event].load(Ordering::SeqCst)
    }

    fn address(&self, instance: usize) -> SocketAddr {
        *self.addresses[instance].lock().unwrap()
    }

    /// The random numbers of one worker, the same in every run with the same seed.
    fn random(&self, worker: usize) -> SeededRandom {
        SeededRandom::new(self.seed.wrapping_add(worker as u64))
    }
}

fn key(event: usize) -> String {
    format!("event-{event:05}")
}

fn event(key: &str) -> usize {
    key.strip_prefix("event-").unwrap().parse().unwrap()
}

fn assert_each_event_is_handled_once_or_in_doubt(ledger: String) {
    let seed = std::env::var("ICHIDO_TEST_SEED").map_or(20_260_610, |seed| seed.parse().unwrap());
    print(&format!("ICHIDO_TEST_SEED={seed}"));
    let started = Instant::now();
    let instances: Vec<Instance> = (0..INSTANCES).map(|_| Instance::start(&ledger)).collect();
    let scenario = Scenario {
        ledger,
        seed,
        addresses: instances.iter().map(|instance| Mutex::new(instance.address)).collect(),
        handled: (0..EVENTS).map(|_| AtomicU32::new(0)).collect(),
    };
    let (open_claims, instances) = thread::scope(|scope| {
        let marking: Vec<_> = (0..INSTANCES)
            .map(|number| {
                scope.spawn({
                    let scenario = &scenario;
                    move || mark_worker::work(scenario, number)
                })
            })
            .collect();
        let claiming: Vec<_> = instances
            .into_iter()
            .enumerate()
            .map(|(number, instance)| {
                scope.spawn({
                    let scenario = &scenario;
                    move || claim_worker::work(scenario, number, instance)
                })
            })
            .collect();
        marking.into_iter().for_each(|worker| worker.join().unwrap());
        print(&format!("marked after {:.1} s", started.elapsed().as_secs_f64()));
        let mut open_claims = OpenClaims::default();
        let mut instances = Vec::new();
        for worker in claiming {
            let (opened, instance) = worker.join().unwrap();
            open_claims.merge(opened);
            instances.push(instance);
        }
        (open_claims, instances)
    });
    for event in CLAIMED..EVENTS {
        assert_eq!(scenario.handled(event), 1, "{}: a marked event must be handled once", key(event));
    }
    let in_doubt = assert_claims_accounted_for(&scenario, &open_claims, &mut instances[0].caller());
    print(&format!("{in_doubt} of {CLAIMED} claims are in doubt; {:.1} s", started.elapsed().as_secs_f64()));
}

/// Asserts that every claim is done and its event handled, or that it is listed as in doubt because a crash left it open.
fn assert_claims_accounted_for(scenario: &Scenario, open_claims: &OpenClaims, caller: &mut Caller) -> usize {
    let all: BTreeSet<usize> = (0..CLAIMED).collect();
    let (done, in_doubt) = (list_claims(caller, "done"), list_claims(caller, "in-doubt"));
    assert_eq!(list_claims(caller, "running"), BTreeSet::new());
    assert_eq!(&done | &in_doubt, all, "every claim must be listed");
    assert!(open_claims.certain.is_subset(&in_doubt), "claims that a crash left open must be in doubt");
    let open: BTreeSet<usize> = &open_claims.certain | &open_claims.possible;
    assert!(
        in_doubt.is_subset(&open),
        "only claims that a crash left open may be in doubt: {:?}",
        &in_doubt - &open
    );
    assert!(open_claims.certain.len() >= INSTANCES, "the crashes must leave claims open");
    for event in all {
        let times = scenario.handled(event);
        assert!(times <= 1, "{}: handled {times} times", key(event));
        assert!(times == 1 || in_doubt.contains(&event), "{}: done but not handled", key(event));
    }
    assert!(
        open_claims.certain.iter().any(|event| scenario.handled(*event) == 0),
        "some open claims must have had no effect"
    );
    assert!(
        open_claims.certain.iter().any(|event| scenario.handled(*event) == 1),
        "some open claims must have had an effect"
    );
    in_doubt.len()
}

fn list_claims(caller: &mut Caller, state: &str) -> BTreeSet<usize> {
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

/// The test harness shows this output if the test fails.
#[allow(clippy::print_stdout, reason = "prints the seed with which a failed run can be repeated")]
fn print(text: &str) {
    println!("{text}");
}

#[test]
fn instances_on_dynamodb_handle_each_event_once_or_leave_it_in_doubt() {
    assert_each_event_is_handled_once_or_in_doubt(create_ledger(dynamodb_url(DYNOXIDE)));
}

#[test]
fn instances_on_postgres_handle_each_event_once_or_leave_it_in_doubt() {
    let ledger = format!("{}?schema=t_{}&pool=4", required_env("ICHIDO_TEST_POSTGRES_URL"), unique());
    assert_each_event_is_handled_once_or_in_doubt(create_ledger(ledger));
}

#[test]
fn instances_on_redis_handle_each_event_once_or_leave_it_in_doubt() {
    let ledger = format!("{}?prefix=t_{}:", required_env("ICHIDO_TEST_REDIS_URL"), unique());
    assert_each_event_is_handled_once_or_in_doubt(create_ledger(ledger));
}
