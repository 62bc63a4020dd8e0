//! The claim API, as callers in any language use it.

mod event_checks;
#[path = "../../../ledger/tests/support/lossy_proxy.rs"]
pub(crate) mod lossy_proxy;
mod monitoring;
mod openapi;
mod outages;
mod refusals;
mod two_phase;

use serde_json::{Value, json};

use crate::serving::{Response, Serving};

const CHECK: &str = "/v1/events/check";

/// What became of these events, in one call.
fn check(claims: &Serving, events: Value) -> Vec<Value> {
    let answer = claims.post(CHECK, &json!({ "events": events }).to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["results"].as_array().unwrap().clone()
}

/// Whether one event is new, and whether the local ledger said so.
fn check_one(claims: &Serving, key: &str) -> (bool, bool) {
    let result = check(claims, json!([{ "key": key }])).remove(0);
    (result["is_new"].as_bool().unwrap(), result["degraded"].as_bool().unwrap())
}

fn claim(claims: &Serving, body: Value) -> Response {
    claims.post("/v1/claims", &body.to_string())
}

/// The token of a claim that must be granted.
fn granted(claims: &Serving, body: Value) -> String {
    let answer = claim(claims, body);
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["token"].as_str().unwrap().to_owned()
}

/// A holder's word.
fn say(claims: &Serving, verb: &str, body: Value) -> Response {
    claims.post(&format!("/v1/claims/{verb}"), &body.to_string())
}

/// The sum of a metric over the series whose labels contain this.
fn metric(claims: &Serving, name: &str, label: &str) -> f64 {
    let text = claims.get("/metrics").body;
    let values = text.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let labels = series.strip_prefix(name)?;
        let is_it = labels.is_empty() || labels.starts_with('{');
        (is_it && labels.contains(label)).then(|| value.parse::<f64>().unwrap())
    });
    values.sum()
}
