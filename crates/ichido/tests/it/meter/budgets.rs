//! Budgets: a notice at each threshold, once, whatever is restarted; a metric, the console, and the statement.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ichido_testkit::http_client::get;
use ichido_testkit::wait::eventually;
use serde_json::{Value, json};

use super::{Meter, command, record};
use crate::delivery::Run;
use crate::serving::Serving;

const SETTINGS: &str = "
[meter]
listen = \"127.0.0.1:0\"
[[meter.budgets]]
app = \"app-0\"
month_cost = \"100.00\"
currency = \"USD\"
[[meter.budgets]]
month_tokens = 1000
";

fn this_month() -> String {
    let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    now.strftime("%Y-%m").to_string()
}

/// A record of this month.
fn used(id: usize, tokens: u64, cost: &str) -> Value {
    let mut record = record(2 * id);
    record["usage_date"] = format!("{}-01", this_month()).into();
    record["metadata"]["source_event_id"] = format!("e{id}").into();
    (record["input_tokens"], record["total_tokens"]) = (tokens.into(), (tokens + 5).into());
    record["cost_actual"] = cost.into();
    record
}

/// A program that keeps every message, and the variable that names it.
fn program(dir: &Path) -> String {
    let path = dir.join("notify.sh");
    std::fs::write(&path, format!("#!/bin/sh\n(cat; echo) >> {}/got\n", dir.display())).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    path.display().to_string()
}

/// The budget notices so far: unit and threshold.
fn notices(dir: &Path) -> Vec<(String, u64)> {
    let got = std::fs::read_to_string(dir.join("got")).unwrap_or_default();
    let messages = got.lines().filter(|line| !line.is_empty());
    let messages: Vec<Value> = messages.map(|line| serde_json::from_str(line).unwrap()).collect();
    let notices = messages.iter().flat_map(|message| message["notices"].as_array().unwrap());
    let mut found: Vec<_> = notices
        .map(|notice| {
            let details = &notice["details"];
            assert_eq!(
                (&notice["event"], &details["tenant"]),
                (&json!("budget"), &json!("default")),
                "{notice}"
            );
            (details["unit"].as_str().unwrap().to_owned(), details["threshold"].as_u64().unwrap())
        })
        .collect();
    found.sort();
    found
}

fn found(pairs: &[(&str, u64)]) -> Vec<(String, u64)> {
    pairs.iter().map(|(unit, threshold)| ((*unit).to_owned(), *threshold)).collect()
}

#[test]
fn each_threshold_is_announced_once_across_restarts_and_shown() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("ichido.toml"), SETTINGS).unwrap();
    let command_line = program(dir.path());
    let variables = [("NOTIFY_COMMAND", command_line.as_str())];
    let mut meter = Meter::start_with(dir.path(), &[], &variables);
    meter.post(&json!({"records": [used(1, 10, "79.99")]}));
    meter.post(&json!({"records": [used(2, 10, "0.01")]}));
    eventually("80 % of the cost", || (notices(dir.path()) == found(&[("USD", 80)])).then_some(()));
    let metrics = get(meter.admin, "/metrics").text();
    let line = r#"ichido_meter_budget_used_ratio{tenant="default",app="app-0",unit="USD",limit="100"} 0.8"#;
    assert!(metrics.contains(line), "{metrics}");
    let page = get(meter.admin, "/usage").text();
    assert!(page.contains("Budgets") && page.contains("80 USD") && page.contains("80 %"), "{page}");
    meter.process.kill();

    // The tokens are used up at once while nobody watches: one notice is enough.
    let meter = Meter::start_with(dir.path(), &[], &[]);
    meter.post(&json!({"records": [used(3, 1000, "0")]}));
    drop(meter);
    std::fs::remove_dir_all(dir.path().join("data/notices")).ok();
    let connection = rusqlite::Connection::open(dir.path().join("data/meter.db")).unwrap();
    connection.execute("DELETE FROM budget_notices WHERE budget LIKE '%tokens%'", []).unwrap();
    drop(connection);
    let mut serving = Serving::daemon(dir.path(), "memory:", &variables);
    eventually("the tokens", || (notices(dir.path()).len() > 1).then_some(()));
    assert_eq!(notices(dir.path()), found(&[("USD", 80), ("tokens", 100)]));
    serving.signal();
    assert_eq!(serving.exit_code(), 0);

    let text =
        Run::of(command(dir.path()).args(["report", "usage", "--month", &this_month()]).output().unwrap());
    let text = &text.exits_with(0).stdout;
    assert!(text.contains("budget of app app-0: 80 of 100 USD used (80 %)"), "{text}");
    assert!(text.contains("budget of all apps: 1035 of 1000 tokens used (103 %)"), "{text}");
    let counted: i64 = rusqlite::Connection::open(dir.path().join("data/meter.db"))
        .unwrap()
        .query_row("SELECT count(*) FROM budget_notices", [], |row| row.get(0))
        .unwrap();
    assert_eq!(counted, 3, "80 % of the cost, 80 % and 100 % of the tokens");
}
