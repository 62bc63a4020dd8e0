//! Several processes that share an outbox, and processes that are killed.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ichido_core::{Clock, SystemClock};
use ichido_delivery::notice::{self, Notices, Settings};
use ichido_delivery::settings::Raw;
use ichido_delivery::tls_roots::TlsRoots;
use ichido_testkit::process::Process;

use super::draining::failed_count;
use super::webhook::{OK, Response, Webhook};
use super::{PATIENCE, failed, notices, slack_at, trusted};

/// Set in the child process: the path of the outbox, and the port to send to.
const CHILD_DIR: &str = "ICHIDO_TEST_NOTICES_DIR";
const CHILD_PORT: &str = "ICHIDO_TEST_NOTICES_PORT";

/// The child process: announces three notices, and drains.
#[tokio::test]
async fn child_announces_and_drains() {
    let Some(dir) = std::env::var_os(CHILD_DIR).map(PathBuf::from) else { return };
    let port = std::env::var(CHILD_PORT).unwrap();
    // The child does not trust the parent's authority, so it uses plain HTTP.
    let url = format!("http://127.0.0.1:{port}/x");
    let raw = Raw { slack_webhook_url: Some(url.into()), allow_http_loopback: true, ..Raw::default() };
    let settings = Settings::check(&raw).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let channels = notice::channels(&settings, &TlsRoots::default(), &clock).unwrap();
    let notices = Notices::open(&dir, channels, clock).unwrap();
    (0..3).for_each(|number| notices.announce(failed(number)).unwrap());
    notices.drain(PATIENCE).await;
}

fn start_child(dir: &Path, port: u16) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "notices::processes::child_announces_and_drains"]);
    Process::start(command.env(CHILD_DIR, dir).env(CHILD_PORT, port.to_string())).unwrap()
}

#[tokio::test]
async fn notices_of_a_killed_process_are_sent_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    // The server accepts connections but never responds, so the child hangs during its drain.
    let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let mut child = start_child(dir.path(), silent.local_addr().unwrap().port());
    let connected = tokio::time::timeout(PATIENCE, silent.accept()).await.expect("the child sends").unwrap();
    child.kill();
    drop(connected);

    let webhook = Webhook::start(trusted(), &[OK]);
    let next = notices(dir.path(), &[slack_at(webhook.port())]);
    let drained = next.drain(PATIENCE).await;
    assert_eq!((drained.sent, drained.waiting), (3, 0));
    assert_eq!(webhook.texts().iter().map(|text| failed_count(text)).sum::<u64>(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_drains_send_each_notice_once() {
    let webhook = Webhook::start(trusted(), &[OK]);
    let dir = tempfile::tempdir().unwrap();
    let mut working = tokio::task::JoinSet::new();
    for worker in 0..4_u64 {
        let notices = notices(dir.path(), &[slack_at(webhook.port())]);
        working.spawn(async move {
            let mut sent = 0;
            for number in 0..25 {
                notices.announce(failed(worker * 100 + number)).unwrap();
                sent += notices.drain(PATIENCE).await.sent;
            }
            sent
        });
    }
    let sent: u64 = working.join_all().await.iter().sum();
    let last = notices(dir.path(), &[slack_at(webhook.port())]).drain(PATIENCE).await;
    assert_eq!((sent + last.sent, last.waiting), (100, 0));
    let texts = webhook.texts();
    assert_eq!(texts.iter().map(|text| failed_count(text)).sum::<u64>(), 100);
    let keys =
        texts.iter().flat_map(|text| text.split("batchIdempotencyKey ").skip(1)).map(|rest| &rest[..64]);
    let keys: Vec<&str> = keys.collect();
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len(), "a notice was present twice");
}

#[tokio::test]
async fn running_process_keeps_what_it_is_sending() {
    let webhook = Webhook::start(trusted(), &[Response::Hangs]);
    let dir = tempfile::tempdir().unwrap();
    let slow = notices(dir.path(), &[slack_at(webhook.port())]);
    slow.announce(failed(1)).unwrap();
    let other = notices(dir.path(), &[]);
    tokio::select! {
        _ = slow.drain(PATIENCE) => panic!("nothing was answered"),
        () = webhook.wait_for(1) => {}
    }
    let drained = other.drain(Duration::from_secs(1)).await;
    assert_eq!((drained.sent, drained.waiting), (0, 1));
}
