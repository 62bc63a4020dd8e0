//! `ichido demo` keeps its word.

mod serving;

use crate::{json, ok, run};

#[test]
fn each_effect_ran_once_through_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let verdict = json(dir.path(), &["demo", "--json", "--keys", "120", "--workers", "32"]);
    let ledger = &verdict["ledger"];
    assert_eq!(ledger["operations"], 120);
    assert_eq!(ledger["ran_once"], 120, "{verdict}");
    assert_eq!(ledger["ran_twice"], 0, "{verdict}");
    assert!(
        !ledger["in_doubt_after_kill"].as_array().unwrap().is_empty(),
        "the kill left nothing in doubt: {verdict}"
    );
    let gateway = &verdict["gateway"];
    let count = |name: &str| gateway[name].as_u64().unwrap();
    assert_eq!(count("ended_done") + count("in_doubt"), 120, "{gateway}");
    assert!(count("effects") <= 120 && count("effects") >= count("ended_done"), "{gateway}");
    assert!(count("in_doubt") > 0 && count("replays") > 0, "there was trouble: {gateway}");
    let delivery = &verdict["delivery"];
    let count = |name: &str| delivery[name].as_u64().unwrap();
    assert_eq!((count("records"), count("counted_once")), (360, 360), "{delivery}");
    assert_eq!(count("counted_twice") + count("never_counted"), 0, "{delivery}");
    assert_eq!(count("left_in_spool") + count("left_in_failed"), 0, "{delivery}");
    assert!(count("spooled_in_the_outage") > 0, "the outage was felt: {delivery}");
    assert!(count("answers_lost") > 0 && count("duplicates_told") > 0, "there was trouble: {delivery}");
    let events = &verdict["events"];
    let count = |name: &str| events[name].as_u64().unwrap();
    assert_eq!((count("events"), count("handled_once"), count("deliveries")), (120, 120, 480), "{events}");
    assert_eq!(count("told_known"), 360, "{events}");
    assert!(count("asked_again") > 0, "the kill was felt: {events}");
    let usage = &verdict["usage"];
    for sum in ["request_count", "total_tokens", "cost_actual"] {
        assert_eq!(usage["used"][sum], usage["counted"][sum], "{usage}");
    }
    assert_eq!(usage["counted"]["request_count"], 1200, "{usage}");
    assert!(usage["answers_lost"].as_u64() > Some(0), "there was trouble: {usage}");
    assert!(usage["came"].as_u64() > usage["counted"]["records"].as_u64(), "repeats came: {usage}");
    let house = &verdict["house"];
    let count = |name: &str| house[name].as_u64().unwrap();
    assert_eq!(count("asked_again"), 120, "{house}");
    assert_eq!(count("answered_from_the_ledger") + count("told_in_doubt"), 120, "{house}");
    assert_eq!((count("made_again"), count("new_orders"), count("keys_refused")), (0, 20, 10), "{house}");
    assert_eq!(count("in_doubt"), gateway["in_doubt"].as_u64().unwrap(), "{house}");
    assert_eq!(count("waiting_in_spool"), 3, "{house}");
    assert_eq!((count("left_in_failed"), count("pages")), (1, 5), "{house}");
    assert_eq!(house["usage_counted_again"], false, "{house}");
    assert!(verdict.get("serving").is_none(), "nothing stays up unasked: {verdict}");
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none(), "nothing is left behind");
}

#[test]
fn the_story_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let text = ok(dir.path(), &["demo", "--keys", "50", "--workers", "16"]);
    for words in [
        "kill -9",
        "in doubt",
        "the gateway before an orders API",
        "batches wait in the spool",
        "No effect ran twice",
        "every record arrived once",
        "what was sent",
        "50 handled once, 0 twice, 0 never",
        "in one process, with the console",
    ] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
}

/// The judge judges: an effect that the log shows twice is a broken promise.
#[test]
fn a_broken_promise_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("kept");
    std::fs::create_dir(&kept).unwrap();
    // Twice: an operation that is in doubt after the kill is resolved by this log, and does not run.
    std::fs::write(kept.join("effects.log"), "order-00003\norder-00003\n").unwrap();
    let output = run(dir.path(), &["demo", "--keys", "20", "--workers", "4", "--keep", "kept"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("BROKEN: order-00003 ran "), "{text}");
}

/// The other judges judge as well: what their logs have seen before is counted twice.
#[test]
fn what_is_counted_twice_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("kept");
    std::fs::create_dir(&kept).unwrap();
    std::fs::write(kept.join("arrivals.log"), "usage-000007\n").unwrap();
    std::fs::write(kept.join("handled.log"), "Ev000003\n").unwrap();
    let output = run(dir.path(), &["demo", "--keys", "10", "--workers", "4", "--keep", "kept"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("BROKEN: usage-000007 was counted 2 times"), "{text}");
    assert!(text.contains("BROKEN: Ev000003 was handled 2 times"), "{text}");
}
