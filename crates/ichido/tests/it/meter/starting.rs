//! The start and the end of a meter.

use std::io::Write;

use serde_json::json;

use super::{Meter, command, record};
use crate::support::http::{connect, head, read_answer};
use crate::support::{Process, eventually};

/// The one line of a start that is refused.
fn refusal(dir: &std::path::Path, flags: &[&str], variables: &[(&str, &str)]) -> String {
    let output =
        command(dir).args(["meter", "--admin", "off"]).args(flags).envs(variables.iter().copied()).output();
    let output = output.unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), line.trim_end().lines().count()), (Some(2), 1), "{line}");
    line
}

#[test]
fn a_start_that_cannot_be_right_is_refused_with_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    std::fs::write(dir.path().join("notes.txt"), "milk ".repeat(500)).unwrap();
    for (flags, variables, word) in [
        (&["--listen", "0.0.0.0:0"][..], &[][..], "METER_TOKENS"),
        (&["--listen", "8090"], &[], "meter.listen"),
        (&["--listen", &address], &[], "meter.listen"),
        (&["--db", "mysql://u:hunter2@h/d"], &[], "meter.db"),
        (&["--listen", "127.0.0.1:0", "--db", "sqlite:notes.txt"], &[], "is not a meter's"),
        (&[], &[("METER_PROFILE", "last_wins")], "first_wins, upsert_by_event_id, upsert_by_model_day"),
        (&[], &[("METER_TOKENS", "hunter2")], "METER_TOKENS: entry 1 is not of the form tenant=token"),
        (&[], &[("METER_TOKENS", "")], "METER_TOKENS: there is no token in it"),
    ] {
        let line = refusal(dir.path(), flags, variables);
        assert!(line.contains(word) && !line.contains("hunter2"), "{line}");
    }
    let port = taken.local_addr().unwrap().port();
    drop(taken);
    let db = format!("postgres://u:hunter2@127.0.0.1:{port}/d");
    let line = refusal(dir.path(), &["--listen", "127.0.0.1:0", "--db", &db], &[]);
    assert!(line.contains("PostgreSQL cannot be reached") && !line.contains("hunter2"), "{line}");
}

#[test]
fn tokens_may_be_in_a_file_and_then_it_may_be_off_loopback() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("tokens"), format!("a={}\n", super::TOKEN)).unwrap();
    let mut meter =
        Meter::start_with(dir.path(), &["--listen", "0.0.0.0:0"], &[("METER_TOKENS_FILE", "tokens")]);
    meter.address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    assert_eq!(meter.get("/v1/usage").status, 401);
    meter.token = Some(super::TOKEN);
    assert_eq!(meter.get("/v1/usage").status, 200);
}

#[test]
fn what_is_under_way_is_counted_before_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut meter = Meter::start(dir.path());
    let body = json!({"batchIdempotencyKey": "k", "records": [record(1)]}).to_string();
    let mut stream = connect(meter.address).unwrap();
    stream
        .write_all(&head("POST", "/v1/usage", &[("Content-Type", "application/json")], Some(body.len())))
        .unwrap();
    let (first, rest) = body.as_bytes().split_at(20);
    stream.write_all(first).unwrap();
    // The request has begun: the meter waits for it.
    eventually("the connection", || {
        let open = crate::support::http::get(meter.admin, "/healthz");
        (open.status == 200).then_some(())
    });
    std::thread::sleep(std::time::Duration::from_millis(200));
    meter.process.signal("TERM");
    eventually("the asking", || meter.process.said().contains("finishing what is under way").then_some(()));
    stream.write_all(rest).unwrap();
    let answer = read_answer(&mut std::io::BufReader::new(stream)).unwrap();
    assert_eq!(answer.status, 201);
    assert_eq!(meter.process.ended(), 0);
    let meter = Meter::start(dir.path());
    assert_eq!(meter.sum().0, 1);
}

#[test]
fn two_meters_may_share_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (Meter::start(dir.path()), Meter::start(dir.path()));
    assert_eq!(one.post(&json!({"records": [record(1)]})).status, 201);
    assert_eq!(other.post(&json!({"records": [record(1)]})).status, 409);
}

#[test]
fn check_tells_of_the_meter_too() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("ichido.toml"), "[ledger]\nurl = \"memory:\"\n[meter]\n").unwrap();
    let text = crate::ok(dir.path(), &["check"]);
    assert!(text.contains("meter") && text.contains("data/meter.db does not exist yet"), "{text}");
    assert!(!dir.path().join("data").exists());
    drop(Meter::start(dir.path()));
    let text = crate::ok(dir.path(), &["check"]);
    assert!(text.contains("sqlite data/meter.db answers, first_wins"), "{text}");
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
fn without_an_admin_port_it_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let process =
        Process::start(command(dir.path()).args(["meter", "--listen", "127.0.0.1:0", "--admin", "off"]));
    eventually("the start line", || process.said().contains("admin on no port").then_some(()));
}
