//! `ichido id`: prints what the exporter and the sender would use, alone on a line.

use serde_json::Value;

use crate::{json, ok, refused};

fn vectors() -> Value {
    serde_json::from_str(include_str!("../../../usage/tests/vectors/event-ids.json")).unwrap()
}

fn words<'a>(input: &'a Value, scheme: &'a str) -> Vec<&'a str> {
    let mut words = vec!["id", "event", "--scheme", scheme];
    for (flag, field) in [
        ("--date", "usage_date"),
        ("--provider", "provider"),
        ("--model", "model"),
        ("--app", "app_id"),
        ("--user", "user_id"),
    ] {
        if let Some(value) = input[field].as_str() {
            words.extend([flag, value]);
        }
    }
    words
}

#[test]
fn ids_and_keys_are_those_of_the_vectors() {
    let dir = tempfile::tempdir().unwrap();
    let vectors = vectors();
    for vector in vectors["source_event_ids"].as_array().unwrap() {
        for (scheme, field) in [("sorted", "sorted"), ("fixed-order", "fixed_order")] {
            let words = words(&vector["input"], scheme);
            if vector["refused"] == true {
                let line = refused(dir.path(), &words, 2);
                assert!(line.contains("must not contain '|'"), "{line}");
            } else {
                assert_eq!(ok(dir.path(), &words), format!("{}\n", vector[field].as_str().unwrap()));
            }
        }
    }
    for vector in vectors["batch_keys"].as_array().unwrap() {
        let keys = vector["input"].as_array().unwrap().iter().map(|key| key.as_str().unwrap());
        let words: Vec<&str> = ["id", "batch", "--"].into_iter().chain(keys).collect();
        assert_eq!(ok(dir.path(), &words), format!("{}\n", vector["output"].as_str().unwrap()));
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was written");
}

#[test]
fn what_is_no_id_is_one_clear_line_and_exit_code_2() {
    let dir = tempfile::tempdir().unwrap();
    let event = |flag: &str, value: &str| {
        let mut words = vec!["id", "event"];
        for (name, usual) in [("--date", "2025-12-01"), ("--provider", "openai"), ("--model", "gpt")] {
            words.extend([name, if name == flag { value } else { usual }]);
        }
        if !["--date", "--provider", "--model"].contains(&flag) {
            words.extend([flag, value]);
        }
        refused(dir.path(), &words, 2)
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
fn v2_takes_what_the_others_cannot_tell_apart() {
    let dir = tempfile::tempdir().unwrap();
    let id = |more: &[&str]| {
        let mut words = vec!["id", "event", "--scheme", "v2", "--json"];
        words.extend(["--date", "2025-12-01", "--provider", "openai", "--model", "gpt-4.1"]);
        words.extend(more);
        let value = json(dir.path(), &words);
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
    for (place, one) in ids.iter().enumerate() {
        assert!(ids[..place].iter().all(|other| other != one), "{ids:?}");
    }
}

#[test]
fn odds_are_those_of_the_birthday_problem() {
    let dir = tempfile::tempdir().unwrap();
    let text = ok(dir.path(), &["id", "odds", "--per-group", "10000000"]);
    assert!(text.contains("16.28 %"), "{text}");
    let report = json(dir.path(), &["id", "odds", "--per-group", "10000000", "--groups", "2", "--json"]);
    let chance = |place: usize, name: &str| report["schemes"][place][name].as_f64().unwrap();
    assert!((chance(0, "collision_in_a_group") - 0.1627).abs() < 0.0001, "{report}");
    assert!((chance(0, "collision_in_any_group") - 0.299).abs() < 0.001, "{report}");
    assert!(chance(1, "collision_in_a_group") < 1e-24);
    assert_eq!(report["schemes"][0]["bits"], 48);
    let nobody = json(dir.path(), &["id", "odds", "--per-group", "0", "--json"]);
    assert_eq!(nobody["schemes"][0]["collision_in_a_group"].as_f64(), Some(0.0));
}
