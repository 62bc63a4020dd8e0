//! Events that are claimed: granted, handled, completed; by a worker that dies with its instance.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::{CLAIMED, INSTANCES, World, key};
use crate::events::caller::Caller;
use crate::events::instance::Instance;
use crate::support::http::Response;

/// Short, so that the test need not wait long for what was left open.
const LEASE_MS: u64 = 3_000;
/// The grants at which an instance is killed, and how far its worker has come then.
const DEATHS: [(usize, Death); 4] = [
    (2, Death::BeforeTheEffect),
    (4, Death::AfterTheEffect),
    (6, Death::WhileCompleting),
    (8, Death::AfterCompleting),
];
/// How long to wait when all that is left is held by others.
const LOOK_AGAIN: Duration = Duration::from_millis(300);

#[derive(Clone, Copy, PartialEq)]
enum Death {
    BeforeTheEffect,
    AfterTheEffect,
    /// The completion is sent, and its answer never read.
    WhileCompleting,
    /// The completion was answered: nothing is open.
    AfterCompleting,
}

/// The claims that dead workers held.
#[derive(Default)]
pub(super) struct LeftOpen {
    pub(super) surely: BTreeSet<usize>,
    /// The completion may have arrived.
    pub(super) perhaps: BTreeSet<usize>,
}

impl LeftOpen {
    pub(super) fn join(&mut self, other: Self) {
        self.surely.extend(other.surely);
        self.perhaps.extend(other.perhaps);
    }
}

struct Worker<'a> {
    world: &'a World,
    number: usize,
    instance: Instance,
    caller: Caller,
    dice: super::Dice,
    granted: usize,
    left: LeftOpen,
}

/// Sends every event that is claimed to one instance, until it is done or in doubt.
pub(super) fn work(world: &World, number: usize, instance: Instance) -> (LeftOpen, Instance) {
    let mut dice = world.dice(INSTANCES + number);
    let mut waiting: VecDeque<usize> = dice.shuffled(0..CLAIMED).into();
    let caller = instance.caller();
    let left = LeftOpen::default();
    let mut worker = Worker { world, number, instance, caller, dice, granted: 0, left };
    let mut held_in_a_row = 0;
    while let Some(event) = waiting.pop_front() {
        if worker.is_settled(event) {
            held_in_a_row = 0;
            continue;
        }
        waiting.push_back(event);
        held_in_a_row += 1;
        if held_in_a_row >= waiting.len() {
            thread::sleep(LOOK_AGAIN);
            held_in_a_row = 0;
        }
    }
    (worker.left, worker.instance)
}

impl Worker<'_> {
    /// Asks for one event, and handles it if it may.
    fn is_settled(&mut self, event: usize) -> bool {
        let body = json!({ "key": key(event), "nonce": self.dice.nonce(), "lease_ms": LEASE_MS });
        let answer = self.ask("/v1/claims", &body);
        assert!(answer.json()["degraded"] != true, "{}", answer.text());
        match (answer.status, answer.status == 409 && answer.text().contains("in-flight")) {
            (201, _) => self.run(event, &answer.json()["token"]),
            (200, _) => true,
            (409, true) => false,
            (409, false) => {
                assert!(answer.text().contains("in-doubt"), "{}", answer.text());
                true
            }
            _ => panic!("{}: {}", answer.status, answer.text()),
        }
    }

    /// The effect, and its record.
    fn run(&mut self, event: usize, token: &Value) -> bool {
        self.granted += 1;
        let death = DEATHS.iter().find(|(grant, _)| *grant == self.granted).map(|(_, death)| *death);
        if death == Some(Death::BeforeTheEffect) {
            self.left.surely.insert(event);
            return self.die();
        }
        self.world.handle(event);
        if death == Some(Death::AfterTheEffect) {
            self.left.surely.insert(event);
            return self.die();
        }
        let body = json!({ "key": key(event), "token": token, "outcome": { "handled_by": self.number } });
        if death == Some(Death::WhileCompleting) {
            self.caller.lose("/v1/claims/complete", &body);
            self.left.perhaps.insert(event);
            return self.die();
        }
        let answer = self.ask("/v1/claims/complete", &body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        if death == Some(Death::AfterCompleting) {
            return self.die();
        }
        true
    }

    /// A call whose reply may get lost; it is made again as it was.
    fn ask(&mut self, path: &str, body: &Value) -> Response {
        if self.dice.once_in(8) {
            self.caller.lose(path, body);
        }
        loop {
            let answer = self.caller.post(path, body).unwrap();
            if answer.status != 503 {
                return answer;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// The instance is killed, and another takes its place; its worker asks for the event again like any other.
    fn die(&mut self) -> bool {
        self.instance.process.kill();
        self.instance = Instance::start(&self.world.ledger);
        self.move_to(self.instance.address);
        false
    }

    fn move_to(&mut self, place: SocketAddr) {
        *self.world.places[self.number].lock().unwrap() = place;
        self.caller = Caller::new(place);
    }
}
