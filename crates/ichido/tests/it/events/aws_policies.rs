//! The template in `deploy/aws` is valid, and its policies allow exactly what ichido needs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::caller::Caller;
use super::instance::Instance;
use super::policy_proxy::PolicyProxy;
use super::{AMAZON, DYNOXIDE, address, check, create_ledger};
use ichido_testkit::ledger_server::unique;
use ichido_testkit::required_env;
use ichido_testkit::wait::eventually;

fn template() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/aws/ichido.yaml")
}

fn lint(template: &Path) -> Output {
    Command::new(required_env("ICHIDO_TEST_CFN_LINT")).args(["-c", "I", "-t"]).arg(template).output().unwrap()
}

#[test]
fn template_passes_the_linter() {
    let output = lint(&template());
    assert!(
        output.status.success() && output.stdout.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

#[test]
fn linter_rejects_a_broken_template() {
    let text = std::fs::read_to_string(template()).unwrap();
    for (right, wrong) in [("KeyType: HASH", "KeyType: HUSH"), ("dynamodb:PutItem", "dynamodb:PutItems")] {
        assert!(text.contains(right));
        let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        std::fs::write(file.path(), text.replace(right, wrong)).unwrap();
        assert!(!lint(file.path()).status.success(), "{wrong}");
    }
}

/// The actions that a policy of the template allows.
fn allowed(policy: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(template()).unwrap();
    let policy = text.split_once(&format!("\n  {policy}:\n")).unwrap().1;
    let policy_lines = policy.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    policy_lines.filter_map(|line| line.trim().strip_prefix("- dynamodb:")).map(str::to_owned).collect()
}

fn set(actions: &[&str]) -> BTreeSet<String> {
    actions.iter().map(|action| (*action).to_owned()).collect()
}

/// Starts an instance that may only do what a policy allows.
fn start_under_policy(policy: &str, server: &str) -> (PolicyProxy, Instance) {
    let (table, server) = (format!("t-{}", unique()), required_env(server));
    create_ledger(format!("dynamodb://{table}?endpoint={server}"));
    let proxy = PolicyProxy::start(address(&server), Some(allowed(policy)));
    let instance = Instance::start(&format!("dynamodb://{table}?endpoint=http://{}", proxy.address()));
    (proxy, instance)
}

fn actions_used_by_marks(server: &str) -> BTreeSet<String> {
    let (proxy, instance) = start_under_policy("MarksPolicy", server);
    let mut caller = instance.caller();
    assert_eq!(check(&mut caller, json!({ "key": "E1", "metadata": { "file_id": "F1" } }))["is_new"], true);
    let again = check(&mut caller, json!({ "key": "E1" }));
    assert_eq!((&again["is_new"], &again["metadata"]["file_id"]), (&json!(false), &json!("F1")));
    let events: Vec<_> = (0..600).map(|number| json!({ "key": format!("batch-{number}") })).collect();
    let batch = caller.post("/v1/events/check", &json!({ "events": events })).unwrap();
    assert_eq!(batch.status, 200, "{}", batch.text());
    let results = batch.json()["results"].as_array().unwrap().clone();
    let not_new: Vec<_> = results.iter().filter(|one| one["is_new"] != true).collect();
    assert!(results.len() == 600 && not_new.is_empty(), "{not_new:?}");
    // A server that is busy with other tests may take longer than a probe waits.
    eventually("the instance is ready", || (caller.get("/readyz").unwrap().status == 200).then_some(()));
    // The startup check tries to read the table's TTL setting; a role that may not read it gets only a warning.
    assert_eq!(proxy.refused(), set(&["DescribeTimeToLive"]));
    proxy.used()
}

#[test]
fn marks_need_three_actions() {
    assert_eq!(allowed("MarksPolicy"), set(&["PutItem", "GetItem", "DescribeTable"]));
    actions_used_by_marks(DYNOXIDE);
    // This server does not return the existing item when a condition fails, so ichido reads it.
    assert_eq!(actions_used_by_marks(AMAZON), allowed("MarksPolicy"), "every allowed action is used");
}

#[test]
fn claims_need_exactly_the_actions_of_their_policy() {
    let (proxy, instance) = start_under_policy("ClaimsPolicy", DYNOXIDE);
    let mut caller = instance.caller();
    let done = claim_token(&mut caller, "done");
    update_claim(&mut caller, "renew", json!({ "key": "done", "token": done }));
    update_claim(&mut caller, "complete", json!({ "key": "done", "token": done, "outcome": { "ok": true } }));
    let again = caller.post("/v1/claims", &json!({ "key": "done" })).unwrap();
    assert_eq!((again.status, &again.json()["outcome"]), (200, &json!({ "ok": true })), "{}", again.text());

    let released = claim_token(&mut caller, "released");
    update_claim(&mut caller, "release", json!({ "key": "released", "token": released }));
    let doubted = claim_token(&mut caller, "doubted");
    update_claim(&mut caller, "doubt", json!({ "key": "doubted", "token": doubted, "reason": "a timeout" }));
    let listed = caller.get("/v1/claims?state=in-doubt").unwrap();
    assert!(listed.text().contains("doubted"), "{}", listed.text());
    let resolved = caller.post("/v1/claims/resolve", &json!({ "key": "doubted", "as": "absent" })).unwrap();
    assert_eq!(resolved.status, 200, "{}", resolved.text());

    assert_eq!(proxy.refused(), set(&[]));
    assert_eq!(proxy.used(), allowed("ClaimsPolicy"), "every allowed action is used");
}

fn claim_token(caller: &mut Caller, key: &str) -> Value {
    let granted = caller.post("/v1/claims", &json!({ "key": key })).unwrap();
    assert_eq!(granted.status, 201, "{}", granted.text());
    granted.json()["token"].clone()
}

fn update_claim(caller: &mut Caller, verb: &str, body: Value) {
    let response = caller.post(&format!("/v1/claims/{verb}"), &body).unwrap();
    assert_eq!(response.status, 200, "{verb}: {}", response.text());
}
