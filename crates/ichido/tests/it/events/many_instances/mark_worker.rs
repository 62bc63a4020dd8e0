//! Events that are marked: whoever is told "new" handles the event.

use serde_json::{Value, json};

use super::{CLAIMED, EVENTS, World, key};
use crate::events::caller::Caller;
use crate::support::eventually;

/// Small, so that a batch on a server that all instances keep busy is through before a try is given up.
const BATCH: usize = 50;

/// Sends every event that is marked to one instance, in an order of its own.
pub(super) fn work(world: &World, instance: usize) {
    let mut dice = world.dice(instance);
    let mut caller = Caller::new(world.place(instance));
    for batch in dice.shuffled(CLAIMED..EVENTS).chunks(BATCH) {
        let events: Vec<Value> =
            batch.iter().map(|event| json!({ "key": key(*event), "nonce": dice.nonce() })).collect();
        let body = json!({ "events": events });
        if dice.once_in(10) {
            caller.lose("/v1/events/check", &body);
        }
        let results = answered(world, instance, &mut caller, &body);
        assert_eq!(results.len(), batch.len());
        for (event, result) in batch.iter().zip(results) {
            assert_eq!((&result["key"], &result["degraded"]), (&json!(key(*event)), &json!(false)));
            if result["is_new"] == true {
                world.handle(*event);
            }
        }
    }
}

/// Asks until there is an answer; the process may be killed meanwhile, and another take its place.
fn answered(world: &World, instance: usize, caller: &mut Caller, body: &Value) -> Vec<Value> {
    eventually("an answer to a batch", || {
        if caller.to != world.place(instance) {
            *caller = Caller::new(world.place(instance));
        }
        let answer = caller.post("/v1/events/check", body).ok().filter(|answer| answer.status != 503)?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        Some(answer.json()["results"].as_array().unwrap().clone())
    })
}
