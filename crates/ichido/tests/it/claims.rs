//! The claim API, called over HTTP as from any language.

mod event_checks;
mod monitoring;
mod openapi;
mod outages;
mod refusals;
mod two_phase;

use serde_json::{Value, json};

use crate::serving::Serving;
use ichido_testkit::http_client::Response;

const CHECK: &str = "/v1/events/check";

/// Checks these events in one request and returns the results.
fn check(claims: &Serving, events: Value) -> Vec<Value> {
    let response = claims.post(CHECK, &json!({ "events": events }).to_string());
    assert_eq!(response.status, 200, "{response:?}");
    response.json()["results"].as_array().unwrap().clone()
}

/// Checks one event: whether it is new, and whether the result is degraded.
fn check_one(claims: &Serving, key: &str) -> (bool, bool) {
    let result = check(claims, json!([{ "key": key }])).remove(0);
    (result["is_new"].as_bool().unwrap(), result["degraded"].as_bool().unwrap())
}

fn claim(claims: &Serving, body: Value) -> Response {
    claims.post("/v1/claims", &body.to_string())
}

/// Claims a key, asserts that the claim is granted, and returns its token.
fn granted(claims: &Serving, body: Value) -> String {
    let response = claim(claims, body);
    assert_eq!(response.status, 201, "{response:?}");
    response.json()["token"].as_str().unwrap().to_owned()
}

/// Renews, completes, releases, doubts or resolves a claim.
fn update_claim(claims: &Serving, verb: &str, body: Value) -> Response {
    claims.post(&format!("/v1/claims/{verb}"), &body.to_string())
}

/// The sum of a metric over the series whose labels contain `label`.
fn metric(claims: &Serving, name: &str, label: &str) -> f64 {
    let text = claims.get("/metrics").text();
    let values = text.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let labels = series.strip_prefix(name)?;
        let matches_name = labels.is_empty() || labels.starts_with('{');
        (matches_name && labels.contains(label)).then(|| value.parse::<f64>().unwrap())
    });
    values.sum()
}
