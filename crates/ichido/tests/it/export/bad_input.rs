//! Invalid input is named in one line, and nothing is sent partially.

use super::Stage;
use super::dify::Message;
use super::receiver::ReceiverKind;

const MODEL: Option<(&str, &str)> = Some(("openai", "gpt-4o"));

#[track_caller]
fn assert_refused(stage: &Stage, args: &[&str], expected: &str) {
    let run = stage.export(args);
    run.exits_with(2);
    assert!(run.last_line().contains(expected), "{args:?}: {}", run.last_line());
    assert!(stage.receiver.counted().bodies.is_empty());
}

#[test]
fn invalid_days_and_settings_are_named() {
    let stage = Stage::new(ReceiverKind::FirstWins);
    assert_refused(&stage, &["--from", "2025-11-31"], "--from");
    assert_refused(&stage, &["--from", "2025-11-02", "--to", "2025-11-01"], "--to");
    assert_refused(&stage, &["--month", "2025-13"], "--month");
    for (settings, expected) in [
        ("zone = \"Asia/Tokio\"", "export.dify.zone"),
        ("mode = \"per_cat\"", "export.dify.mode"),
        ("period = \"hourly\"", "export.dify.period"),
        ("scheme = \"md5\"", "export.dify.scheme"),
        ("settle_minutes = 99999", "export.dify.settle_minutes"),
        ("cron = \"often\"", "export.dify.cron"),
        ("providers = { \"*\" = \"x\" }", "export.dify.providers"),
        ("database = \"postgres://u:hunter2@h/d\"", "DIFY_DATABASE_PASSWORD"),
        ("colour = \"red\"", "colour"),
    ] {
        stage.settings(settings);
        let mut command = stage.command(&["export", "dify", "--yesterday"]);
        if settings.starts_with("database") {
            command.env_remove("DIFY_DATABASE_URL");
        }
        let run = super::Run::of(command.output().unwrap());
        assert!(run.exits_with(2).last_line().contains(expected), "{settings}: {}", run.last_line());
    }
    stage.settings("");
    let plain = stage.run(&["export", "dify", "--yesterday"], &[("EXTERNAL_API_ENVELOPE", "plain")]);
    assert!(plain.exits_with(2).last_line().contains("EXTERNAL_API_ENVELOPE"));
    let batch = stage.run(&["export", "dify", "--yesterday"], &[("EXTERNAL_API_CONFLICT", "batch")]);
    assert!(batch.exits_with(2).last_line().contains("EXTERNAL_API_CONFLICT"));
}

#[test]
fn missing_table_or_column_is_named_before_anything_is_read() {
    let stage = Stage::new(ReceiverKind::FirstWins);
    stage.dify.sql("ALTER TABLE messages DROP COLUMN total_price");
    assert_refused(&stage, &["--month", "2025-11"], "the table messages has no column total_price");
    stage.dify.sql("DROP TABLE workflow_node_executions");
    stage.dify.sql("ALTER TABLE messages ADD COLUMN total_price numeric(10,7)");
    assert_refused(&stage, &["--month", "2025-11"], "there is no table workflow_node_executions");
    let check = stage.run(&["check"], &[]);
    check.exits_with(1);
    assert!(check.stdout.contains("workflow_node_executions"), "{}", check.stdout);
}

#[test]
fn invalid_rows_move_to_failed_and_the_others_are_exported() {
    let mut stage = Stage::new(ReceiverKind::FirstWins);
    let (app, user) = (stage.dify.app("chat", "a"), stage.dify.end_user("u"));
    let good = Message {
        app: &app,
        at: "2025-11-02 12:00:00",
        provider: Some("openai"),
        model: Some("gpt-4o"),
        input: 10,
        output: 1,
        price: Some("0.5"),
        currency: "USD",
        invoke_from: None,
        end_user: Some(&user),
        account: None,
    };
    stage.dify.message(&good);
    let negative = stage.dify.message(&Message { input: -5, ..good.clone() });
    stage.dify.message(&Message { price: Some("-1"), ..good.clone() });
    let flow = stage.dify.app("workflow", "w");
    let invalid_price = r#"{"model_provider":"p","model_name":"m","usage":{"prompt_tokens":1,"completion_tokens":1,"total_price":"a lot","currency":"USD"}}"#;
    stage.dify.run(
        &flow,
        "2025-11-02 13:00:00",
        "app-run",
        ("end_user", &user),
        &[("llm", invalid_price, "", "")],
    );
    // '|' separates the parts of an event id, so it would make ids ambiguous.
    let with_bar = stage.dify.end_user("a|b");
    stage.dify.plain(&app, "2025-11-02 14:00:00", MODEL, (10, 1), Some("1"), &with_bar);
    let run = stage.export(&["--month", "2025-11"]);
    run.exits_with(4);
    assert_eq!((run.sum("refused"), run.sum("new")), (4, 1));
    assert_eq!(stage.receiver.cost().normalize().to_string(), "0.5");
    let failed: String =
        stage.files("failed").iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    for expected in [
        negative.as_str(),
        "message_tokens: must not be negative",
        "total_price: not a number",
        "must not contain '|'",
    ] {
        assert!(failed.contains(expected), "{expected}: {failed}");
    }
    let again = stage.export(&["--month", "2025-11"]);
    again.exits_with(0);
    assert_eq!(stage.files("failed").len(), 4, "each invalid row is stored once");
}

#[test]
fn empty_workspace_is_exported_and_unreachable_database_is_named() {
    let stage = Stage::new(ReceiverKind::FirstWins);
    let run = stage.export(&["--month", "2025-11"]);
    run.exits_with(0);
    assert_eq!((run.sum("rows"), run.sum("records")), (0, 0));
    assert_eq!(stage.watermark().as_deref(), Some("2025-11-30"));
    let unreachable = [("DIFY_DATABASE_URL", "postgres://u:hunter2@127.0.0.1:1/d")];
    let check = stage.run(&["check"], &unreachable);
    check.exits_with(1);
    assert!(check.stdout.contains("Dify's database"), "{}", check.stdout);
    let unset = stage.run(&["export", "dify"], &[("DIFY_DATABASE_URL", "")]);
    assert!(unset.exits_with(2).last_line().contains("DIFY_DATABASE_URL"));
}

#[test]
fn export_needs_only_read_access_to_dify() {
    let mut stage = Stage::new(ReceiverKind::FirstWins);
    let (app, user) = (stage.dify.app("chat", "a"), stage.dify.end_user("u"));
    stage.dify.plain(&app, "2025-11-02 12:00:00", MODEL, (10, 1), Some("1"), &user);
    // This role may read and do nothing else.
    let role = format!(
        "reader_{}",
        ichido_testkit::ledger_server::unique()
            .to_lowercase()
            .replace(|c: char| !c.is_ascii_alphanumeric(), "")
    );
    let schema = stage.dify.url.rsplit("%3D").next().unwrap().to_owned();
    stage.dify.sql(&format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}"
    ));
    let url = stage.dify.url.replace("postgres@", &format!("{role}@"));
    stage.run(&["export", "dify", "--month", "2025-11"], &[("DIFY_DATABASE_URL", &url)]).exits_with(0);
    assert_eq!(stage.receiver.counted().records.len(), 1);
    stage.dify.sql(&format!("REVOKE SELECT ON messages FROM {role}"));
    let denied = stage.run(&["export", "dify", "--month", "2025-10"], &[("DIFY_DATABASE_URL", &url)]);
    assert!(
        denied.exits_with(2).last_line().contains("permission denied for table messages"),
        "{}",
        denied.last_line()
    );
}
