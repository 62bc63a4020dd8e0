//! `ichido send` with a meter as the receiver.

use ichido_testkit::certificates::write_self_signed;
use ichido_testkit::http_client::get;
use serde_json::json;

use super::{Meter, TOKEN, record, record_of_one_day, send, sender_files, write_jsonl};

#[test]
fn resending_usage_over_tls_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    write_self_signed(dir.path());
    std::fs::write(
        dir.path().join("ichido.toml"),
        "[meter]\ntls_cert_file = \"cert.pem\"\ntls_key_file = \"key.pem\"\n",
    )
    .unwrap();
    let tokens = format!("acme={TOKEN}");
    let meter = Meter::start_with(dir.path(), &[], &[("METER_TOKENS", &tokens)]);
    let file = write_jsonl(dir.path(), (0..250).map(record));
    let envelope = [
        ("EXTERNAL_API_ENVELOPE", "api_meter"),
        ("EXTERNAL_API_TENANT_ID", "acme"),
        ("EXTERNAL_API_GZIP", "on"),
    ];
    let first = send(dir.path(), &meter, &file, &envelope);
    first.exits_with(0);
    assert_eq!(
        (&first.metrics()["send_success"], &first.metrics()["send_duplicate"]),
        (&json!(3), &json!(0))
    );
    let second = send(dir.path(), &meter, &file, &[]);
    second.exits_with(0);
    assert_eq!(
        (&second.metrics()["send_success"], &second.metrics()["send_duplicate"]),
        (&json!(3), &json!(3))
    );
    assert_eq!(second.log("duplicate data detected").len(), 3);
    assert!(sender_files(dir.path(), "spool").is_empty() && sender_files(dir.path(), "failed").is_empty());
    drop(meter);
    std::fs::write(dir.path().join("ichido.toml"), "").unwrap();
    let meter = Meter::start_with(dir.path(), &[], &[("METER_TOKENS", &tokens)]);
    assert_eq!(meter.totals(), (250, 250, "0.000025".to_owned()));
}

#[test]
fn invalid_record_goes_to_failed_with_the_meter_error() {
    let dir = tempfile::tempdir().unwrap();
    let meter = Meter::start(dir.path());
    let bad = |id: usize| {
        let mut record = record(id);
        record["cost_actual"] = json!("much");
        record
    };
    // The response names the invalid record, so the sender does not have to bisect the batch.
    let file = write_jsonl(dir.path(), (0..300).map(|id| if id % 100 == 17 { bad(id) } else { record(id) }));
    let run = send(dir.path(), &meter, &file, &[]);
    run.exits_with(4);
    let failed = sender_files(dir.path(), "failed");
    assert_eq!(failed.len(), 3);
    for file in failed {
        assert_eq!(file["records"].as_array().unwrap().len(), 1);
        assert!(
            file["lastError"].as_str().unwrap().contains("cost_actual: not a number"),
            "{}",
            file["lastError"]
        );
    }
    assert_eq!(meter.totals().0, 297);
    let metrics = get(meter.admin, "/metrics").text();
    assert!(metrics.contains("ichido_meter_batches_total{status=\"207\"} 3"), "{metrics}");
    // When the file is sent again, the valid records are duplicates.
    send(dir.path(), &meter, &file, &[]).exits_with(4);
    assert_eq!(meter.totals().0, 297);
}

#[test]
fn data_without_usage_records_holds_the_lane() {
    let dir = tempfile::tempdir().unwrap();
    let meter = Meter::start(dir.path());
    let file = write_jsonl(dir.path(), (0..200).map(|id| json!({"id": format!("order-{id}"), "qty": 1})));
    let run = send(dir.path(), &meter, &file, &[]);
    run.exits_with(3);
    assert!(run.stderr.contains("every record is rejected with the same message"), "{}", run.stderr);
    assert!(sender_files(dir.path(), "failed").is_empty());
    let kept: usize =
        sender_files(dir.path(), "spool").iter().map(|file| file["records"].as_array().unwrap().len()).sum();
    assert_eq!((kept, meter.totals().0), (200, 0));
}

#[test]
fn large_batches_get_short_responses_and_arrive_complete() {
    let dir = tempfile::tempdir().unwrap();
    let meter = Meter::start(dir.path());
    let file = write_jsonl(dir.path(), (0..5_000).map(record));
    let size = [("BATCH_SIZE", "2500")];
    let run = send(dir.path(), &meter, &file, &size);
    run.exits_with(0);
    assert_eq!(run.metrics()["send_total"], 2);
    assert_eq!(send(dir.path(), &meter, &file, &size).metrics()["send_duplicate"], 2);
    // With an invalid record the response lists every result. That is more than the sender reads, so it splits the
    // batch.
    let mut bad = record(9_999);
    bad["model"] = json!("");
    let file = write_jsonl(dir.path(), (0..2_000).map(record).chain([bad]).chain((5_000..5_400).map(record)));
    send(dir.path(), &meter, &file, &[("BATCH_SIZE", "10000")]).exits_with(4);
    let failed = sender_files(dir.path(), "failed");
    assert_eq!((failed.len(), failed[0]["records"].as_array().unwrap().len()), (1, 1));
    assert_eq!(meter.totals().0, 5_400);
}

/// The sender follows the per-record results: invalid records go to failed with their reasons, and nothing is lost.
#[test]
fn invalid_records_of_a_batch_go_to_failed_with_their_reasons() {
    let dir = tempfile::tempdir().unwrap();
    let meter = Meter::start_with(dir.path(), &[], &[("METER_PROFILE", "upsert_by_model_day")]);
    let file = write_jsonl(dir.path(), (0..50).map(record_of_one_day));
    send(dir.path(), &meter, &file, &[("BATCH_SIZE", "50")]).exits_with(4);
    let failed = sender_files(dir.path(), "failed");
    let records: usize = failed.iter().map(|file| file["records"].as_array().unwrap().len()).sum();
    assert_eq!((records, meter.totals().0), (49, 1));
    assert!(failed.iter().all(|file| file["lastError"].as_str().unwrap().contains("invalid")), "{failed:?}");
    assert!(sender_files(dir.path(), "spool").is_empty());
}

#[test]
fn spooled_export_does_not_overwrite_newer_totals() {
    let dir = tempfile::tempdir().unwrap();
    let profile = [("METER_PROFILE", "upsert_by_event_id")];
    let envelope = [
        ("EXTERNAL_API_ENVELOPE", "api_meter"),
        ("EXTERNAL_API_TENANT_ID", "default"),
        ("MAX_RETRIES", "0"),
        ("RETRY_BACKOFF_MS", "1"),
    ];
    let total = |cost: &str| {
        let mut record = record(1);
        record["cost_actual"] = json!(cost);
        write_jsonl(dir.path(), [record].into_iter())
    };
    let mut meter = Meter::start_with(dir.path(), &[], &profile);
    let address = meter.address.to_string();
    meter.process.kill();
    // The meter is down, so the first total is spooled.
    send(dir.path(), &meter, &total("1"), &envelope).exits_with(3);
    let spool = dir.path().join("data/spool");
    let parked = dir.path().join("parked");
    std::fs::rename(&spool, &parked).unwrap();
    // Export timestamps are in seconds, so the next export needs a later second.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let meter = Meter::start_with(dir.path(), &["--listen", &address], &profile);
    send(dir.path(), &meter, &total("2.5"), &envelope).exits_with(0);
    assert_eq!(meter.totals().2, "2.5");
    std::fs::remove_dir_all(&spool).unwrap();
    std::fs::rename(&parked, &spool).unwrap();
    let mut resend = super::sender_command(dir.path(), &meter, &["spool", "resend", "--force", "--json"]);
    crate::delivery::Run::of(resend.envs(envelope).output().unwrap()).exits_with(0);
    assert!(sender_files(dir.path(), "spool").is_empty());
    assert_eq!(meter.totals(), (1, 1, "2.5".to_owned()));
}
