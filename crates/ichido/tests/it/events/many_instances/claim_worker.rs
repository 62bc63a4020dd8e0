//! Claims events one by one, handles and completes them. The worker crashes together with its instance.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::{CLAIMED, INSTANCES, Scenario, key};
use crate::events::caller::Caller;
use crate::events::instance::Instance;
use ichido_testkit::http_client::Response;

/// Short, so that the test does not wait long for claims that a crash left open.
const LEASE_MS: u64 = 3_000;
/// The grants at which an instance is killed, and how far its worker has got by then.
const CRASHES: [(usize, Crash); 4] = [
    (2, Crash::BeforeEffect),
    (4, Crash::AfterEffect),
    (6, Crash::WhileCompleting),
    (8, Crash::AfterCompleting),
];
/// How long to wait when other workers hold all pending events.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

#[derive(Clone, Copy, PartialEq)]
enum Crash {
    BeforeEffect,
    AfterEffect,
    /// The completion is sent, and its response is never read.
    WhileCompleting,
    /// The completion was acknowledged: nothing is left open.
    AfterCompleting,
}

/// The claims that crashed workers held.
#[derive(Default)]
pub(super) struct OpenClaims {
    /// Claims that were certainly not completed.
    pub(super) certain: BTreeSet<usize>,
    /// Claims whose completion may have arrived.
    pub(super) possible: BTreeSet<usize>,
}

impl OpenClaims {
    pub(super) fn merge(&mut self, other: Self) {
        self.certain.extend(other.certain);
        self.possible.extend(other.possible);
    }
}

struct Worker<'a> {
    scenario: &'a Scenario,
    number: usize,
    instance: Instance,
    caller: Caller,
    random: super::SeededRandom,
    granted: usize,
    open_claims: OpenClaims,
}

/// Claims every event through one instance until all are done or in doubt.
pub(super) fn work(scenario: &Scenario, number: usize, instance: Instance) -> (OpenClaims, Instance) {
    let mut random = scenario.random(INSTANCES + number);
    let mut pending: VecDeque<usize> = random.shuffled(0..CLAIMED).into();
    let caller = instance.caller();
    let open_claims = OpenClaims::default();
    let mut worker = Worker { scenario, number, instance, caller, random, granted: 0, open_claims };
    let mut held_in_a_row = 0;
    while let Some(event) = pending.pop_front() {
        if worker.try_settle(event) {
            held_in_a_row = 0;
            continue;
        }
        pending.push_back(event);
        held_in_a_row += 1;
        if held_in_a_row >= pending.len() {
            thread::sleep(POLL_INTERVAL);
            held_in_a_row = 0;
        }
    }
    (worker.open_claims, worker.instance)
}

impl Worker<'_> {
    /// Claims one event and handles it if the claim is granted. Returns whether the event is done or in doubt.
    fn try_settle(&mut self, event: usize) -> bool {
        let body = json!({ "key": key(event), "nonce": self.random.nonce(), "lease_ms": LEASE_MS });
        let response = self.post("/v1/claims", &body);
        assert!(response.json()["degraded"] != true, "{}", response.text());
        match (response.status, response.status == 409 && response.text().contains("in-flight")) {
            (201, _) => self.run(event, &response.json()["token"]),
            (200, _) => true,
            (409, true) => false,
            (409, false) => {
                assert!(response.text().contains("in-doubt"), "{}", response.text());
                true
            }
            _ => panic!("{}: {}", response.status, response.text()),
        }
    }

    /// Handles the event and completes its claim; false if the event must be claimed again.
    fn run(&mut self, event: usize, token: &Value) -> bool {
        self.granted += 1;
        let crash = CRASHES.iter().find(|(grant, _)| *grant == self.granted).map(|(_, crash)| *crash);
        if crash == Some(Crash::BeforeEffect) {
            self.open_claims.certain.insert(event);
            return self.crash_and_restart();
        }
        self.scenario.handle(event);
        if crash == Some(Crash::AfterEffect) {
            self.open_claims.certain.insert(event);
            return self.crash_and_restart();
        }
        let body = json!({ "key": key(event), "token": token, "outcome": { "handled_by": self.number } });
        if crash == Some(Crash::WhileCompleting) {
            self.caller.send_and_hang_up("/v1/claims/complete", &body);
            self.open_claims.possible.insert(event);
            return self.crash_and_restart();
        }
        let response = self.post("/v1/claims/complete", &body);
        assert_eq!(response.status, 200, "{}", response.text());
        if crash == Some(Crash::AfterCompleting) {
            return self.crash_and_restart();
        }
        true
    }

    /// Posts a request whose first response may be lost; the retry is identical.
    fn post(&mut self, path: &str, body: &Value) -> Response {
        if self.random.one_in(8) {
            self.caller.send_and_hang_up(path, body);
        }
        loop {
            let response = self.caller.post(path, body).unwrap();
            if response.status != 503 {
                return response;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills the instance and starts another. The worker then claims the event again, like any other worker.
    fn crash_and_restart(&mut self) -> bool {
        self.instance.process.kill();
        self.instance = Instance::start(&self.scenario.ledger);
        self.move_to(self.instance.address);
        false
    }

    fn move_to(&mut self, address: SocketAddr) {
        *self.scenario.addresses[self.number].lock().unwrap() = address;
        self.caller = Caller::new(address);
    }
}
