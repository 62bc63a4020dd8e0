//! Exports generated usage over TLS to a real meter. Although the export or the meter is killed and the network fails, the
//! totals match exactly.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ichido_testkit::process::Process;
use ichido_testkit::wait::eventually;
use serde_json::Value;

use super::dify::{Sum, Totals};
use super::receiver::{Action, ReceiverKind, TOKEN};
use super::{ALL_DAYS, Stage};
use crate::meter::Meter;

fn meter(dir: &Path, profile: &str, listen: &str) -> Meter {
    let tokens = format!("acme={TOKEN}");
    Meter::start_with(dir, &["--listen", listen], &[("METER_TOKENS", &tokens), ("METER_PROFILE", profile)])
}

/// The totals by day and model that the meter reports.
fn totals(meter: &Meter) -> Totals {
    let bearer = format!("Bearer {TOKEN}");
    let path = "/v1/usage?from=2025-11-01&to=2025-11-30&group_by=day,model";
    let response = meter.call("GET", path, &[("Authorization", &bearer)], b"");
    assert_eq!(response.status, 200, "{response:?}");
    let rows = response.json()["rows"].as_array().unwrap().clone();
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

/// A stage with a week of generated usage, whose receiver is this meter.
fn stage(meter: &Meter, profile: &'static str, mode: &str) -> Stage {
    let mut stage = Stage::new(ReceiverKind::Meter(meter.address));
    stage.profile = profile;
    stage.settings(&format!("mode = \"{mode}\"\nzone = \"Asia/Tokyo\""));
    stage.dify.generate(11, 2..=7, 300, "Asia/Tokyo");
    stage
}

fn assert_totals_match(stage: &Stage, meter: &Meter) {
    assert_eq!(totals(meter), stage.dify.totals, "exact totals by day and model");
    assert!(stage.files("spool").is_empty() && stage.files("failed").is_empty());
    let same = stage.run(&["reconcile", "--json"], &[]);
    same.exits_with(0);
    assert_eq!(same.json()["receiver_answers"], true);
}

fn export_killed_repeatedly(profile: &'static str, mode: &str) {
    let meter_dir = tempfile::tempdir().unwrap();
    let meter = meter(meter_dir.path(), profile, "127.0.0.1:0");
    let stage = stage(&meter, profile, mode);
    stage.export_despite_kills();
    assert_totals_match(&stage, &meter);
}

#[test]
fn killed_export_over_a_bad_network_gives_exact_totals_in_the_meter() {
    export_killed_repeatedly("first_wins", "per_model");
}

#[test]
fn killed_export_gives_exact_totals_in_a_meter_that_upserts_by_event_id() {
    export_killed_repeatedly("upsert_by_event_id", "per_app");
}

#[test]
fn killed_export_gives_exact_totals_in_a_meter_that_upserts_by_model_and_day() {
    export_killed_repeatedly("upsert_by_model_day", "per_user");
}

/// The numbers of the requests during which the meter is killed with SIGKILL.
const KILLED_DURING: [usize; 4] = [2, 9, 16, 23];

/// Exports while the meter is killed and restarted, each time a little later within a request.
fn export_to_killed_meter(profile: &'static str) {
    let meter_dir = tempfile::tempdir().unwrap();
    let first = meter(meter_dir.path(), profile, "127.0.0.1:0");
    let (stage, address) = (stage(&first, profile, "per_model"), first.address.to_string());
    let meters = Arc::new(Mutex::new(vec![first]));
    let (dir, script_meters) = (meter_dir.path().to_owned(), meters.clone());
    stage.receiver.set_script(move |request_number| {
        if let Some(round) = KILLED_DURING.iter().position(|number| *number == request_number) {
            let (dir, meters, address) = (dir.clone(), script_meters.clone(), address.clone());
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(round as u64));
                let mut meters = meters.lock().unwrap();
                meters.last_mut().unwrap().process.kill();
                meters.push(meter(&dir, profile, &address));
            });
        }
        Action::Count
    });
    let settings = [("BATCH_SIZE", "2"), ("RETRY_BACKOFF_MS", "20"), ("MAX_RETRIES", "10")];
    let mut export = Process::start(stage.command(&ALL_DAYS).envs(settings)).unwrap();
    eventually("the last restart of the meter", || {
        (meters.lock().unwrap().len() == KILLED_DURING.len() + 1).then_some(())
    });
    assert_eq!(export.exit_code(), 0, "{}", export.stderr());
    assert!(
        export.stderr().contains("not delivered"),
        "no request failed while the meter was down: {}",
        export.stderr()
    );
    assert_totals_match(&stage, meters.lock().unwrap().last().unwrap());
}

#[test]
fn meter_killed_during_an_export_has_exact_totals() {
    export_to_killed_meter("first_wins");
}

#[test]
fn meter_that_upserts_by_event_id_and_is_killed_during_an_export_has_exact_totals() {
    export_to_killed_meter("upsert_by_event_id");
}
