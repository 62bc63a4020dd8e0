//! ichido shares a table with consumers that use the AWS SDK directly: each sees the marks of the other.

use std::sync::Barrier;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::instance::Instance;
use super::policy_proxy::PolicyProxy;
use super::sdk_consumer::Consumer;
use super::{AMAZON, DYNOXIDE, address, check, create_ledger, dynamodb_url};
use crate::ok;
use ichido_testkit::ledger_server::unique;
use ichido_testkit::required_env;

const SIX_HOURS: i64 = 6 * 3600;

/// A table, an ichido instance on it, and the environment that points other consumers to it.
struct Shared {
    environment: Vec<(&'static str, String)>,
    ledger: String,
    ichido: Instance,
}

impl Shared {
    fn on(server: &str) -> Self {
        let ledger = create_ledger(dynamodb_url(server));
        let table = ledger.trim_start_matches("dynamodb://").split('?').next().unwrap();
        let environment = vec![
            ("DEDUP_TABLE_NAME", table.to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ENDPOINT_URL_DYNAMODB", required_env(server)),
        ];
        Self { environment, ichido: Instance::start(&ledger), ledger }
    }

    fn consumer(&self) -> Consumer {
        let environment: Vec<_> =
            self.environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Consumer::start(&environment)
    }
}

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

/// The metadata that a bot stores for a file in Slack.
fn metadata(file: &str) -> Value {
    json!({ "file_id": file, "channel_id": "C024BE91L", "user_id": "U2147483697", "lambda_instance_id": unique() })
}

/// Keys as the bot uses them (the event id, or the file id with the time), and unusual ones.
const KEYS: [&str; 4] =
    ["Ev06FZKQ2T9N", "F06G8NT0TQV_1718000000.000100", "名前 with spaces/and#more", "ichido"];

fn marks_of_ichido_are_seen_by_sdk_consumers(server: &str) {
    let shared = Shared::on(server);
    let (mut ichido, mut consumer) = (shared.ichido.caller(), shared.consumer());
    for key in KEYS {
        let (written, started) = (metadata("F06G8NT0TQV"), now());
        assert_eq!(check(&mut ichido, json!({ "key": key, "metadata": written }))["is_new"], true);
        assert!(!consumer.check(key, &metadata("F2")), "{key}: must not be new to the consumer");

        let mut item = consumer.read(key);
        let mut attribute = |name: &str| item.as_object_mut().unwrap().remove(name).unwrap_or_default();
        assert_eq!(attribute("event_key"), key);
        let processed_at = attribute("processed_at").as_i64().expect("a number of whole seconds");
        assert!((started..=now()).contains(&processed_at), "{processed_at}");
        let ttl = attribute("ttl").as_i64().expect("a number of whole seconds");
        assert!((SIX_HOURS..=SIX_HOURS + 1).contains(&(ttl - processed_at)), "six hours, rounded up: {ttl}");
        assert!(attribute("ichido_nonce").is_string());
        assert_eq!(item, written, "the metadata as strings, and nothing else");
    }
}

fn marks_of_sdk_consumers_are_seen_by_ichido(server: &str) {
    let shared = Shared::on(server);
    let (mut ichido, mut consumer) = (shared.ichido.caller(), shared.consumer());
    for key in KEYS {
        let written = metadata("F06G8NT0TQV");
        assert!(consumer.check(key, &written));
        let item = consumer.read(key);
        assert_eq!(item["ttl"].as_i64().unwrap() - item["processed_at"].as_i64().unwrap(), SIX_HOURS);

        let seen = check(&mut ichido, json!({ "key": key, "metadata": metadata("F2") }));
        assert_eq!(
            (&seen["is_new"], &seen["reason"]),
            (&json!(false), &json!("Already processed by another instance")),
            "{seen}"
        );
        assert_eq!(seen["metadata"], written);
        let first_seen: jiff::Timestamp = seen["first_seen"].as_str().unwrap().parse().unwrap();
        assert_eq!(first_seen.as_second(), item["processed_at"].as_i64().unwrap());
        assert_eq!(consumer.read(key), item, "a duplicate check does not change the item");
    }
}

/// An operator sees and forgets the marks of both, and the next delivery is new to both.
fn forgotten_mark_is_new_to_ichido_and_to_sdk_consumers(server: &str) {
    let shared = Shared::on(server);
    let (mut ichido, mut consumer) = (shared.ichido.caller(), shared.consumer());
    let dir = tempfile::tempdir().unwrap();
    let events = |args: &[&str]| ok(dir.path(), &[&["events"], args, &["--ledger", &shared.ledger]].concat());
    assert_eq!(check(&mut ichido, json!({ "key": "own", "metadata": metadata("F1") }))["is_new"], true);
    assert!(consumer.check("foreign", &metadata("F2")));
    consumer.put(&json!({ "event_key": "bare" }));
    let listed: Value = serde_json::from_str(&events(&["list", "--json"])).unwrap();
    let mut keys: Vec<_> = listed["events"].as_array().unwrap().iter().map(|event| &event["key"]).collect();
    keys.sort_by_key(|key| key.to_string());
    assert_eq!(keys, ["bare", "foreign", "own"], "{listed}");
    let bare = events(&["show", "bare"]);
    assert!(bare.contains("unknown") && bare.contains("never"), "{bare}");
    for key in ["own", "foreign", "bare"] {
        assert!(!consumer.check(key, &json!({})));
        assert!(events(&["forget", key, "--yes"]).contains("forgotten"));
        assert!(consumer.check(key, &json!({})), "{key}: new to the consumer");
        assert!(events(&["forget", key, "--yes"]).contains("forgotten"));
        assert_eq!(check(&mut ichido, json!({ "key": key }))["is_new"], true);
    }
}

/// The server deletes expired items with a delay. ichido ignores them at once; an SDK consumer sees them until then.
fn expired_mark_that_is_not_yet_deleted_is_new_to_ichido_only(server: &str) {
    let shared = Shared::on(server);
    let (mut ichido, mut consumer) = (shared.ichido.caller(), shared.consumer());
    let (expired_at, lasting) = (now() - 60, now() + 60);
    consumer.put(&json!({ "event_key": "lasting", "processed_at": lasting - SIX_HOURS, "ttl": lasting }));
    // The server may delete the item at once; then the test tries another key.
    let expired_key = (0..5).map(|number| format!("expired-{number}")).find(|key| {
        consumer.put(&json!({ "event_key": key, "processed_at": expired_at - SIX_HOURS, "ttl": expired_at }));
        !consumer.check(key, &json!({}))
    });
    let expired_key = expired_key.expect("an expired item that the server has not deleted yet");

    assert_eq!(check(&mut ichido, json!({ "key": expired_key }))["is_new"], true);
    assert_eq!(check(&mut ichido, json!({ "key": expired_key }))["is_new"], false);
    assert_eq!(check(&mut ichido, json!({ "key": "lasting" }))["is_new"], false);
    assert!(!consumer.check(&expired_key, &json!({})));
    assert!(consumer.read(&expired_key)["ttl"].as_i64().unwrap() > now(), "it was marked again");
}

fn each_key_is_new_once_across_ichido_and_sdk_consumers(server: &str) {
    const KEYS: usize = 120;
    let shared = Shared::on(server);
    let another = Instance::start(&shared.ledger);
    let keys: Vec<String> = (0..KEYS).map(|number| format!("race-{number}")).collect();
    let start = Barrier::new(6);
    let won: Vec<String> = std::thread::scope(|scope| {
        let mut racers = Vec::new();
        for number in 0..3 {
            let (keys, start) = (rotated(&keys, number * 20), &start);
            let mut consumer = shared.consumer();
            racers.push(scope.spawn(move || {
                consumer.read("warm");
                start.wait();
                consumer.race(&keys)
            }));
        }
        for number in 3..6 {
            let (keys, start) = (rotated(&keys, number * 20), &start);
            let mut ichido = if number == 3 { another.caller() } else { shared.ichido.caller() };
            racers.push(scope.spawn(move || {
                ichido.get("/healthz").unwrap();
                start.wait();
                let new = keys.chunks(20).flat_map(|some| {
                    let events: Vec<_> = some.iter().map(|key| json!({ "key": key })).collect();
                    let response = ichido.post("/v1/events/check", &json!({ "events": events })).unwrap();
                    let results = response.json()["results"].as_array().unwrap().clone();
                    results.into_iter().filter(|one| one["is_new"] == true)
                });
                new.map(|one| one["key"].as_str().unwrap().to_owned()).collect()
            }));
        }
        racers.into_iter().flat_map(|racer| racer.join().unwrap()).collect()
    });
    let (mut sorted, mut expected) = (won, keys);
    sorted.sort();
    expected.sort();
    assert_eq!(sorted, expected, "each key is new exactly once");
}

/// The same keys, starting at another offset.
fn rotated(keys: &[String], by: usize) -> Vec<String> {
    let mut keys = keys.to_vec();
    keys.rotate_left(by);
    keys
}

macro_rules! on_both_servers {
    ($($case:ident),* $(,)?) => {
        mod dynoxide { $(#[test] fn $case() { super::$case(super::DYNOXIDE); })* }
        mod amazon { $(#[test] fn $case() { super::$case(super::AMAZON); })* }
    };
}

on_both_servers!(
    marks_of_ichido_are_seen_by_sdk_consumers,
    marks_of_sdk_consumers_are_seen_by_ichido,
    expired_mark_that_is_not_yet_deleted_is_new_to_ichido_only,
    each_key_is_new_once_across_ichido_and_sdk_consumers,
    forgotten_mark_is_new_to_ichido_and_to_sdk_consumers,
);

#[test]
fn bare_url_reads_table_and_region_from_the_same_variables_as_the_consumer() {
    let table = format!("t-{}", unique());
    let endpoint = required_env(DYNOXIDE);
    create_ledger(format!("dynamodb://{table}?endpoint={endpoint}"));
    let proxy = PolicyProxy::start(address(&endpoint), None);
    let proxied = format!("http://{}", proxy.address());
    let environment = [
        ("DEDUP_TABLE_NAME", table.as_str()),
        ("AWS_REGION", "ap-northeast-1"),
        ("AWS_ENDPOINT_URL_DYNAMODB", &proxied),
    ];
    let ichido = Instance::start_with("dynamodb:", "127.0.0.1:0", &environment);
    let mut consumer = Consumer::start(&environment);
    assert_eq!(check(&mut ichido.caller(), json!({ "key": "Ev1" }))["is_new"], true);
    assert!(!consumer.check("Ev1", &json!({})), "the same table");
    let regions = proxy.regions();
    assert!(regions.iter().all(|region| region == "ap-northeast-1"), "{regions:?}");
}
