//! kill -9 of both ends, again and again: each record is counted once.

use std::time::Duration;

use super::{Meter, files, lines, record, send, sender};
use crate::support::{Process, certificate};

const RECORDS: usize = 600;

/// Sender and meter are killed in turns, at moments that wander through the work.
fn campaign(db: &str) {
    let dir = tempfile::tempdir().unwrap();
    certificate(dir.path());
    let tls = "[meter]\ntls_cert_file = \"cert.pem\"\ntls_key_file = \"key.pem\"\n";
    std::fs::write(dir.path().join("ichido.toml"), tls).unwrap();
    let file = lines(dir.path(), (0..RECORDS).map(record));
    let impatient =
        [("BATCH_SIZE", "5"), ("RETRY_BACKOFF_MS", "1"), ("MAX_RETRIES", "1"), ("MAX_SPOOL_RETRIES", "1000")];
    let mut meter = Meter::start_with(dir.path(), &["--db", db], &[]);
    let address = meter.address.to_string();
    let mut seen = 0;
    for round in 0..12_u64 {
        let mut command = sender(dir.path(), &meter, &["send", file.to_str().unwrap()]);
        let mut sending = Process::start(command.envs(impatient));
        std::thread::sleep(Duration::from_millis(15 + 13 * round));
        if round % 3 != 2 {
            meter.process.kill();
        }
        if round % 3 != 1 {
            sending.kill();
        }
        if round % 3 != 2 {
            meter = Meter::start_with(dir.path(), &["--db", db, "--listen", &address], &[]);
        }
        sending.exit_code();
        let counted = of(&meter);
        assert!(
            counted >= seen && counted.is_multiple_of(5),
            "a batch is counted whole, and for ever: {seen}, {counted}"
        );
        seen = counted;
    }
    // What is still in the spool, or in dead hands, and the whole file again.
    send(dir.path(), &meter, &file, &[("BATCH_SIZE", "5")]).ends_with(0);
    assert!(files(dir.path(), "spool").is_empty() && files(dir.path(), "failed").is_empty());
    assert_eq!(of(&meter), RECORDS);
    meter.process.kill();
    std::fs::write(dir.path().join("ichido.toml"), "").unwrap();
    let meter = Meter::start_with(dir.path(), &["--db", db], &[]);
    assert_eq!(meter.sum(), (600, 600, "0.00006".to_owned()), "to the last digit");
    let days = meter.get("/v1/usage?group_by=day,model").json();
    let rows = days["rows"].as_array().unwrap();
    let expected = |row: &serde_json::Value| {
        let same = |id: &usize| {
            let record = record(*id);
            record["usage_date"] == row["usage_date"] && record["model"] == row["model"]
        };
        (0..RECORDS).filter(same).count()
    };
    assert!(rows.iter().all(|row| row["records"] == expected(row)), "{days}");
}

/// How many records are counted, asked over TLS.
fn of(meter: &Meter) -> usize {
    let metrics = std::process::Command::new("curl")
        .args(["-sSk", &format!("https://{}/v1/usage?group_by=", meter.address)])
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&metrics.stdout).unwrap();
    report["rows"][0]["records"].as_u64().map_or(0, |records| usize::try_from(records).unwrap())
}

#[test]
fn whenever_sender_and_meter_are_killed_each_record_is_counted_once() {
    campaign("sqlite:data/meter.db");
}

#[test]
fn whenever_sender_and_meter_are_killed_postgres_counts_each_record_once() {
    campaign(&super::postgres());
}
