//! Several channels, many notices, and the timing of a daemon.

use std::sync::Arc;
use std::time::Duration;

use ichido_delivery::notice::{Drained, Event, Timing};
use ichido_testkit::mail_server::{Encryption, MailServer, Rejects};
use ichido_testkit::wait;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::webhook::{OK, Response, Webhook};
use super::{PATIENCE, failed, mail_at, notices, quick, slack_at, taken, trusted};

const DOWN: Response = Response::Status(503, "");
#[tokio::test]
async fn slack_that_is_down_is_retried_while_mail_is_sent_once() {
    let webhook = Webhook::start(trusted(), &[DOWN]);
    let server = MailServer::start(Encryption::Tls(trusted()), Rejects::default()).await;
    let dir = tempfile::tempdir().unwrap();
    let [url, to, from] = mail_at("smtps", server.port);
    let notices = notices(dir.path(), &[slack_at(webhook.port()), url, to, from]);
    notices.announce(failed(1)).unwrap();
    tokio::select! {
        drained = notices.drain(PATIENCE) => panic!("Slack is down: {drained:?}"),
        () = wait::until("mail is sent", || async { webhook.texts().len() > 1 && taken(dir.path(), ".sent-email.") == 1 }) => {}
    }
    let drained = notices.drain(Duration::from_secs(1)).await;
    assert_eq!(drained, Drained { sent: 0, waiting: 1, failed: true });
    assert_eq!(server.mails().len(), 1, "mail was repeated");
}

#[tokio::test]
async fn slack_that_never_responds_does_not_delay_mail() {
    let webhook = Webhook::start(trusted(), &[Response::Hangs]);
    let server = MailServer::start(Encryption::Tls(trusted()), Rejects::default()).await;
    let dir = tempfile::tempdir().unwrap();
    let [url, to, from] = mail_at("smtps", server.port);
    let notices = notices(dir.path(), &[slack_at(webhook.port()), url, to, from]);
    notices.announce(failed(1)).unwrap();
    tokio::select! {
        drained = notices.drain(PATIENCE) => panic!("Slack hangs: {drained:?}"),
        () = wait::until("mail is sent", || async { taken(dir.path(), ".sent-email.") == 1 }) => {}
    }
}

#[tokio::test]
async fn notices_that_no_channel_accepted_wait_for_the_next_process() {
    let webhook = Webhook::start(trusted(), &[DOWN]);
    let dir = tempfile::tempdir().unwrap();
    let command = notices(dir.path(), &[slack_at(webhook.port())]);
    (0..5).for_each(|number| command.announce(failed(number)).unwrap());
    let drained = command.drain(Duration::from_millis(300)).await;
    assert_eq!(drained, Drained { sent: 0, waiting: 5, failed: true });
    drop(command);

    let repaired = Webhook::start(trusted(), &[OK]);
    let next = notices(dir.path(), &[slack_at(repaired.port())]);
    assert_eq!(next.waiting().unwrap(), 5);
    assert_eq!(next.drain(PATIENCE).await, Drained { sent: 5, waiting: 0, failed: false });
    assert!(repaired.texts()[0].starts_with("*ichido: 5 batches failed*"), "{:?}", repaired.texts());
}

#[tokio::test]
async fn dropped_drain_loses_nothing() {
    let webhook = Webhook::start(trusted(), &[Response::Hangs, OK]);
    let dir = tempfile::tempdir().unwrap();
    let notices = notices(dir.path(), &[slack_at(webhook.port())]);
    notices.announce(failed(1)).unwrap();
    tokio::select! {
        _ = notices.drain(PATIENCE) => panic!("nothing was answered"),
        () = webhook.wait_for(1) => {}
    }
    assert_eq!(notices.waiting().unwrap(), 1);
    assert_eq!(notices.drain(PATIENCE).await.sent, 1);
}

#[tokio::test]
async fn without_channels_notices_go_to_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let notices = notices(dir.path(), &[]);
    notices.announce(failed(1)).unwrap();
    assert_eq!(notices.drain(PATIENCE).await, Drained { sent: 1, waiting: 0, failed: false });
}

#[tokio::test]
async fn daemon_sends_one_message_per_interval() {
    let webhook = Webhook::start(trusted(), &[OK]);
    let dir = tempfile::tempdir().unwrap();
    let notices = Arc::new(notices(dir.path(), &[slack_at(webhook.port())]));
    let stop = CancellationToken::new();
    let started = Instant::now();
    let daemon = tokio::spawn({
        let (notices, stop) = (notices.clone(), stop.clone());
        async move { notices.work(stop).await }
    });
    notices.announce(failed(0)).unwrap();
    webhook.wait_for(1).await;
    (1..=60).for_each(|number| notices.announce(failed(number)).unwrap());
    webhook.wait_for(2).await;
    stop.cancel();
    daemon.await.unwrap();
    let left = notices.drain(PATIENCE).await;
    assert_eq!(left.waiting, 0);
    let texts = webhook.texts();
    let intervals = started.elapsed().as_millis() / quick().window.as_millis();
    // The daemon sends the first message at once, and the drain does not wait for the interval either.
    assert!(texts.len() as u128 <= 2 + intervals, "{} messages in {intervals} intervals", texts.len());
    assert_eq!(texts.iter().map(|text| failed_count(text)).sum::<u64>(), 61, "{texts:?}");
}

#[tokio::test]
async fn daemon_recovers_from_an_outage_of_its_channel() {
    let webhook = Webhook::start(trusted(), &[DOWN, Response::Closes, DOWN, OK]);
    let dir = tempfile::tempdir().unwrap();
    let notices = Arc::new(notices(dir.path(), &[slack_at(webhook.port())]));
    let stop = CancellationToken::new();
    let daemon = tokio::spawn({
        let (notices, stop) = (notices.clone(), stop.clone());
        async move { notices.work(stop).await }
    });
    let held = Event::Held { lane: "https://api.example".to_owned(), reason: "HTTP 401".to_owned() };
    assert!(notices.begin_outage("lane https://api.example", held.clone()).unwrap());
    assert!(!notices.begin_outage("lane https://api.example", held).unwrap());
    webhook.wait_for(4).await;
    assert!(notices.end_outage("lane https://api.example").unwrap());
    assert!(!notices.end_outage("lane https://api.example").unwrap());
    webhook.wait_for(5).await;
    stop.cancel();
    daemon.await.unwrap();
    let texts = webhook.texts();
    assert!(texts[3].starts_with("*ichido: 1 lane held*"), "{texts:?}");
    assert!(texts[4].starts_with("*ichido: 1 recovery*"), "{texts:?}");
}

#[tokio::test]
async fn daemon_stops_soon_while_its_channel_hangs_and_loses_nothing() {
    let webhook = Webhook::start(trusted(), &[Response::Hangs]);
    let dir = tempfile::tempdir().unwrap();
    let timing = Timing { time_limit: 10 * PATIENCE, ..quick() };
    let notices = notices(dir.path(), &[slack_at(webhook.port())]).with_timing(timing);
    notices.announce(failed(1)).unwrap();
    let stop = CancellationToken::new();
    let stopping = async {
        webhook.wait_for(1).await;
        stop.cancel();
    };
    let ended = async { tokio::join!(notices.work(stop.clone()), stopping) };
    tokio::time::timeout(PATIENCE, ended).await.expect("it ends within its grace");
    assert_eq!(notices.waiting().unwrap(), 1);
}

/// The number of failed batches in a message.
pub(crate) fn failed_count(text: &str) -> u64 {
    let subject = text.lines().next().unwrap_or_default();
    subject.trim_start_matches("*ichido: ").split(' ').next().unwrap().parse().unwrap()
}
