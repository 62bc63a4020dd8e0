//! `ichido run` as a daemon that drains the spool.

use ichido_testkit::http_client::get;
use ichido_testkit::process::Process;
use ichido_testkit::receiver::Reply;
use ichido_testkit::wait::eventually;
use serde_json::Value;

use super::Fixture;

#[test]
fn held_lane_makes_the_daemon_not_ready() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|_| Reply::Status(401, String::new()));
    fixture.send(1, &[]).exits_with(3);
    let mut daemon = Process::start(&mut fixture.command(&["run", "--admin", "127.0.0.1:0"])).unwrap();
    let admin = daemon.wait_for_address("admin on ").unwrap();
    eventually("a failing readiness check", || {
        get(admin, "/readyz").text().contains("the lane is held").then_some(())
    });
    let metrics = get(admin, "/metrics").text();
    assert!(metrics.contains("ichido_delivery_spool_files 1"), "{metrics}");
}

#[test]
fn daemon_resumes_when_the_token_file_changes() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|request| match request.headers["authorization"] == "Bearer new-token" {
        true => Reply::Accept,
        false => Reply::Status(401, String::new()),
    });
    fixture.send(5, &[("BATCH_SIZE", "1")]).exits_with(3);
    let token = fixture.path().join("token");
    std::fs::write(&token, "old-token").unwrap();
    let mut command = fixture.command(&["run", "--admin", "off"]);
    let daemon =
        Process::start(command.env_remove("EXTERNAL_API_TOKEN").env("EXTERNAL_API_TOKEN_FILE", &token))
            .unwrap();
    daemon.wait_for_stderr("the lane is held");
    std::fs::write(&token, "new-token").unwrap();
    eventually("an empty spool", || (fixture.receiver.record_count() == 5).then_some(()));
    fixture.receiver.assert_each_record_once(5);
}

#[test]
fn gauges_count_the_files_on_disk() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|_| Reply::Status(503, String::new()));
    fixture.send(3, &[("BATCH_SIZE", "1"), ("MAX_RETRIES", "0")]).exits_with(3);
    fixture.receiver.on_batch(|request| match request.ids[0].as_str() {
        "e0" => Reply::Status(422, String::new()),
        "e1" => Reply::Status(503, String::new()),
        _ => Reply::Accept,
    });
    let mut command = fixture.command(&["run", "--admin", "127.0.0.1:0"]);
    let mut daemon = Process::start(command.env("MAX_RETRIES", "0")).unwrap();
    let admin = daemon.wait_for_address("admin on ").unwrap();
    let page = eventually("the gauges of the first pass", || {
        let page = get(admin, "/metrics").text();
        page.contains("ichido_delivery_failed_files").then_some(page)
    });
    for (gauge, directory) in [("spool", "spool"), ("failed", "failed")] {
        let files = fixture.files(directory).len();
        assert_eq!(files, 1);
        assert!(page.contains(&format!("ichido_delivery_{gauge}_files {files}\n")), "{page}");
    }
}

/// Success rates come from the metrics that a run prints at its end; latency and age come from Prometheus histograms.
#[test]
fn service_levels_can_be_computed_from_metrics() {
    let fixture = Fixture::new();
    // Of 40 batches, one is delivered by its retry, one stays in the spool, and one is rejected.
    let mut is_first = true;
    fixture.receiver.on_batch(move |request| match request.ids[0].as_str() {
        "e0" if std::mem::take(&mut is_first) => Reply::Status(503, String::new()),
        "e1" => Reply::Status(503, String::new()),
        "e2" => Reply::Status(422, String::new()),
        _ => Reply::Accept,
    });
    let run = fixture.send(40, &[("BATCH_SIZE", "1"), ("MAX_RETRIES", "1")]);
    run.exits_with(4);
    let sent = run.metrics();
    let share = |metrics: &Value, part: &str, whole: &str| {
        metrics[part].as_f64().unwrap() / metrics[whole].as_f64().unwrap()
    };
    assert_eq!(sent["send_total"], 40);
    // The send success rate, the retry success rate, and the share of batches moved to failed.
    let assert_near = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-9, "{value}: {sent}");
    assert_near(share(&sent, "send_success", "send_total"), 38.0 / 40.0);
    assert_near(share(&sent, "retry_success", "retries"), 1.0 / 2.0);
    assert_near(share(&sent, "failed_moved", "send_total"), 1.0 / 40.0);

    fixture.receiver.on_batch(|_| Reply::Accept);
    let mut daemon = Process::start(&mut fixture.command(&["run", "--admin", "127.0.0.1:0"])).unwrap();
    let admin = daemon.wait_for_address("admin on ").unwrap();
    let page = eventually("the histograms", || {
        let page = get(admin, "/metrics").text();
        page.contains("ichido_delivery_age_seconds_count{origin=\"spool\"} 1").then_some(page)
    });
    // The 95th percentile of send latency is below 5 s, and that of time in the spool below 24 h.
    let latency = p95(&page, "ichido_delivery_request_seconds", "outcome=\"delivered\"");
    assert!(latency <= 5.0, "{latency}: {page}");
    let age = p95(&page, "ichido_delivery_age_seconds", "origin=\"spool\"");
    assert!(age <= 86_400.0, "{age}: {page}");
    daemon.signal("TERM");
    let line = daemon.read_stdout().unwrap();
    let resent: Value = serde_json::from_str(line.lines().last().unwrap()).unwrap();
    // The success rate of resends from the spool.
    assert_near(share(&resent, "spool_resend_success", "spool_resend_attempts"), 1.0);
}

/// The upper bound of the histogram bucket that contains the 95th percentile.
fn p95(page: &str, name: &str, label: &str) -> f64 {
    let start = format!("{name}_bucket{{{label},le=\"");
    let buckets: Vec<(f64, f64)> = page
        .lines()
        .filter_map(|line| line.strip_prefix(&start)?.split_once("\"} "))
        .map(|(bound, count)| (bound.parse().unwrap(), count.parse().unwrap()))
        .collect();
    let all = buckets.last().unwrap_or_else(|| panic!("no {name}: {page}")).1;
    buckets.iter().find(|(_, count)| *count >= 0.95 * all).unwrap().0
}
