//! Several channels at once: each gets every notice once, whichever of them fails, and across processes.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use http::header::AUTHORIZATION;
use ichido_delivery::notice::Drained;
use ichido_testkit::http_server::{HttpServer, Reply, response};
use ichido_testkit::wait;
use serde_json::Value;

use super::webhook::{OK, Webhook as SlackWebhook};
use super::{PATIENCE, failed, notices, slack_at, taken, trusted};

/// What a webhook received: the JSON, the key and the credentials.
type Received = (Value, String, String);

/// A webhook of an operator. It accepts what `accepts` says.
fn webhook(
    accepts: impl Fn(usize) -> bool + Send + Sync + 'static,
) -> (HttpServer, Arc<Mutex<Vec<Received>>>) {
    let received = Arc::new(Mutex::new(Vec::new()));
    let server = HttpServer::start_tls(trusted(), {
        let received = received.clone();
        move |request| {
            let header = |name: &str| request.headers().get(name).unwrap().to_str().unwrap().to_owned();
            let mut received = received.lock().unwrap();
            let body = serde_json::from_slice(request.body()).unwrap();
            received.push((body, header("idempotency-key"), header(AUTHORIZATION.as_str())));
            let status = if accepts(received.len()) { 204 } else { 503 };
            std::future::ready(Reply::Response(response(status, "token hunter2hunter2 is known")))
        }
    });
    (server.unwrap(), received)
}

fn webhook_at(server: &HttpServer) -> [(&'static str, String); 2] {
    let url = format!("https://localhost:{}/hook", server.address().port());
    [("NOTIFY_WEBHOOK_URL", url), ("NOTIFY_WEBHOOK_TOKEN", "hunter2hunter2".to_owned())]
}

/// A program that runs this script with `$DIR` in its directory.
fn program(dir: &Path, script: &str) -> (&'static str, String) {
    let path = dir.join("notify.sh");
    std::fs::write(&path, format!("#!/bin/sh\nDIR={}\n{script}\n", dir.display())).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    ("NOTIFY_COMMAND", format!("{} one two", path.display()))
}

#[tokio::test]
async fn failed_channel_is_retried_by_the_next_process_without_repeating_the_others() {
    let (dir, scripts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let slack = SlackWebhook::start(trusted(), &[OK]);
    let (server, received) = webhook(|_| false);
    let command = program(scripts.path(), "cat >> $DIR/got; echo >> $DIR/got");
    let [url, token] = webhook_at(&server);
    let first = notices(dir.path(), &[slack_at(slack.port()), url, token, command.clone()]);
    (0..3).for_each(|number| first.announce(failed(number)).unwrap());
    // The process ends while the webhook is being retried.
    tokio::select! {
        drained = first.drain(PATIENCE) => panic!("the webhook is down: {drained:?}"),
        () = wait::until("two channels have the notices", || async {
            slack.texts().len() == 1
                && received.lock().unwrap().len() > 1
                && std::fs::read_to_string(scripts.path().join("got")).is_ok_and(|got| got.ends_with('\n'))
                && taken(dir.path(), ".sent-command+slack.") == 3
        }) => {}
    }
    drop(first);
    drop(server);

    let (server, received) = webhook(|_| true);
    let [url, token] = webhook_at(&server);
    let next = notices(dir.path(), &[slack_at(slack.port()), url, token, command]);
    assert_eq!(next.waiting().unwrap(), 3);
    assert_eq!(next.drain(PATIENCE).await, Drained { sent: 3, waiting: 0, failed: false });
    assert_eq!(next.drain(PATIENCE).await, Drained::default());
    assert_eq!(received.lock().unwrap().len(), 1);
    assert_eq!(slack.texts().len(), 1, "Slack was repeated");
    let got = std::fs::read_to_string(scripts.path().join("got")).unwrap();
    assert_eq!(got.lines().count(), 1, "the command was repeated: {got}");
}

#[tokio::test]
async fn webhook_gets_json_with_a_key_that_a_retry_repeats() {
    let dir = tempfile::tempdir().unwrap();
    let (server, received) = webhook(|count| count > 1);
    let notices = notices(dir.path(), &webhook_at(&server));
    notices.announce(failed(1)).unwrap();
    assert_eq!(notices.drain(PATIENCE).await.sent, 1);
    let received = received.lock().unwrap();
    let [(first, key, _), (second, again, authorization)] = &received[..] else { panic!("{received:?}") };
    assert_eq!((first, key), (second, again));
    assert_eq!((authorization.as_str(), &first["id"]), ("Bearer hunter2hunter2", &key.as_str().into()));
    assert_eq!((&first["subject"], &first["count"]), (&"ichido: 1 batch failed".into(), &1.into()));
    assert_eq!(first["notices"][0]["details"]["retry_count"], 10);
    assert!(!format!("{notices:?}").contains("hunter2"), "{notices:?}");
}

#[tokio::test]
async fn notice_of_an_earlier_version_reaches_every_channel() {
    let (dir, scripts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let old =
        r#"{"at":"2025-01-25T09:30:00Z","event":"held","lane":"https://api.example","reason":"HTTP 401"}"#;
    std::fs::write(dir.path().join("notice_20250125T093000Z_00112233445566ff.json"), old).unwrap();
    let slack = SlackWebhook::start(trusted(), &[OK]);
    let notices = notices(dir.path(), &[slack_at(slack.port()), program(scripts.path(), "cat > $DIR/got")]);
    assert_eq!(notices.drain(PATIENCE).await, Drained { sent: 1, waiting: 0, failed: false });
    assert!(slack.texts()[0].starts_with("*ichido: 1 lane held*"), "{:?}", slack.texts());
    let got: Value = serde_json::from_slice(&std::fs::read(scripts.path().join("got")).unwrap()).unwrap();
    assert_eq!(got["notices"][0]["details"]["lane"], "https://api.example");
}

#[tokio::test]
async fn command_runs_without_a_shell_and_without_our_environment() {
    let (dir, scripts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (name, line) =
        program(scripts.path(), "cat > /dev/null; env > $DIR/env; printf '%s\\n' \"$@\" > $DIR/args");
    let notices = notices(dir.path(), &[(name, format!("{line} ;touch $HOME \"a"))]);
    notices.announce(failed(1)).unwrap();
    assert_eq!(notices.drain(PATIENCE).await.sent, 1);
    let args = std::fs::read_to_string(scripts.path().join("args")).unwrap();
    assert_eq!(args.lines().collect::<Vec<_>>(), ["one", "two", ";touch", "$HOME", "\"a"]);
    let env = std::fs::read_to_string(scripts.path().join("env")).unwrap();
    // Cargo and the test runner set many variables, so it is seen if they are passed on.
    assert!(
        std::env::vars().any(|(name, _)| name.starts_with("CARGO")),
        "the test needs a variable of its own"
    );
    let unexpected = env.lines().find(|line| line.starts_with("CARGO") || line.starts_with("ICHIDO"));
    assert_eq!(unexpected, None);
    assert!(env.lines().any(|line| line.starts_with("PATH=")), "{env}");
}

#[tokio::test]
async fn command_that_fails_is_retried_and_its_output_is_bounded() {
    let (dir, scripts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // It does not read its input, and writes more than a pipe holds.
    let script = "echo x >> $DIR/runs; head -c 1000000 /dev/zero >&2; head -c 1000000 /dev/zero
        test $(wc -l < $DIR/runs) -gt 2";
    let notices = notices(dir.path(), &[program(scripts.path(), script)]);
    notices.announce(failed(1)).unwrap();
    assert_eq!(notices.drain(PATIENCE).await, Drained { sent: 1, waiting: 0, failed: false });
    assert_eq!(std::fs::read_to_string(scripts.path().join("runs")).unwrap(), "x\nx\nx\n");
}

#[tokio::test]
async fn command_that_hangs_is_killed_with_its_children() {
    let (dir, scripts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let notices = notices(dir.path(), &[program(scripts.path(), "sleep 1000 & echo $! > $DIR/pid; wait")]);
    notices.announce(failed(1)).unwrap();
    let pid = scripts.path().join("pid");
    let child = || std::fs::read_to_string(&pid).ok().filter(|pid| pid.ends_with('\n'));
    tokio::select! {
        drained = notices.drain(PATIENCE) => panic!("the command hangs: {drained:?}"),
        () = wait::until("the command runs", || async { child().is_some() }) => {}
    }
    let process = format!("/proc/{}/stat", child().unwrap().trim());
    // It is gone, or a zombie that nobody has waited for.
    wait::until("the child is killed", || async {
        std::fs::read_to_string(&process).map_or(true, |stat| stat.contains(") Z "))
    })
    .await;
    assert_eq!(notices.waiting().unwrap(), 1);
}

#[tokio::test]
async fn webhook_that_fails_does_not_delay_the_next_message_of_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let slack = SlackWebhook::start(trusted(), &[OK]);
    let (server, received) = webhook(|_| false);
    let [url, token] = webhook_at(&server);
    let notices = Arc::new(notices(dir.path(), &[slack_at(slack.port()), url, token]));
    let stop = tokio_util::sync::CancellationToken::new();
    let daemon = tokio::spawn({
        let (notices, stop) = (notices.clone(), stop.clone());
        async move { notices.work(stop).await }
    });
    for number in 1..=3 {
        notices.announce(failed(number)).unwrap();
        slack.wait_for(usize::try_from(number).unwrap()).await;
    }
    wait::until("the webhook is tried", || async { received.lock().unwrap().len() > 1 }).await;
    stop.cancel();
    daemon.await.unwrap();
    assert_eq!(notices.waiting().unwrap(), 3);
    let keys = slack.texts().join("\n").matches("batchIdempotencyKey").count();
    assert_eq!(keys, 3, "Slack got each notice once: {:?}", slack.texts());
}
