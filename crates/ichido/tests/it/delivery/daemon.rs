//! `ichido run`: the daemon.

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
    let admin = eventually("the start line", || {
        let said = daemon.said();
        let line = said.lines().find(|line| line.contains("admin on http://"))?.to_owned();
        line.rsplit("http://").next()?.parse::<std::net::SocketAddr>().ok()
    });
    eventually("not ready", || get(admin, "/readyz").text().contains("the lane is held").then_some(()));
    let metrics = get(admin, "/metrics").text();
    assert!(metrics.contains("ichido_delivery_spool_files 1"), "{metrics}");
}
