//! A test for each block of commands, with the servers and files that it needs.

use ichido_testkit::receiver::Reply;
use ichido_testkit::required_env;

use super::commands::ANY_PORT;
use super::shell::{Shell, example};
use super::{run_block, run_blocks};
use crate::delivery::Fixture;
use crate::serving::Serving;

const README: &str = "README.md";

fn repository_path(path: &str) -> String {
    let repository = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    repository.join(path).display().to_string()
}

#[test]
fn demo_runs() {
    run_block(README, "cargo run --release -- demo", Shell::new());
}

#[test]
fn quick_start_works_as_written() {
    let mut shell = Shell::new();
    shell.replace("examples/orders.py", repository_path("examples/orders.py"));
    shell.variable("PORT", "0");
    run_blocks(README, &["python3 examples/orders.py", "curl -X POST"], shell);
}

#[test]
fn express_and_fastapi_run_behind_the_gateway() {
    let mut shell = Shell::new();
    shell.program("node", &required_env("ICHIDO_TEST_NODE"));
    shell.program("uvicorn", &required_env("ICHIDO_TEST_UVICORN"));
    shell.file("server.js", &example("express/server.js"));
    shell.file("app.py", &example("fastapi/app.py"));
    shell.variable("NODE_PATH", required_env("ICHIDO_TEST_NODE_MODULES"));
    shell.variable("PORT", "0");
    shell.replace("--port 8000", "--port 0");
    shell.replace("0.0.0.0:8080", "127.0.0.1:0");
    run_block("docs/gateway.md", "node server.js", shell);
}

/// A shell with its own table on a real DynamoDB.
fn shell_with_table() -> Shell {
    let mut shell = Shell::new();
    let (table, server) = crate::events::create_table();
    shell.variable("DEDUP_TABLE_NAME", table);
    shell.variable("AWS_ENDPOINT_URL_DYNAMODB", server);
    shell
}

#[test]
fn event_is_checked() {
    run_block("docs/events.md", "ichido claims", shell_with_table());
}

#[test]
fn events_in_doubt_are_resolved() {
    let mut shell = Shell::new();
    let mut claims = Serving::claims(shell.dir.path(), "file:data/ledger", None);
    for key in ["Ev07A", "Ev07B"] {
        let granted = claims.post("/v1/claims", &serde_json::json!({ "key": key }).to_string());
        let body = serde_json::json!({ "key": key, "token": granted.json()["token"], "reason": "timeout" });
        assert_eq!(claims.post("/v1/claims/doubt", &body.to_string()).status, 200);
    }
    claims.signal();
    assert_eq!(claims.exit_code(), 0);
    shell.replace("Ev07… --as done", "Ev07A --as done");
    shell.replace("Ev07… --as absent", "Ev07B --as absent");
    run_block("docs/events.md", "ichido ledger list", shell);
}

#[test]
fn claims_and_events_are_forgotten() {
    let mut shell = Shell::new();
    let mut claims = Serving::claims(shell.dir.path(), "file:data/ledger", None);
    let granted = claims.post("/v1/claims", r#"{"key":"Ev07C"}"#);
    let body = serde_json::json!({ "key": "Ev07C", "token": granted.json()["token"], "outcome": "ok" });
    assert_eq!(claims.post("/v1/claims/complete", &body.to_string()).status, 200);
    let events = r#"{"events":[{"key":"Ev07D","metadata":{"lambda_instance_id":"bot-1"}}]}"#;
    assert_eq!(claims.post("/v1/events/check", events).status, 200);
    claims.signal();
    assert_eq!(claims.exit_code(), 0);
    shell.replace("Ev07… --reason", "Ev07C --reason");
    shell.replace("show Ev07…", "show Ev07D");
    shell.replace("forget Ev07… --yes", "forget Ev07D --yes");
    shell.replace("timeline Ev07…", "timeline Ev07D");
    let hash = ichido_core::MarkKey::new("Ev07D").unwrap().index().to_string();
    shell.replace("timeline 5feceb66ffc86f38", format!("timeline {}", &hash[..16]));
    let blocks =
        ["ichido ledger forget", "ichido events list", "ichido events history", "ichido events anomalies"];
    run_blocks("docs/events.md", &blocks, shell);
}

#[test]
fn dynamodb_table_is_checked() {
    run_block("docs/dynamodb.md", "aws ", shell_with_table());
}

#[test]
fn records_are_sent() {
    let mut shell = Shell::new();
    let stage = Fixture::new();
    shell.replace("https://api.example.com", stage.url(""));
    shell.replace("/run/secrets/token", shell.dir.path().join("token").display().to_string());
    shell.variable("EXTERNAL_API_CA_FILE", stage.ca.display().to_string());
    shell.file("token", "docs-token\n");
    let record = |number: u32| format!("{{\"source_event_id\":\"e{number}\",\"total_tokens\":{number}}}\n");
    shell.file("usage.jsonl", &(0..3).map(record).collect::<String>());
    run_block("docs/delivery.md", "export EXTERNAL_API_ENDPOINT=https://api.example.com", shell);
    stage.receiver.assert_each_record_once(3);
}

#[test]
fn spooled_and_failed_batches_are_resent() {
    let stage = Fixture::new();
    stage.receiver.on_batch(|_| Reply::Status(422, "no".to_owned()));
    stage.send(1, &[("MAX_RETRIES", "0")]).exits_with(4);
    stage.receiver.on_batch(|_| Reply::Status(503, String::new()));
    stage.send(2, &[("MAX_RETRIES", "0")]).exits_with(3);
    stage.receiver.on_batch(|_| Reply::Accept);
    let (failed, _) = stage.files("failed").remove(0);
    let name = failed.file_stem().unwrap().to_str().unwrap().to_owned();
    let mut shell = Shell::new();
    shell.replace("a3f2e1b9c4d5", name.rsplit('_').next().unwrap());
    shell.variable("EXTERNAL_API_ENDPOINT", stage.url("/v1/usage"));
    shell.variable("EXTERNAL_API_TOKEN", "docs-token");
    shell.variable("EXTERNAL_API_CA_FILE", stage.ca.display().to_string());
    shell.variable("DATA_DIR", stage.path().join("data").display().to_string());
    run_block("docs/delivery.md", "ichido spool list", shell);
    assert_eq!((stage.files("spool").len(), stage.files("failed").len()), (0, 0));
}

#[test]
fn usage_is_exported_to_a_local_meter() {
    let mut shell = Shell::new();
    let yesterday = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date().yesterday().unwrap();
    let yesterday = yesterday.to_string();
    shell.replace("postgres://readonly@dify-db/dify", crate::export::dify_with_one_call_on(&yesterday));
    shell.replace("2026-11-01", yesterday.clone());
    shell.replace("2026-11-15", yesterday);
    // By default, a day can be exported only an hour after its end. Without this, the test would fail in that hour.
    shell.file("ichido.toml", "[export.dify]\nsettle_minutes = 0\n");
    run_block("docs/usage.md", "export DIFY_DATABASE_URL=postgres://readonly", shell);
}

#[test]
fn usage_is_exported_to_a_remote_meter() {
    let mut shell = Shell::new();
    shell.variable("METER_TOKENS", "acme=docs-token");
    let meter = shell.serve(&format!("ichido meter {ANY_PORT}"));
    shell.file("token", "docs-token\n");
    shell.variable("EXTERNAL_API_ALLOW_HTTP_LOOPBACK", "on");
    shell.replace("https://meter.example.com", format!("http://{meter}"));
    shell.replace("/run/secrets/token", shell.dir.path().join("token").display().to_string());
    shell.replace("postgres://reader:…@db/dify", crate::export::dify_with_one_call_on("2025-11-10"));
    run_block("docs/usage.md", "cat > ichido.toml", shell);
}

#[test]
fn meter_starts() {
    let mut shell = Shell::new();
    shell.replace("postgres://meter@db/usage", format!("'{}'", crate::meter::postgres()));
    shell.replace("0.0.0.0:8090", "127.0.0.1:0");
    run_block("docs/meter.md", "ichido meter", shell);
}

#[test]
fn ichido_is_installed() {
    let mut shell = Shell::new();
    shell.replace("deploy/systemd/ichido.service", repository_path("deploy/systemd/ichido.service"));
    shell.replace("/etc/systemd/system/", "./");
    shell.replace("/etc/bash_completion.d/ichido", "ichido.bash");
    shell.replace("/usr/local/share/man/man1", "man1");
    run_block("docs/operations.md", "cargo install", shell);
}

#[test]
fn a_ledger_is_backed_up_and_restored_as_written() {
    let mut shell = Shell::new();
    shell.replace("/var/backups", "backups");
    crate::ok(shell.dir.path(), &["ledger", "init"]);
    run_blocks("docs/operations.md", &["ichido ledger backup", "mv data/ledger"], shell);
}
