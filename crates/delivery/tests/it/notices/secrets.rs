//! No secret is logged, whatever the servers respond.

use std::io::Write;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ichido_testkit::mail_server::{Encryption, MailServer, Rejects};

use super::webhook::{Response, Webhook};
use super::{failed, mail_at, notices, slack_at, trusted};

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Set in the child process.
const CHILD: &str = "ICHIDO_TEST_NOTICES_SECRETS";

/// Runs in a child process, because the log level of each line is cached per process.
#[test]
fn secrets_echoed_by_servers_are_not_logged() {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "notices::secrets::child_looks_for_secrets_in_its_log"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
}

#[tokio::test]
async fn child_looks_for_secrets_in_its_log() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let kept = Kept::default();
    let writer = kept.clone();
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false);
    let _log = tracing::subscriber::set_default(log.with_writer(move || writer.clone()).finish());

    let echo = "no service at /services/T0/B0/hunter2hunter2 (hunter2hunter2)";
    let script = [Response::Closes, Response::Status(503, echo), Response::Status(404, echo)];
    let webhook = Webhook::start(trusted(), &script);
    let rejects = Rejects { logins: true, ..Rejects::default() };
    let server = MailServer::start(Encryption::Tls(trusted()), rejects).await;
    let dir = tempfile::tempdir().unwrap();
    let [url, to, from] = mail_at("smtps", server.port);
    let notices = notices(dir.path(), &[slack_at(webhook.port()), url, to, from]);
    notices.announce(failed(1)).unwrap();
    assert!(notices.drain(Duration::from_secs(4)).await.failed);
    assert_eq!((webhook.texts().len(), server.mails().len()), (3, 0));

    let log = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
    let debug = format!("{notices:?}");
    for secret in ["hunter2", "p@ss/w:rd", "p%40ss"] {
        let line = log.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "a secret is in the log");
        assert!(!debug.contains(secret), "{debug}");
    }
    assert!(log.contains("HTTP 404 Not Found") && log.contains("535"), "the reasons are in the log: {log}");
    assert!(log.contains("notificationSent=false"), "{log}");
}
