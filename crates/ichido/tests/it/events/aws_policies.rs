//! `deploy/aws`: the template is sound, and its policies are enough, and no more than that.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::caller::Caller;
use super::instance::Instance;
use super::policy_proxy::PolicyProxy;
use super::{AMAZON, DYNOXIDE, address, check, created, require_env, unique};

fn template() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/aws/ichido.yaml")
}

fn lint(template: &Path) -> Output {
    Command::new(require_env("ICHIDO_TEST_CFN_LINT")).args(["-c", "I", "-t"]).arg(template).output().unwrap()
}

#[test]
fn the_linter_has_nothing_to_say() {
    let output = lint(&template());
    assert!(
        output.status.success() && output.stdout.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

#[test]
fn the_linter_would_have_something_to_say() {
    let text = std::fs::read_to_string(template()).unwrap();
    for (right, wrong) in [("KeyType: HASH", "KeyType: HUSH"), ("dynamodb:PutItem", "dynamodb:PutItems")] {
        assert!(text.contains(right));
        let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        std::fs::write(file.path(), text.replace(right, wrong)).unwrap();
        assert!(!lint(file.path()).status.success(), "{wrong}");
    }
}

/// What a policy of the template allows.
fn allowed(policy: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(template()).unwrap();
    let policy = text.split_once(&format!("\n  {policy}:\n")).unwrap().1;
    let of_policy = policy.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    of_policy.filter_map(|line| line.trim().strip_prefix("- dynamodb:")).map(str::to_owned).collect()
}

fn set(actions: &[&str]) -> BTreeSet<String> {
    actions.iter().map(|action| (*action).to_owned()).collect()
}

/// An instance that may do what a policy allows.
fn under(policy: &str, server: &str) -> (PolicyProxy, Instance) {
    let (table, server) = (format!("t-{}", unique()), require_env(server));
    created(format!("dynamodb://{table}?endpoint={server}"));
    let proxy = PolicyProxy::start(address(&server), Some(allowed(policy)));
    let instance = Instance::start(&format!("dynamodb://{table}?endpoint=http://{}", proxy.address));
    (proxy, instance)
}

fn marks_work_under_their_policy(server: &str) -> BTreeSet<String> {
    let (proxy, instance) = under("MarksPolicy", server);
    let mut caller = instance.caller();
    assert_eq!(check(&mut caller, json!({ "key": "E1", "metadata": { "file_id": "F1" } }))["is_new"], true);
    let again = check(&mut caller, json!({ "key": "E1" }));
    assert_eq!((&again["is_new"], &again["metadata"]["file_id"]), (&json!(false), &json!("F1")));
    let events: Vec<_> = (0..600).map(|number| json!({ "key": format!("batch-{number}") })).collect();
    let batch = caller.post("/v1/events/check", &json!({ "events": events })).unwrap().json();
    assert!(batch["results"].as_array().unwrap().iter().all(|one| one["is_new"] == true));
    assert_eq!(caller.get("/readyz").unwrap().status, 200);
    // Whether the table forgets is looked for, and a role that may not see it is told so in a warning.
    assert_eq!(proxy.refused(), set(&["DescribeTimeToLive"]));
    proxy.used()
}

#[test]
fn marks_need_three_actions() {
    assert_eq!(allowed("MarksPolicy"), set(&["PutItem", "GetItem", "DescribeTable"]));
    marks_work_under_their_policy(DYNOXIDE);
    // This server does not hand out the item that is in the way, so it is read.
    assert_eq!(marks_work_under_their_policy(AMAZON), allowed("MarksPolicy"), "each is used");
}

#[test]
fn claims_need_what_their_policy_lists() {
    let (proxy, instance) = under("ClaimsPolicy", DYNOXIDE);
    let mut caller = instance.caller();
    let done = token(&mut caller, "done");
    settled(&mut caller, "renew", json!({ "key": "done", "token": done }));
    settled(&mut caller, "complete", json!({ "key": "done", "token": done, "outcome": { "ok": true } }));
    let again = caller.post("/v1/claims", &json!({ "key": "done" })).unwrap();
    assert_eq!((again.status, &again.json()["outcome"]), (200, &json!({ "ok": true })), "{}", again.text());

    let released = token(&mut caller, "released");
    settled(&mut caller, "release", json!({ "key": "released", "token": released }));
    let doubted = token(&mut caller, "doubted");
    settled(&mut caller, "doubt", json!({ "key": "doubted", "token": doubted, "reason": "a timeout" }));
    let listed = caller.get("/v1/claims?state=in-doubt").unwrap();
    assert!(listed.text().contains("doubted"), "{}", listed.text());
    let resolved = caller.post("/v1/claims/resolve", &json!({ "key": "doubted", "as": "absent" })).unwrap();
    assert_eq!(resolved.status, 200, "{}", resolved.text());

    assert_eq!(proxy.refused(), set(&[]));
    assert_eq!(proxy.used(), allowed("ClaimsPolicy"), "each is used");
}

fn token(caller: &mut Caller, key: &str) -> Value {
    let granted = caller.post("/v1/claims", &json!({ "key": key })).unwrap();
    assert_eq!(granted.status, 201, "{}", granted.text());
    granted.json()["token"].clone()
}

fn settled(caller: &mut Caller, word: &str, body: Value) {
    let answer = caller.post(&format!("/v1/claims/{word}"), &body).unwrap();
    assert_eq!(answer.status, 200, "{word}: {}", answer.text());
}
