//! `ichido reconcile` compares the source, what was sent, and what the receiver counted.

use serde_json::Value;

use super::Stage;
use super::receiver::{Action, ReceiverKind};

const DAYS: [&str; 4] = ["--from", "2025-11-01", "--to", "2025-11-05"];

fn reconcile(stage: &Stage, code: i32) -> Value {
    let run = stage.run(&["reconcile", "--json"], &[]);
    run.exits_with(code);
    run.json()
}

/// The event id and the kind of each difference.
fn differences_of(value: &Value) -> Vec<(String, String)> {
    let list = value["differences"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    list.iter().map(|difference| (text(&difference["id"]), text(&difference["what"]))).collect()
}

#[test]
fn every_difference_between_source_sent_and_counted_is_listed_by_record() {
    let mut stage = Stage::new(ReceiverKind::FirstWins);
    stage.dify.generate(5, 2..=4, 60, "UTC");
    assert!(stage.run(&["reconcile"], &[]).exits_with(2).last_line().contains("nothing was exported yet"));
    stage.export(&DAYS).exits_with(0);
    let all = reconcile(&stage, 0);
    assert_eq!(all["differences"].as_array().unwrap().len(), 0);
    let cost: String = all["periods"][1]["counted"]["cost"]["USD"].as_str().unwrap().to_owned();
    assert_eq!(all["periods"][1]["source"]["cost"]["USD"], cost.as_str());
    // The receiver loses one record, changes another, and has one that was never sent.
    let ids: Vec<String> = stage.receiver.counted().records.keys().cloned().collect();
    stage.receiver.tamper(|records| {
        records.remove(&ids[0]);
        for (id, request_count) in [(&ids[1], 4711), (&ids[2], 1)] {
            let mut record: ichido_usage::Record = serde_json::from_str(records[id].get()).unwrap();
            record.request_count += request_count;
            if request_count == 1 {
                record.metadata.source_event_id += "0";
            }
            let text = serde_json::to_string(&record).unwrap();
            records.insert(
                record.metadata.source_event_id.clone(),
                serde_json::value::RawValue::from_string(text).unwrap(),
            );
        }
    });
    let expected = [
        (ids[0].clone(), "not_counted"),
        (ids[1].clone(), "counted_otherwise"),
        (format!("{}0", ids[2]), "counted_unsent"),
    ];
    let expected: Vec<(String, String)> =
        expected.into_iter().map(|(id, what)| (id, what.to_owned())).collect();
    let mut differences = differences_of(&reconcile(&stage, 1));
    differences.sort();
    let mut expected = expected;
    expected.sort();
    assert_eq!(differences, expected);
    let table = stage.run(&["reconcile"], &[]);
    assert!(table.exits_with(1).stdout.contains("not counted by the receiver"), "{}", table.stdout);
}

#[test]
fn late_changes_and_spooled_records_are_differences() {
    let mut stage = Stage::new(ReceiverKind::FirstWins);
    let (app, user) = (stage.dify.app("chat", "a"), stage.dify.end_user("u"));
    let model = Some(("openai", "gpt-4o"));
    let first = stage.dify.plain(&app, "2025-11-02 12:00:00", model, (10, 1), Some("1"), &user);
    stage.dify.plain(&app, "2025-11-03 12:00:00", model, (10, 1), Some("1"), &user);
    stage
        .receiver
        .set_script(|request_number| if request_number == 1 { Action::Count } else { Action::Respond(503) });
    stage.run(&[&["export", "dify"], &DAYS[..]].concat(), &[("MAX_RETRIES", "0")]).exits_with(3);
    stage.dify.sql(&format!("UPDATE messages SET total_price = 2 WHERE id = '{first}'"));
    let kinds: Vec<String> =
        differences_of(&reconcile(&stage, 1)).into_iter().map(|(_, what)| what).collect();
    assert_eq!(kinds, ["changed", "waiting"]);
}

#[test]
fn usage_events_in_a_file_are_compared_with_what_was_sent_and_counted() {
    let stage = Stage::new(ReceiverKind::FirstWins);
    let line = |id: usize, day: u32, tokens: u64| {
        serde_json::json!({"id": format!("m{id}"), "time": format!("2025-11-{day:02}T01:02:03Z"), "tenant": "t",
            "provider": "openai", "model": "gpt-4o", "app_id": "a", "input_tokens": tokens, "output_tokens": 1,
            "price": "0.10", "currency": "USD"})
        .to_string()
    };
    let write =
        |lines: &[String]| std::fs::write(stage.path().join("usage.jsonl"), lines.join("\n")).unwrap();
    let jsonl = |more: &[&str], code: i32| {
        let run = stage.run(&[&["reconcile", "--json", "--jsonl", "usage.jsonl"], more].concat(), &[]);
        run.exits_with(code);
        differences_of(&run.json()).into_iter().map(|(_, what)| what).collect::<Vec<_>>()
    };
    write(&[line(1, 2, 10), line(2, 3, 20)]);
    stage.run(&["export", "jsonl", "usage.jsonl"], &[]).exits_with(0);
    assert!(jsonl(&[], 0).is_empty());

    // A day changes in the file, another is added to it, and the receiver loses a record.
    write(&[line(1, 2, 11), line(2, 3, 20), line(3, 4, 30)]);
    stage.receiver.tamper(|records| drop(records.pop_last()));
    assert_eq!(jsonl(&[], 1), ["changed", "not_counted", "not_sent"]);
    assert_eq!(jsonl(&["--from", "2025-11-02", "--to", "2025-11-02"], 1), ["changed"]);
    write(&[line(1, 2, 10)]);
    assert_eq!(
        jsonl(&["--from", "2025-11-02", "--to", "2025-11-03"], 1),
        ["gone_from_source", "not_counted"]
    );

    // The last result of each day is stored for statements.
    let stored = std::fs::read(stage.path().join("data/export/reconciled.json")).unwrap();
    let stored: Value = serde_json::from_slice(&stored).unwrap();
    let counts: Vec<u64> = ["2025-11-02", "2025-11-03", "2025-11-04"]
        .map(|day| stored["periods"][day]["differences"].as_u64().unwrap())
        .to_vec();
    assert_eq!(counts, [0, 2, 1], "{stored}");
    write(&[]);
    let run = stage.run(&["reconcile", "--jsonl", "usage.jsonl"], &[]);
    assert!(run.exits_with(2).last_line().contains("contain no usage events"), "{}", run.stderr);
}
