//! Startup, shutdown and `ichido check` of a meter.

use std::io::{BufReader, Write};
use std::time::{Duration, Instant};

use ichido_testkit::http_client::{connect, head, read_head, read_response};
use ichido_testkit::process::Process;
use ichido_testkit::wait::eventually;
use ichido_testkit::{free_port, tcp_server};
use serde_json::json;

use super::{Meter, command, record};

/// The error message of a meter that does not start, which must be one line.
fn startup_error(dir: &std::path::Path, flags: &[&str], variables: &[(&str, &str)]) -> String {
    let output =
        command(dir).args(["meter", "--admin", "off"]).args(flags).envs(variables.iter().copied()).output();
    let output = output.unwrap();
    let line = crate::stderr(&output);
    assert_eq!((output.status.code(), line.trim_end().lines().count()), (Some(2), 1), "{line}");
    line
}

#[test]
fn invalid_startup_fails_with_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let taken = tcp_server::start(drop).to_string();
    std::fs::write(dir.path().join("notes.txt"), "milk ".repeat(500)).unwrap();
    for (flags, variables, message) in [
        (&["--listen", "0.0.0.0:0"][..], &[][..], "METER_TOKENS"),
        (&["--listen", "8090"], &[], "meter.listen"),
        (&["--listen", &taken], &[], "meter.listen"),
        (&["--db", "mysql://u:hunter2@h/d"], &[], "meter.db"),
        (&["--listen", "127.0.0.1:0", "--db", "sqlite:notes.txt"], &[], "was not created by a meter"),
        (
            &[],
            &[("METER_PROFILE", "last_wins")],
            "must be first_wins, upsert_by_event_id or upsert_by_model_day",
        ),
        (
            &[],
            &[("METER_TOKENS", "hunter2")],
            "meter.tokens: entry 1 is not of the form tenant=token (environment variable METER_TOKENS)",
        ),
        (&[], &[("METER_TOKENS", "")], "meter.tokens: is empty; unset the variable or give it a value"),
    ] {
        let line = startup_error(dir.path(), flags, variables);
        assert!(line.contains(message) && !line.contains("hunter2"), "{line}");
    }
    let db = format!("postgres://u:hunter2@127.0.0.1:{}/d", free_port());
    let line = startup_error(dir.path(), &["--listen", "127.0.0.1:0", "--db", &db], &[]);
    assert!(line.contains("PostgreSQL cannot be reached") && !line.contains("hunter2"), "{line}");
}

#[test]
fn tokens_file_allows_listening_beyond_loopback() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("tokens"), format!("a={}\n", super::TOKEN)).unwrap();
    let mut meter =
        Meter::start_with(dir.path(), &["--listen", "0.0.0.0:0"], &[("METER_TOKENS_FILE", "tokens")]);
    meter.address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    assert_eq!(meter.get("/v1/usage").status, 401);
    meter.token = Some(super::TOKEN);
    assert_eq!(meter.get("/v1/usage").status, 200);
}

/// A hanging request may delay shutdown by `shutdown_seconds`: once in total, not once for its connection and again for
/// its batch.
#[test]
fn shutdown_takes_one_grace_period_not_two() {
    const GRACE: Duration = Duration::from_secs(6);
    let dir = tempfile::tempdir().unwrap();
    let settings = format!("[meter]\nshutdown_seconds = {}\n", GRACE.as_secs());
    std::fs::write(dir.path().join("ichido.toml"), settings).unwrap();
    let db = super::postgres();
    let schema = db.split_once("schema=").unwrap().1.to_owned();
    let mut meter = Meter::start_with(dir.path(), &["--db", &db], &[]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (server, _) = db.split_once('?').unwrap();
    let lock_holder = runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(server, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
            .batch_execute(&format!("BEGIN; LOCK TABLE {schema}.records IN ACCESS EXCLUSIVE MODE"))
            .await
            .unwrap();
        client
    });
    let body = json!({"records": [record(1)]}).to_string();
    let mut stream = connect(meter.address).unwrap();
    let kind = [("Content-Type", "application/json")];
    stream.write_all(&head("POST", "/v1/usage", &kind, Some(body.len()))).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let waiting_locks =
        format!("SELECT 1 FROM pg_locks WHERE NOT granted AND relation = '{schema}.records'::regclass");
    eventually("a batch that is blocked by the lock", || {
        (!runtime.block_on(lock_holder.query(&waiting_locks, &[])).unwrap().is_empty()).then_some(())
    });
    meter.process.signal("TERM");
    let signaled = Instant::now();
    meter.process.exit_code();
    let elapsed = signaled.elapsed();
    assert!(
        elapsed < GRACE * 2 - Duration::from_secs(1),
        "shutdown took {elapsed:?}: {}",
        meter.process.stderr()
    );
}

#[test]
fn request_in_progress_is_counted_before_shutdown() {
    let dir = tempfile::tempdir().unwrap();
    let mut meter = Meter::start(dir.path());
    let body = json!({"batchIdempotencyKey": "k", "records": [record(1)]}).to_string();
    let mut stream = connect(meter.address).unwrap();
    let expecting = [("Content-Type", "application/json"), ("Expect", "100-continue")];
    stream.write_all(&head("POST", "/v1/usage", &expecting, Some(body.len()))).unwrap();
    // The meter asks for the body, so the request is in progress.
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    assert_eq!(read_head(&mut reader).unwrap().status, 100);
    meter.process.signal("TERM");
    meter.process.wait_for_stderr("stopping after the requests in progress");
    stream.write_all(body.as_bytes()).unwrap();
    let response = read_response(&mut reader).unwrap();
    assert_eq!(response.status, 201);
    assert_eq!(meter.process.exit_code(), 0);
    let meter = Meter::start(dir.path());
    assert_eq!(meter.totals().0, 1);
}

#[test]
fn two_meters_can_share_a_database_file() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (Meter::start(dir.path()), Meter::start(dir.path()));
    assert_eq!(one.post(&json!({"records": [record(1)]})).status, 201);
    assert_eq!(other.post(&json!({"records": [record(1)]})).status, 409);
}

#[test]
fn check_reports_the_meter() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("ichido.toml"), "[ledger]\nurl = \"memory:\"\n[meter]\n").unwrap();
    let text = crate::ok(dir.path(), &["check"]);
    assert!(text.contains("meter") && text.contains("data/meter.db does not exist yet"), "{text}");
    assert!(!dir.path().join("data").exists());
    drop(Meter::start(dir.path()));
    let text = crate::ok(dir.path(), &["check"]);
    assert!(text.contains("sqlite data/meter.db responds, first_wins"), "{text}");
    std::fs::write(
        dir.path().join("ichido.toml"),
        "[ledger]\nurl = \"memory:\"\n[meter]\nprofile = \"upsert_by_model_day\"\n",
    )
    .unwrap();
    let output = crate::run(dir.path(), &["check"]);
    assert!(crate::stdout(&output).contains("FAILED   meter"), "{}", crate::stdout(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn start_line_says_that_the_admin_port_is_off() {
    let dir = tempfile::tempdir().unwrap();
    let process =
        Process::start(command(dir.path()).args(["meter", "--listen", "127.0.0.1:0", "--admin", "off"]))
            .unwrap();
    process.wait_for_stderr("no admin port");
}
