//! Sender and meter are killed again and again, and each record is still counted once.

use std::time::Duration;

use ichido_testkit::certificates::write_self_signed;
use ichido_testkit::process::Process;

use super::{Meter, record, send, sender_command, sender_files, write_jsonl};

const RECORDS: usize = 600;

/// Kills the sender, the meter or both, each round at a later moment of the transfer.
fn kill_repeatedly(db: &str) {
    let dir = tempfile::tempdir().unwrap();
    write_self_signed(dir.path());
    let tls = "[meter]\ntls_cert_file = \"cert.pem\"\ntls_key_file = \"key.pem\"\n";
    std::fs::write(dir.path().join("ichido.toml"), tls).unwrap();
    let file = write_jsonl(dir.path(), (0..RECORDS).map(record));
    let fast_settings =
        [("BATCH_SIZE", "5"), ("RETRY_BACKOFF_MS", "1"), ("MAX_RETRIES", "1"), ("MAX_SPOOL_RETRIES", "1000")];
    let mut meter = Meter::start_with(dir.path(), &["--db", db], &[]);
    let address = meter.address.to_string();
    let mut counted_before = 0;
    for round in 0..12_u64 {
        let mut command = sender_command(dir.path(), &meter, &["send", file.to_str().unwrap()]);
        let mut sender = Process::start(command.envs(fast_settings)).unwrap();
        std::thread::sleep(Duration::from_millis(15 + 13 * round));
        if round % 3 != 2 {
            meter.process.kill();
        }
        if round % 3 != 1 {
            sender.kill();
        }
        if round % 3 != 2 {
            meter = Meter::start_with(dir.path(), &["--db", db, "--listen", &address], &[]);
        }
        sender.exit_code();
        let counted = counted_records(&meter);
        assert!(
            counted >= counted_before && counted.is_multiple_of(5),
            "batches are counted whole and stay counted: {counted_before} before, now {counted}"
        );
        counted_before = counted;
    }
    // Sends the spool, what killed senders left in flight, and the whole file again.
    send(dir.path(), &meter, &file, &[("BATCH_SIZE", "5")]).exits_with(0);
    assert!(sender_files(dir.path(), "spool").is_empty() && sender_files(dir.path(), "failed").is_empty());
    assert_eq!(counted_records(&meter), RECORDS);
    meter.process.kill();
    std::fs::write(dir.path().join("ichido.toml"), "").unwrap();
    let meter = Meter::start_with(dir.path(), &["--db", db], &[]);
    assert_eq!(meter.totals(), (600, 600, "0.00006".to_owned()), "the cost is exact to the last digit");
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

/// The number of counted records, queried over TLS.
fn counted_records(meter: &Meter) -> usize {
    let output = std::process::Command::new("curl")
        .args(["-sSk", &format!("https://{}/v1/usage?group_by=", meter.address)])
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    report["rows"][0]["records"].as_u64().map_or(0, |records| usize::try_from(records).unwrap())
}

#[test]
fn killed_sender_and_meter_count_each_record_once_in_sqlite() {
    kill_repeatedly("sqlite:data/meter.db");
}

#[test]
fn killed_sender_and_meter_count_each_record_once_in_postgres() {
    kill_repeatedly(&super::postgres());
}
