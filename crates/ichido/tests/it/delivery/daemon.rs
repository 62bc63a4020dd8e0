//! `ichido run`: the daemon.

use serde_json::Value;

use super::Stage;
use super::receiver::Reply;
use crate::support::http::get;
use crate::support::{Process, eventually};

#[test]
fn the_daemon_sends_what_waits_and_ends_in_good_order() {
    let stage = Stage::new();
    stage.receiver.does(|_| Reply::Say(503, String::new()));
    stage.send(20, &[("BATCH_SIZE", "1"), ("MAX_RETRIES", "0")]).ends_with(3);
    stage.receiver.does(|_| Reply::Take);
    let mut daemon = Process::start(&mut stage.command(&["run", "--admin", "127.0.0.1:0"]));
    eventually("the spool is empty", || (stage.receiver.counts().len() == 20).then_some(()));
    // Commands work beside it.
    let file = stage.input(20..21);
    stage.run(&["send", file.to_str().unwrap()], &[]);
    stage.run(&["spool", "list"], &[]).ends_with(0);
    daemon.signal("TERM");
    assert_eq!(daemon.ended(), 0, "{}", daemon.said());
    stage.receiver.has_each_once(21);
    assert_eq!(std::fs::read_dir(stage.path().join("data/spool/.inflight")).unwrap().count(), 0);
}

#[test]
fn the_daemon_tells_that_its_lane_is_held() {
    let stage = Stage::new();
    stage.receiver.does(|_| Reply::Say(401, String::new()));
    stage.send(1, &[]).ends_with(3);
    let daemon = Process::start(&mut stage.command(&["run", "--admin", "127.0.0.1:0"]));
    let admin = admin_of(&daemon);
    eventually("not ready", || get(admin, "/readyz").text().contains("the lane is held").then_some(()));
    let metrics = get(admin, "/metrics").text();
    assert!(metrics.contains("ichido_delivery_spool_files 1"), "{metrics}");
}

#[test]
fn the_daemon_goes_on_with_another_token() {
    let stage = Stage::new();
    stage.receiver.does(|seen| match seen.headers["authorization"] == "Bearer new-token" {
        true => Reply::Take,
        false => Reply::Say(401, String::new()),
    });
    stage.send(5, &[("BATCH_SIZE", "1")]).ends_with(3);
    let token = stage.path().join("token");
    std::fs::write(&token, "old-token").unwrap();
    let mut command = stage.command(&["run", "--admin", "off"]);
    let daemon =
        Process::start(command.env_remove("EXTERNAL_API_TOKEN").env("EXTERNAL_API_TOKEN_FILE", &token));
    eventually("the lane is held", || daemon.said().contains("the lane is held").then_some(()));
    std::fs::write(&token, "new-token").unwrap();
    eventually("the spool is empty", || (stage.receiver.counts().len() == 5).then_some(()));
    stage.receiver.has_each_once(5);
}

/// 成功基準: rates from the line at the end of a run, latency and age from what Prometheus reads.
#[test]
fn the_seeds_criteria_of_success_can_be_computed() {
    let stage = Stage::new();
    let mut is_first = true;
    stage.receiver.does(move |seen| match seen.ids[0].as_str() {
        "e0" if std::mem::take(&mut is_first) => Reply::Say(503, String::new()),
        "e1" => Reply::Say(503, String::new()),
        _ => Reply::Take,
    });
    let run = stage.send(10, &[("BATCH_SIZE", "1"), ("MAX_RETRIES", "1")]);
    run.ends_with(3);
    let share = |metrics: &Value, part: &str, whole: &str| {
        metrics[part].as_f64().unwrap() / metrics[whole].as_f64().unwrap()
    };
    let metrics = run.metrics();
    // One batch came across by its repetition, another one did not.
    assert_eq!(metrics["sendTotal"], 10);
    assert!((share(&metrics, "sendSuccess", "sendTotal") - 0.9).abs() < 1e-9, "{metrics}");
    assert!((share(&metrics, "retrySuccess", "retries") - 0.5).abs() < 1e-9, "{metrics}");
    assert!(share(&metrics, "failedMoved", "sendTotal") < 0.01);
    stage.receiver.does(|_| Reply::Take);
    let resent = stage.run(&["spool", "resend", "--json"], &[]).metrics();
    assert!((share(&resent, "spoolResendSuccess", "spoolResendAttempts") - 1.0).abs() < 1e-9, "{resent}");

    stage.receiver.does(|_| Reply::Say(503, String::new()));
    let file = stage.input(10..11);
    stage.run(&["send", file.to_str().unwrap()], &[("MAX_RETRIES", "0")]).ends_with(3);
    stage.receiver.does(|_| Reply::Take);
    let daemon = Process::start(&mut stage.command(&["run", "--admin", "127.0.0.1:0"]));
    let admin = admin_of(&daemon);
    let page = eventually("the histograms", || {
        let page = get(admin, "/metrics").text();
        page.contains("ichido_delivery_age_seconds_bucket{le=\"86400\"} 1").then_some(page)
    });
    assert!(page.contains("ichido_delivery_request_seconds_bucket{le=\"2.5\"} 1"), "{page}");
}

pub(crate) fn admin_of(daemon: &Process) -> std::net::SocketAddr {
    eventually("the start line", || {
        let said = daemon.said();
        let line = said.lines().find(|line| line.contains("admin on http://"))?.to_owned();
        line.rsplit("http://").next()?.parse().ok()
    })
}
