//! A table that is shared with consumers that check by themselves: each sees the marks of the other.

use std::sync::Barrier;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::instance::Instance;
use super::policy_proxy::PolicyProxy;
use super::sdk_consumer::Consumer;
use super::{AMAZON, DYNOXIDE, address, check, created, dynamodb, require_env, unique};

const SIX_HOURS: i64 = 6 * 3600;

/// One table, one of ours on it, and the way for others.
struct Shared {
    environment: Vec<(&'static str, String)>,
    ledger: String,
    ours: Instance,
}

impl Shared {
    fn on(server: &str) -> Self {
        let ledger = created(dynamodb(server));
        let table = ledger.trim_start_matches("dynamodb://").split('?').next().unwrap();
        let environment = vec![
            ("DEDUP_TABLE_NAME", table.to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ENDPOINT_URL_DYNAMODB", require_env(server)),
        ];
        Self { environment, ours: Instance::start(&ledger), ledger }
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

/// What a bot says of a file in Slack.
fn metadata(file: &str) -> Value {
    json!({ "file_id": file, "channel_id": "C024BE91L", "user_id": "U2147483697", "lambda_instance_id": unique() })
}

/// The keys of the bot: the event's id, or the file's with the time; and whatever else a key may be.
const KEYS: [&str; 4] =
    ["Ev06FZKQ2T9N", "F06G8NT0TQV_1718000000.000100", "名前 with spaces/and#more", "ichido"];

fn our_marks_are_seen_by_theirs(server: &str) {
    let shared = Shared::on(server);
    let (mut ours, mut theirs) = (shared.ours.caller(), shared.consumer());
    for key in KEYS {
        let (left, started) = (metadata("F06G8NT0TQV"), now());
        assert_eq!(check(&mut ours, json!({ "key": key, "metadata": left }))["is_new"], true);
        assert!(!theirs.check(key, &metadata("F2")), "{key}: they must not take it for new");

        let mut item = theirs.read(key);
        let mut attribute = |name: &str| item.as_object_mut().unwrap().remove(name).unwrap_or_default();
        assert_eq!(attribute("event_key"), key);
        let processed_at = attribute("processed_at").as_i64().expect("a number of whole seconds");
        assert!((started..=now()).contains(&processed_at), "{processed_at}");
        let ttl = attribute("ttl").as_i64().expect("a number of whole seconds");
        assert!((SIX_HOURS..=SIX_HOURS + 1).contains(&(ttl - processed_at)), "six hours, rounded up: {ttl}");
        assert!(attribute("ichido_nonce").is_string());
        assert_eq!(item, left, "and nothing else, each a text");
    }
}

fn their_marks_are_seen_by_ours(server: &str) {
    let shared = Shared::on(server);
    let (mut ours, mut theirs) = (shared.ours.caller(), shared.consumer());
    for key in KEYS {
        let left = metadata("F06G8NT0TQV");
        assert!(theirs.check(key, &left));
        let item = theirs.read(key);
        assert_eq!(item["ttl"].as_i64().unwrap() - item["processed_at"].as_i64().unwrap(), SIX_HOURS);

        let seen = check(&mut ours, json!({ "key": key, "metadata": metadata("F2") }));
        assert_eq!(
            (&seen["is_new"], &seen["reason"]),
            (&json!(false), &json!("already processed")),
            "{seen}"
        );
        assert_eq!(seen["metadata"], left);
        let first_seen: jiff::Timestamp = seen["first_seen"].as_str().unwrap().parse().unwrap();
        assert_eq!(first_seen.as_second(), item["processed_at"].as_i64().unwrap());
        assert_eq!(theirs.read(key), item, "a look changes nothing");
    }
}

/// The server removes what is over when it finds the time. Ours does not wait for it; theirs does, by the way they ask.
fn a_mark_that_is_over_but_not_yet_removed_is_new_to_ours_alone(server: &str) {
    let shared = Shared::on(server);
    let (mut ours, mut theirs) = (shared.ours.caller(), shared.consumer());
    let (over, lasting) = (now() - 60, now() + 60);
    theirs.put(&json!({ "event_key": "lasting", "processed_at": lasting - SIX_HOURS, "ttl": lasting }));
    // The server may find the time at once: then it is asked about another one.
    let left = (0..5).map(|number| format!("over-{number}")).find(|key| {
        theirs.put(&json!({ "event_key": key, "processed_at": over - SIX_HOURS, "ttl": over }));
        !theirs.check(key, &json!({}))
    });
    let left = left.expect("the server removes everything at once");

    assert_eq!(check(&mut ours, json!({ "key": left }))["is_new"], true);
    assert_eq!(check(&mut ours, json!({ "key": left }))["is_new"], false);
    assert_eq!(check(&mut ours, json!({ "key": "lasting" }))["is_new"], false);
    assert!(!theirs.check(&left, &json!({})));
    assert!(theirs.read(&left)["ttl"].as_i64().unwrap() > now(), "it was marked anew");
}

fn each_key_has_one_winner_among_ours_and_theirs(server: &str) {
    const KEYS: usize = 120;
    let shared = Shared::on(server);
    let another = Instance::start(&shared.ledger);
    let keys: Vec<String> = (0..KEYS).map(|number| format!("race-{number}")).collect();
    let start = Barrier::new(6);
    let won: Vec<String> = std::thread::scope(|scope| {
        let mut racers = Vec::new();
        for place in 0..3 {
            let (keys, start) = (turned(&keys, place * 20), &start);
            let mut theirs = shared.consumer();
            racers.push(scope.spawn(move || {
                theirs.read("warm");
                start.wait();
                theirs.race(&keys)
            }));
        }
        for place in 3..6 {
            let (keys, start) = (turned(&keys, place * 20), &start);
            let mut ours = if place == 3 { another.caller() } else { shared.ours.caller() };
            racers.push(scope.spawn(move || {
                ours.get("/healthz").unwrap();
                start.wait();
                let ours = keys.chunks(20).flat_map(|some| {
                    let events: Vec<_> = some.iter().map(|key| json!({ "key": key })).collect();
                    let answer = ours.post("/v1/events/check", &json!({ "events": events })).unwrap();
                    let results = answer.json()["results"].as_array().unwrap().clone();
                    results.into_iter().filter(|one| one["is_new"] == true)
                });
                ours.map(|one| one["key"].as_str().unwrap().to_owned()).collect()
            }));
        }
        racers.into_iter().flat_map(|racer| racer.join().unwrap()).collect()
    });
    let (mut sorted, mut expected) = (won, keys);
    sorted.sort();
    expected.sort();
    assert_eq!(sorted, expected, "each key once");
}

/// The same keys from another place on.
fn turned(keys: &[String], by: usize) -> Vec<String> {
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
    our_marks_are_seen_by_theirs,
    their_marks_are_seen_by_ours,
    a_mark_that_is_over_but_not_yet_removed_is_new_to_ours_alone,
    each_key_has_one_winner_among_ours_and_theirs,
);

#[test]
fn a_bare_url_takes_table_and_region_where_the_consumer_takes_them() {
    let table = format!("t-{}", unique());
    let endpoint = require_env(DYNOXIDE);
    created(format!("dynamodb://{table}?endpoint={endpoint}"));
    let proxy = PolicyProxy::start(address(&endpoint), None);
    let proxied = format!("http://{}", proxy.address);
    let environment = [
        ("DEDUP_TABLE_NAME", table.as_str()),
        ("AWS_REGION", "ap-northeast-1"),
        ("AWS_ENDPOINT_URL_DYNAMODB", &proxied),
    ];
    let ours = Instance::start_with("dynamodb:", "127.0.0.1:0", &environment);
    let mut theirs = Consumer::start(&environment);
    assert_eq!(check(&mut ours.caller(), json!({ "key": "Ev1" }))["is_new"], true);
    assert!(!theirs.check("Ev1", &json!({})), "the same table");
    let regions = proxy.regions();
    assert!(regions.iter().all(|region| region == "ap-northeast-1"), "{regions:?}");
}
