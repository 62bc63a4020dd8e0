//! Every kind of app, time zone, period and incomplete row is aggregated into the right records.

use serde_json::json;

use super::Stage;
use super::dify::{Message, OTHER_TENANT, TENANT};
use super::receiver::ReceiverKind;

const DAYS: [&str; 4] = ["--from", "2025-11-01", "--to", "2025-11-08"];

#[test]
fn usage_of_every_kind_of_app_is_exported_exactly_once() {
    let mut stage = Stage::new(ReceiverKind::FirstWins);
    stage.settings("zone = \"Asia/Tokyo\"\nmode = \"per_app\"");
    stage.dify.generate(1, 2..=6, 240, "Asia/Tokyo");
    let run = stage.export(&DAYS);
    run.exits_with(0);
    assert_eq!(run.sum("rows"), 240);
    assert_eq!(stage.receiver.totals(), stage.dify.totals);
    let metadata = stage.receiver.counted().bodies[0]["export_metadata"].clone();
    assert_eq!(
        (&metadata["aggregation_period"], &metadata["source_system"]),
        (&json!("daily"), &json!("dify"))
    );
    assert_eq!(stage.watermark().as_deref(), Some("2025-11-08"));
    let batches = stage.receiver.counted().bodies.len();
    let again = stage.export(&DAYS);
    again.exits_with(0);
    assert_eq!((again.sum("new"), again.sum("records")), (0, again.sum("unchanged")));
    assert_eq!(stage.receiver.counted().bodies.len(), batches, "nothing is sent twice");
    let record: ichido_usage::Record =
        serde_json::from_str(stage.receiver.counted().records.values().next().unwrap().get()).unwrap();
    assert!(record.metadata.source_user_id.is_none() && !record.metadata.source_app_id.is_empty());
}

#[test]
fn week_is_exported_whole_even_if_the_range_covers_part_of_it() {
    let mut stage = Stage::new(ReceiverKind::FirstWins);
    stage.settings("period = \"weekly\"\nmode = \"workspace\"");
    let (app, user) = (stage.dify.app("chat", "a"), stage.dify.end_user("u"));
    for day in ["2024-12-29", "2024-12-30", "2025-01-05", "2025-01-06"] {
        let at = format!("{day} 12:00:00");
        stage.dify.plain(&app, &at, Some(("openai", "gpt-4o")), (10, 1), Some("0.5"), &user);
    }
    stage.export(&["--from", "2025-01-01", "--to", "2025-01-02"]).exits_with(0);
    let counted = stage.receiver.counted();
    let record: ichido_usage::Record =
        serde_json::from_str(counted.records.values().next().unwrap().get()).unwrap();
    assert_eq!(counted.records.len(), 1);
    assert_eq!((record.usage_date.to_string().as_str(), record.request_count), ("2024-12-30", 2));
    assert_eq!(record.metadata.aggregation_method, "weekly_sum");
    assert_eq!(counted.bodies[0]["export_metadata"]["aggregation_period"], "weekly");
}

#[test]
fn days_follow_the_configured_time_zone_across_a_clock_change() {
    let mut stage = Stage::new(ReceiverKind::FirstWins);
    stage.settings("mode = \"workspace\"\nzone = \"America/Los_Angeles\"");
    let (app, user) = (stage.dify.app("chat", "a"), stage.dify.end_user("u"));
    // Clocks go back on this day, so it has 25 hours.
    for at in ["2025-11-02 06:59:59", "2025-11-02 07:00:00", "2025-11-03 07:59:59", "2025-11-03 08:00:00"] {
        stage.dify.plain(&app, at, Some(("openai", "gpt-4o")), (10, 1), Some("1"), &user);
    }
    stage.export(&["--from", "2025-11-02", "--to", "2025-11-02"]).exits_with(0);
    let totals = stage.receiver.totals();
    let sums: Vec<(String, u64)> =
        totals.iter().map(|((day, ..), sum)| (day.clone(), sum.requests)).collect();
    assert_eq!(sums, [("2025-11-02".to_owned(), 2)]);
}

#[test]
fn dry_run_prints_a_table_and_sends_nothing() {
    let mut stage = Stage::new(ReceiverKind::FirstWins);
    let (app, user) = (stage.dify.app("chat", "Help desk"), stage.dify.end_user("u"));
    stage.dify.plain(&app, "2025-11-02 12:00:00", Some(("openai", "gpt-4o")), (10, 1), Some("0.5"), &user);
    let mut command = stage.command(&["export", "dify", "--dry-run", "--month", "2025-11"]);
    // A dry run needs no receiver.
    command.env_remove("EXTERNAL_API_ENDPOINT").env_remove("EXTERNAL_API_TOKEN");
    let run = super::Run::of(command.output().unwrap());
    run.exits_with(0);
    for text in ["2025-11-02", "openai", "gpt-4o", "Help desk", "0.5", "new", "1 record;"] {
        assert!(run.stdout.contains(text), "{text}: {}", run.stdout);
    }
    assert!(stage.receiver.counted().bodies.is_empty());
    assert!(!stage.path().join("data").exists(), "nothing is written");
}

#[test]
fn debugger_usage_is_counted_and_flagged_or_excluded_on_request() {
    let mut stage = Stage::new(ReceiverKind::FirstWins);
    let (app, account) = (stage.dify.app("chat", "a"), stage.dify.account("dev@example.com"));
    let message = Message {
        app: &app,
        at: "2025-11-02 12:00:00",
        provider: Some("openai"),
        model: Some("gpt-4o"),
        input: 10,
        output: 1,
        price: Some("0.5"),
        currency: "USD",
        invoke_from: Some("debugger"),
        end_user: None,
        account: Some(&account),
    };
    stage.dify.message(&message);
    let flow = stage.dify.app("workflow", "w");
    let usage = r#"{"model_provider":"openai","model_name":"gpt-4o","usage":{"prompt_tokens":1,"completion_tokens":2,"total_price":0.25,"currency":"USD"}}"#;
    stage.dify.run(
        &flow,
        "2025-11-02 13:00:00",
        "debugging",
        ("account", &account),
        &[("llm", usage, "", "")],
    );
    stage.settings("include_debugger = false");
    let run = stage.run(&["export", "dify", "--json", "--dry-run", "--month", "2025-11"], &[]);
    assert_eq!(run.json()["records"].as_array().unwrap().len(), 0);
    stage.settings("");
    let run = stage.export(&["--month", "2025-11"]);
    run.exits_with(0);
    assert_eq!((run.sum("rows"), run.sum("debugger")), (2, 2));
    let records = stage.receiver.counted().records;
    assert_eq!(records.len(), 2);
    for record in records.values() {
        let record: ichido_usage::Record = serde_json::from_str(record.get()).unwrap();
        assert_eq!(record.metadata.source_user_id.as_deref(), Some("dev@example.com"));
        assert_eq!(record.metadata.debugger_request_count, Some(1));
    }
    assert_eq!(stage.receiver.cost().normalize().to_string(), "0.75");
}

#[test]
fn nulls_and_rows_of_old_dify_versions_are_counted() {
    let mut stage = Stage::new(ReceiverKind::FirstWins);
    stage.settings("mode = \"workspace\"");
    let (app, user) = (stage.dify.app("agent-chat", "a"), stage.dify.end_user("u"));
    stage.dify.plain(&app, "2025-11-02 00:00:00", None, (10, 1), None, &user);
    let flow = stage.dify.app("workflow", "w");
    let truncated = r#"{"model_provider":"openai","model_name":"gpt-4o","usage":{"prompt_to"#;
    let sum = r#"{"total_tokens":7,"total_price":"0.5","currency":"USD"}"#;
    let float = r#"{"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"total_price":0.0034500000000000004,"currency":"USD"}}"#;
    let nodes = [
        ("llm", truncated, "", sum),
        ("llm", "", float, ""),
        ("code", "", float, ""),
        ("tool", "{}", "{}", sum),
    ];
    stage.dify.run(&flow, "2025-11-02 23:59:59", "app-run", ("end_user", &user), &nodes);
    let run = stage.export(&["--month", "2025-11"]);
    run.exits_with(0);
    assert_eq!(run.sum("rows"), 3, "usage that code and tool nodes report is not their own");
    assert_eq!(stage.receiver.cost().normalize().to_string(), "0.50345");
    let totals = stage.receiver.totals();
    let unknown = &totals[&("2025-11-02".to_owned(), "unknown".to_owned(), "unknown".to_owned())];
    assert_eq!((unknown.requests, unknown.input, unknown.output), (3, 18, 3));
}

#[test]
fn several_workspaces_are_refused_until_one_is_selected() {
    let mut stage = Stage::new(ReceiverKind::FirstWins);
    let user = stage.dify.end_user("u");
    for tenant in [TENANT, OTHER_TENANT] {
        let app = stage.dify.app_of(tenant, "chat", "a");
        stage.dify.plain(
            &app,
            "2025-11-02 12:00:00",
            Some(("openai", "gpt-4o")),
            (10, 1),
            Some("0.5"),
            &user,
        );
    }
    let run = stage.export(&["--month", "2025-11"]);
    run.exits_with(2);
    assert!(
        run.last_line().contains("export.dify.workspace") && run.last_line().contains(OTHER_TENANT),
        "{}",
        run.last_line()
    );
    assert!(
        stage.receiver.counted().bodies.is_empty()
            && stage.watermark().is_none_or(|day| day.as_str() < "2025-11-02")
    );
    stage.settings(&format!("workspace = \"{TENANT}\""));
    std::fs::remove_dir_all(stage.path().join("data")).unwrap();
    stage.export(&["--month", "2025-11"]).exits_with(0);
    assert_eq!(stage.receiver.counted().records.len(), 1);
}

#[test]
fn usage_events_are_exported_from_json_lines() {
    let stage = Stage::new(ReceiverKind::FirstWins);
    let line = |id: usize, day: u32, tokens: u64| {
        json!({"id": format!("m{id}"), "time": format!("2025-11-{day:02}T01:02:03Z"), "tenant": "t", "provider": "openai",
            "model": "gpt-4o", "app_id": "a", "input_tokens": tokens, "output_tokens": 1, "price": "0.10", "currency": "USD"})
        .to_string()
    };
    let text = [line(1, 2, 10), line(2, 2, 20), "no JSON".to_owned(), line(3, 3, 30)].join("\n");
    std::fs::write(stage.path().join("usage.jsonl"), text).unwrap();
    let run = stage.run(&["export", "jsonl", "usage.jsonl", "--json"], &[]);
    run.exits_with(4);
    assert_eq!((run.sum("rows"), run.sum("new"), run.sum("refused")), (3, 2, 1));
    assert_eq!(stage.receiver.cost().normalize().to_string(), "0.3");
    assert_eq!(stage.files("failed").len(), 1);
    let again = stage.run(&["export", "jsonl", "usage.jsonl", "--json"], &[]);
    again.exits_with(0);
    assert_eq!((again.sum("new"), again.sum("unchanged"), stage.files("failed").len()), (0, 2, 1));
}

#[test]
fn debugger_events_in_json_lines_are_excluded_on_request() {
    let stage = Stage::new(ReceiverKind::FirstWins);
    stage.settings("include_debugger = false");
    let line = |debugger: bool, price: &str| {
        json!({"time": "2025-11-02T01:02:03Z", "tenant": "t", "provider": "openai", "model": "gpt-4o", "input_tokens": 1,
            "output_tokens": 1, "price": price, "currency": "USD", "debugger": debugger})
        .to_string()
    };
    let text = [line(true, "0.5"), line(false, "0.25")].join("\n");
    std::fs::write(stage.path().join("usage.jsonl"), text).unwrap();
    let run = stage.run(&["export", "jsonl", "usage.jsonl", "--json"], &[]);
    run.exits_with(0);
    assert_eq!((run.sum("rows"), run.sum("debugger"), run.sum("new")), (2, 1, 1));
    assert_eq!(stage.receiver.cost().normalize().to_string(), "0.25");
}
