//! Marks events in batches: the worker whose check reports an event as new handles it.

use serde_json::{Value, json};

use super::{CLAIMED, EVENTS, Scenario, key};
use crate::events::caller::Caller;
use ichido_testkit::wait::eventually;

/// Small enough that a batch finishes before an attempt times out, even while all instances keep the server busy.
const BATCH: usize = 50;

/// Checks every event to be marked through one instance, in an order of its own.
pub(super) fn work(scenario: &Scenario, instance: usize) {
    let mut random = scenario.random(instance);
    let mut caller = Caller::new(scenario.address(instance));
    for batch in random.shuffled(CLAIMED..EVENTS).chunks(BATCH) {
        let events: Vec<Value> =
            batch.iter().map(|event| json!({ "key": key(*event), "nonce": random.nonce() })).collect();
        let body = json!({ "events": events });
        if random.one_in(10) {
            caller.send_and_hang_up("/v1/events/check", &body);
        }
        let results = check_batch(scenario, instance, &mut caller, &body);
        assert_eq!(results.len(), batch.len());
        for (event, result) in batch.iter().zip(results) {
            assert_eq!((&result["key"], &result["degraded"]), (&json!(key(*event)), &json!(false)));
            if result["is_new"] == true {
                scenario.handle(*event);
            }
        }
    }
}

/// Retries until there is a response: the instance may be killed and restarted at another address meanwhile.
fn check_batch(scenario: &Scenario, instance: usize, caller: &mut Caller, body: &Value) -> Vec<Value> {
    eventually("a response to a batch", || {
        if caller.address != scenario.address(instance) {
            *caller = Caller::new(scenario.address(instance));
        }
        let response =
            caller.post("/v1/events/check", body).ok().filter(|response| response.status != 503)?;
        assert_eq!(response.status, 200, "{}", response.text());
        Some(response.json()["results"].as_array().unwrap().clone())
    })
}
