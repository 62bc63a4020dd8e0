//! End-to-end tests of the meter: real processes, senders and databases.

mod budgets;
mod crashes;
mod ingest;
mod lifecycle;
mod queries;
mod sending;
mod statements;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use ichido_testkit::http_client::{self, Response};
use ichido_testkit::ledger_server::unique;
use ichido_testkit::process::Process;
use ichido_testkit::required_env;
use serde_json::{Value, json};

use crate::delivery::Run;

const TOKEN: &str = "tok-m3t3r-hunter3";

/// A running `ichido meter`.
pub(crate) struct Meter {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    scheme: &'static str,
    token: Option<&'static str>,
}

impl Meter {
    /// Starts a meter with a SQLite file and one tenant without a token.
    pub(crate) fn start(dir: &Path) -> Self {
        Self::start_with(dir, &[], &[])
    }

    /// Starts a meter with these flags and environment variables.
    pub(crate) fn start_with(dir: &Path, flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = command(dir);
        command.args(["meter", "--admin", "127.0.0.1:0"]);
        if !flags.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command.args(flags).envs(variables.iter().copied());
        let mut process = Process::start(&mut command).unwrap();
        Self {
            address: process.wait_for_address("ichido meter: listening on ").unwrap(),
            admin: process.wait_for_address("admin on ").unwrap(),
            scheme: if process.stderr().contains("listening on https") { "https" } else { "http" },
            token: variables.iter().any(|(name, _)| *name == "METER_TOKENS").then_some(TOKEN),
            process,
        }
    }

    pub(crate) fn post(&self, body: &Value) -> Response {
        self.call("POST", "/v1/usage", &[("Content-Type", "application/json")], body.to_string().as_bytes())
    }

    fn get(&self, path: &str) -> Response {
        self.call("GET", path, &[], b"")
    }

    pub(crate) fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        let bearer = self.token.map(|token| format!("Bearer {token}"));
        let mut all: Vec<(&str, &str)> = headers.to_vec();
        if let Some(bearer) =
            bearer.as_deref().filter(|_| !headers.iter().any(|(name, _)| *name == "Authorization"))
        {
            all.push(("Authorization", bearer));
        }
        http_client::send(self.address, method, path, &all, body)
    }

    /// The totals of all usage: records, requests and cost.
    fn totals(&self) -> (i64, i64, String) {
        let report = self.get("/v1/usage?group_by=").json();
        let rows = report["rows"].as_array().unwrap();
        assert!(rows.len() <= 1, "{report}");
        let Some(row) = rows.first() else { return (0, 0, "0".to_owned()) };
        let number = |name: &str| row[name].as_i64().unwrap();
        (number("records"), number("request_count"), row["cost_actual"].as_str().unwrap().to_owned())
    }
}

/// An `ichido` command without settings from the environment.
fn command(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ichido"));
    command.current_dir(dir);
    crate::without_settings(|name| {
        command.env_remove(name);
    });
    command
}

/// An `ichido` command that sends to this meter, with a short retry backoff.
fn sender_command(dir: &Path, meter: &Meter, args: &[&str]) -> Command {
    let mut command = command(dir);
    command
        .args(args)
        .env(
            "EXTERNAL_API_ENDPOINT",
            format!("{}://localhost:{}/v1/usage", meter.scheme, meter.address.port()),
        )
        .env("EXTERNAL_API_TOKEN", TOKEN)
        .env("RETRY_BACKOFF_MS", "10")
        .env("LOG_LEVEL", "info");
    match meter.scheme {
        "https" => command.env("EXTERNAL_API_CA_FILE", "cert.pem"),
        _ => command.env("EXTERNAL_API_ALLOW_HTTP_LOOPBACK", "on"),
    };
    command
}

/// Runs `ichido send` with a file.
pub(crate) fn send(dir: &Path, meter: &Meter, file: &Path, variables: &[(&str, &str)]) -> Run {
    let mut command = sender_command(dir, meter, &["send", "--json", file.to_str().unwrap()]);
    Run::of(command.envs(variables.iter().copied()).output().unwrap())
}

/// A usage record of one request that costs 0.0000001 USD.
pub(crate) fn record(id: usize) -> Value {
    let day = 1 + id % 28;
    json!({
        "usage_date": format!("2025-11-{day:02}"), "provider": "anthropic", "model": format!("claude-{}", id % 3),
        "input_tokens": 10, "output_tokens": 5, "total_tokens": 15, "request_count": 1,
        "cost_actual": "0.0000001", "currency": "USD",
        "metadata": {"source_system": "dify", "source_event_id": format!("dify-2025-11-{day:02}-e{id}"),
                     "source_app_id": format!("app-{}", id % 2), "source_app_name": "Support",
                     "aggregation_method": "daily_sum", "source_user_id": format!("u{}", id % 5),
                     "source_user_type": "end_user"},
    })
}

/// A record whose model and day are the same for every id.
fn record_of_one_day(id: usize) -> Value {
    let mut record = record(28 * 3 * id);
    record["metadata"]["source_event_id"] = json!(format!("dify-2025-11-01-e{id}"));
    record
}

/// Writes a JSON Lines file.
pub(crate) fn write_jsonl(dir: &Path, records: impl Iterator<Item = Value>) -> PathBuf {
    let path = dir.join("usage.jsonl");
    std::fs::write(&path, records.map(|record| format!("{record}\n")).collect::<String>()).unwrap();
    path
}

/// The files in one of the sender's directories below `data`, as JSON.
fn sender_files(dir: &Path, directory: &str) -> Vec<Value> {
    let entries = std::fs::read_dir(dir.join("data").join(directory)).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path()).filter(|path| path.is_file());
    files.map(|path| serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()).collect()
}

/// The URL of a new PostgreSQL schema for one test.
pub(crate) fn postgres() -> String {
    format!("{}?schema=m_{}", required_env("ICHIDO_TEST_POSTGRES_URL"), unique())
}
