//! From generated usage over TLS to a real meter: the export is killed, the meter is killed, the network is bad, and the
//! totals are equal.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use super::dify::{Books, Sum};
use super::receiver::{Act, Habit, TOKEN};
use super::{ALL_DAYS, Stage};
use crate::meter::Meter;
use crate::support::{Process, eventually};

fn meter(dir: &Path, profile: &str, listen: &str) -> Meter {
    let tokens = format!("acme={TOKEN}");
    Meter::start_with(dir, &["--listen", listen], &[("METER_TOKENS", &tokens), ("METER_PROFILE", profile)])
}

/// Sums by day and model, as the meter tells them.
fn books(meter: &Meter) -> Books {
    let bearer = format!("Bearer {TOKEN}");
    let path = "/v1/usage?from=2025-11-01&to=2025-11-30&group_by=day,model";
    let answer = meter.call("GET", path, &[("Authorization", &bearer)], b"");
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

/// A meter in a directory, and usage of a week that goes to it.
fn stage(meter: &Meter, profile: &'static str, mode: &str) -> Stage {
    let mut stage = Stage::new(Habit::Meter(meter.address));
    stage.profile = profile;
    stage.settings(&format!("mode = \"{mode}\"\nzone = \"Asia/Tokyo\""));
    stage.dify.generate(11, 2..=7, 300, "Asia/Tokyo");
    stage
}

fn is_right(stage: &Stage, meter: &Meter) {
    assert_eq!(books(meter), stage.dify.books, "equal to the last digit, by day and model");
    let same = stage.run(&["reconcile", "--json"], &[]);
    same.ends_with(0);
    assert_eq!(same.json()["receiver_answers"], true);
}

fn end_to_end(profile: &'static str, mode: &str) {
    let home = tempfile::tempdir().unwrap();
    let meter = meter(home.path(), profile, "127.0.0.1:0");
    let stage = stage(&meter, profile, mode);
    stage.killed_again_and_again();
    is_right(&stage, &meter);
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

/// Requests in the midst of which the meter gets kill -9.
const LAST: [usize; 4] = [2, 9, 16, 23];

/// The export goes on while the meter is killed and started again, each time a little later in a request.
fn killed_meter(profile: &'static str) {
    let home = tempfile::tempdir().unwrap();
    let first = meter(home.path(), profile, "127.0.0.1:0");
    let (stage, address) = (stage(&first, profile, "per_model"), first.address.to_string());
    let lives = Arc::new(Mutex::new(vec![first]));
    let (dir, of_script) = (home.path().to_owned(), lives.clone());
    stage.receiver.does(move |turn| {
        if let Some(round) = LAST.iter().position(|last| *last == turn) {
            let (dir, lives, address) = (dir.clone(), of_script.clone(), address.clone());
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(round as u64));
                let mut lives = lives.lock().unwrap();
                lives.last_mut().unwrap().process.kill();
                lives.push(meter(&dir, profile, &address));
            });
        }
        Act::Count
    });
    let patient = [("BATCH_SIZE", "2"), ("RETRY_BACKOFF_MS", "20"), ("MAX_RETRIES", "10")];
    let mut export = Process::start(stage.command(&ALL_DAYS).envs(patient));
    eventually("the last life of the meter", || {
        (lives.lock().unwrap().len() == LAST.len() + 1).then_some(())
    });
    assert_eq!(export.exit_code(), 0, "{}", export.stderr());
    assert!(export.stderr().contains("not delivered"), "no request met a dead meter: {}", export.stderr());
    is_right(&stage, lives.lock().unwrap().last().unwrap());
    assert!(stage.files("spool").is_empty() && stage.files("failed").is_empty());
}

#[test]
fn a_meter_that_is_killed_in_the_middle_of_an_export_is_right_to_the_cent() {
    killed_meter("first_wins");
}

#[test]
fn a_meter_that_replaces_by_id_and_is_killed_in_the_middle_of_an_export_is_right_to_the_cent() {
    killed_meter("upsert_by_event_id");
}
