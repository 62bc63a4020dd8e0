//! From generated usage over TLS to a real meter: the export is killed, the network is bad, and the totals are equal.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::Stage;
use super::dify::{Books, Sum};
use super::receiver::{Act, Habit, TOKEN};
use crate::support::{Process, address_after, eventually, http};

const DAYS: [&str; 7] = ["export", "dify", "--json", "--from", "2025-11-01", "--to", "2025-11-08"];

/// A running `ichido meter` in a directory of its own.
struct Meter {
    _process: Process,
    address: std::net::SocketAddr,
}

impl Meter {
    fn start(dir: &Path, profile: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ichido"));
        command.current_dir(dir).args([
            "meter",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "off",
            "--db",
            "sqlite:meter.db",
        ]);
        crate::without_settings(|name| {
            command.env_remove(name);
        });
        command.env("METER_TOKENS", format!("acme={TOKEN}")).env("METER_PROFILE", profile);
        let process = Process::start(&mut command);
        let address = eventually("the meter's start line", || {
            let said = process.said();
            let line = said.lines().find(|line| line.contains("ichido meter: "))?;
            Some(address_after(line, "listening on "))
        });
        Self { _process: process, address }
    }

    /// Sums by day and model, as the meter tells them.
    fn books(&self) -> Books {
        let bearer = format!("Bearer {TOKEN}");
        let path = "/v1/usage?from=2025-11-01&to=2025-11-30&group_by=day,model";
        let answer = http::send(self.address, "GET", path, &[("Authorization", &bearer)], b"");
        assert_eq!(answer.status, 200, "{answer:?}");
        let rows = answer.json()["rows"].as_array().unwrap().clone();
        let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
        let number = |row: &Value, name: &str| row[name].as_u64().unwrap();
        let sum = |row: &Value| Sum {
            requests: number(row, "request_count"),
            input: number(row, "input_tokens"),
            output: number(row, "output_tokens"),
            cost: text(row, "cost_actual").parse().unwrap(),
        };
        rows.iter()
            .map(|row| ((text(row, "usage_date"), text(row, "provider"), text(row, "model")), sum(row)))
            .collect()
    }
}

fn end_to_end(profile: &'static str, mode: &str) {
    let home = tempfile::tempdir().unwrap();
    let meter = Meter::start(home.path(), profile);
    let mut stage = Stage::new(Habit::Meter(meter.address));
    stage.profile = profile;
    stage.settings(&format!("mode = \"{mode}\"\nzone = \"Asia/Tokyo\""));
    stage.dify.generate(11, 2..=7, 300, "Asia/Tokyo");
    stage.receiver.does(|turn| match turn % 7 {
        0 | 3 => Act::Say(503),
        1 => Act::CountAndHangUp,
        5 => Act::HangUp,
        _ => Act::Count,
    });
    let settings = [("BATCH_SIZE", "5"), ("RETRY_BACKOFF_MS", "1")];
    for round in 0..8u64 {
        let mut process = Process::start(stage.command(&DAYS).envs(settings));
        std::thread::sleep(Duration::from_millis(25 + 37 * round));
        process.kill();
    }
    stage.receiver.does(|_| Act::Count);
    for _ in 0..2 {
        stage.run(&DAYS, &settings);
    }
    stage.run(&DAYS, &settings).ends_with(0);
    assert_eq!(meter.books(), stage.dify.books, "equal to the last digit, by day and model");
    let same = stage.run(&["reconcile", "--json"], &[]);
    same.ends_with(0);
    assert_eq!(same.json()["receiver_answers"], true);
}

#[test]
fn a_killed_export_over_a_bad_network_leaves_a_meter_that_is_right_to_the_cent() {
    end_to_end("first_wins", "per_model");
}

#[test]
fn the_same_with_a_meter_that_replaces_by_id() {
    end_to_end("upsert_by_event_id", "per_app");
}

#[test]
fn the_same_with_a_meter_that_replaces_by_model_and_day() {
    end_to_end("upsert_by_model_day", "per_user");
}
