//! `ichido id` prints the ids and keys that the exporter and the sender use, each on a line of its own.

use serde_json::Value;

use crate::{json, ok, refused};

fn vectors() -> Value {
    serde_json::from_str(include_str!("../../../usage/tests/vectors/event-ids.json")).unwrap()
}

/// The arguments that compute the id of a test vector.
fn event_args<'a>(input: &'a Value, scheme: &'a str) -> Vec<&'a str> {
    let mut args = vec!["id", "event", "--scheme", scheme];
    for (flag, field) in [
        ("--date", "usage_date"),
        ("--provider", "provider"),
        ("--model", "model"),
        ("--app", "app_id"),
        ("--user", "user_id"),
    ] {
        if let Some(value) = input[field].as_str() {
            args.extend([flag, value]);
        }
    }
    args
}

#[test]
fn ids_and_keys_match_the_test_vectors() {
    let dir = tempfile::tempdir().unwrap();
    let vectors = vectors();
    for vector in vectors["source_event_ids"].as_array().unwrap() {
        for (scheme, field) in [("sorted", "sorted"), ("fixed-order", "fixed_order")] {
            let args = event_args(&vector["input"], scheme);
            if vector["refused"] == true {
                let line = refused(dir.path(), &args, 2);
                assert!(line.contains("must not contain '|'"), "{line}");
            } else {
                assert_eq!(ok(dir.path(), &args), format!("{}\n", vector[field].as_str().unwrap()));
            }
        }
    }
    for vector in vectors["batch_keys"].as_array().unwrap() {
        let keys = vector["input"].as_array().unwrap().iter().map(|key| key.as_str().unwrap());
        let args: Vec<&str> = ["id", "batch", "--"].into_iter().chain(keys).collect();
        assert_eq!(ok(dir.path(), &args), format!("{}\n", vector["output"].as_str().unwrap()));
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the command wrote files");
}

#[test]
fn invalid_values_are_one_clear_line_and_exit_code_2() {
    let dir = tempfile::tempdir().unwrap();
    let event = |flag: &str, value: &str| {
        let mut args = vec!["id", "event"];
        for (name, valid) in [("--date", "2025-12-01"), ("--provider", "openai"), ("--model", "gpt")] {
            args.extend([name, if name == flag { value } else { valid }]);
        }
        if !["--date", "--provider", "--model"].contains(&flag) {
            args.extend([flag, value]);
        }
        refused(dir.path(), &args, 2)
    };
    assert!(event("--date", "2025-02-30").contains("is not a day; write YYYY-MM-DD"));
    assert!(event("--date", "20251201").contains("--date"));
    assert!(event("--provider", "").contains("provider: must not be empty"));
    assert!(event("--model", "a\nb").contains("model: must not contain control characters"));
    assert!(event("--model", &"m".repeat(300)).contains("source_event_id: would have"));
    assert!(event("--user", "a|b").contains("user_id: must not contain '|'"));
    assert!(
        event("--scheme", "v3").contains("--scheme: an id scheme must be one of sorted, fixed-order, v2")
    );
    assert!(event("--user-type", "robot").contains("--user-type"));
    assert!(event("--period", "yearly").contains("--period"));
}

#[test]
fn v2_distinguishes_values_that_other_schemes_cannot() {
    let dir = tempfile::tempdir().unwrap();
    let id = |more: &[&str]| {
        let mut args = vec!["id", "event", "--scheme", "v2", "--json"];
        args.extend(["--date", "2025-12-01", "--provider", "openai", "--model", "gpt-4.1"]);
        args.extend(more);
        let value = json(dir.path(), &args);
        assert_eq!(value["pattern"], r"^dify-\d{4}-\d{2}-\d{2}-.+-[a-f0-9]{32}$");
        value["source_event_id"].as_str().unwrap().to_owned()
    };
    let ids = [
        id(&["--app", "a|b", "--user", "c"]),
        id(&["--app", "a", "--user", "b|c"]),
        id(&["--app", "c", "--user", "a|b"]),
        id(&["--app", "c", "--user", "a|b", "--tenant", "t"]),
        id(&["--app", "c", "--user", "a|b", "--user-type", "account"]),
        id(&["--app", "c", "--user", "a|b", "--currency", "JPY"]),
        id(&["--app", "c", "--user", "a|b", "--period", "weekly"]),
    ];
    for (index, id) in ids.iter().enumerate() {
        assert!(!ids[..index].contains(id), "{ids:?}");
    }
}

#[test]
fn odds_follow_the_birthday_problem() {
    let dir = tempfile::tempdir().unwrap();
    let text = ok(dir.path(), &["id", "odds", "--per-group", "10000000"]);
    assert!(text.contains("16.28 %"), "{text}");
    let report = json(dir.path(), &["id", "odds", "--per-group", "10000000", "--groups", "2", "--json"]);
    let probability = |index: usize, name: &str| report["schemes"][index][name].as_f64().unwrap();
    assert!((probability(0, "collision_in_a_group") - 0.1627).abs() < 0.0001, "{report}");
    assert!((probability(0, "collision_in_any_group") - 0.299).abs() < 0.001, "{report}");
    assert!(probability(1, "collision_in_a_group") < 1e-24);
    assert_eq!(report["schemes"][0]["bits"], 48);
    let none = json(dir.path(), &["id", "odds", "--per-group", "0", "--json"]);
    assert_eq!(none["schemes"][0]["collision_in_a_group"].as_f64(), Some(0.0));
}
