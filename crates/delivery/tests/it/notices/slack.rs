//! Slack: what arrives, what is retried, and which servers are not trusted.

use std::time::{Duration, UNIX_EPOCH};

use ichido_core::{Clock, SystemClock};
use ichido_delivery::notice::Drained;
use tokio::time::Instant;

use super::webhook::{OK, Response, Webhook};
use super::{facts, failed, notices, slack_at, trusted, untrusted};

const WITHIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn slack_gets_one_message_with_the_documented_fields() {
    let (dir, webhook) = (tempfile::tempdir().unwrap(), Webhook::start(trusted(), &[OK]));
    let notices = notices(dir.path(), &[slack_at(webhook.port())]);
    (0..3).for_each(|number| notices.announce(failed(number)).unwrap());
    assert_eq!(notices.drain(WITHIN).await, Drained { sent: 3, waiting: 0, failed: false });
    let [text] = webhook.texts().try_into().unwrap();
    assert!(text.starts_with("*ichido: 3 batches failed*\n"), "{text}");
    for fact in (0..3).flat_map(facts) {
        assert!(text.contains(&fact), "{fact}: {text}");
    }
    // Slack's markup characters are escaped; other scripts are unchanged.
    assert!(text.contains("&lt;Service &amp; Unavailable&gt; 停止中"), "{text}");
    assert_eq!(notices.drain(WITHIN).await, Drained::default());
    assert_eq!(webhook.texts().len(), 1, "what was sent is not sent again");
}

#[tokio::test]
async fn slack_is_retried_after_each_kind_of_failure() {
    let script = [
        Response::Status(503, "down"),
        Response::Closes,
        Response::StatusWithHeader(429, "retry-after", "1".to_owned()),
        OK,
    ];
    let (dir, webhook) = (tempfile::tempdir().unwrap(), Webhook::start(trusted(), &script));
    let notices = notices(dir.path(), &[slack_at(webhook.port())]);
    notices.announce(failed(1)).unwrap();
    let start = Instant::now();
    assert_eq!(notices.drain(WITHIN).await.sent, 1);
    assert!(start.elapsed() >= Duration::from_secs(1), "Retry-After was not kept: {:?}", start.elapsed());
    assert_eq!(webhook.texts().len(), 4);
}

#[tokio::test]
async fn long_retry_after_is_respected_by_the_next_drain() {
    let now = UNIX_EPOCH + Duration::from_millis(SystemClock::default().now().0);
    let date = httpdate::fmt_http_date(now + Duration::from_secs(3_600));
    for asked in ["3600", "18446744073709551615", &date] {
        let script = [Response::StatusWithHeader(429, "retry-after", asked.to_owned()), OK];
        let (dir, webhook) = (tempfile::tempdir().unwrap(), Webhook::start(trusted(), &script));
        let notices = notices(dir.path(), &[slack_at(webhook.port())]);
        notices.announce(failed(1)).unwrap();
        let start = Instant::now();
        for _ in 0..2 {
            let drained = notices.drain(WITHIN).await;
            assert_eq!(drained, Drained { sent: 0, waiting: 1, failed: true }, "{asked}");
        }
        assert!(start.elapsed() < WITHIN, "nobody waits an hour");
        assert_eq!(webhook.texts().len(), 1, "{asked}");
    }
}

#[tokio::test]
async fn refusal_is_not_retried_and_the_notice_waits() {
    let script = [Response::Status(404, "no_service"), OK];
    let (dir, webhook) = (tempfile::tempdir().unwrap(), Webhook::start(trusted(), &script));
    let notices = notices(dir.path(), &[slack_at(webhook.port())]);
    notices.announce(failed(1)).unwrap();
    assert_eq!(notices.drain(WITHIN).await, Drained { sent: 0, waiting: 1, failed: true });
    assert_eq!(webhook.texts().len(), 1);
    // The webhook was repaired.
    assert_eq!(notices.drain(WITHIN).await.sent, 1);
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let elsewhere = Webhook::start(trusted(), &[OK]);
    let location = format!("https://localhost:{}/", elsewhere.port());
    let script = [Response::StatusWithHeader(307, "location", location)];
    let (dir, webhook) = (tempfile::tempdir().unwrap(), Webhook::start(trusted(), &script));
    let notices = notices(dir.path(), &[slack_at(webhook.port())]);
    notices.announce(failed(1)).unwrap();
    assert!(notices.drain(WITHIN).await.failed);
    assert!(elsewhere.texts().is_empty());
}

#[tokio::test]
async fn untrusted_server_gets_nothing() {
    let (dir, webhook) = (tempfile::tempdir().unwrap(), Webhook::start(untrusted(), &[OK]));
    let notices = notices(dir.path(), &[slack_at(webhook.port())]);
    notices.announce(failed(1)).unwrap();
    let drained = notices.drain(Duration::from_secs(1)).await;
    assert_eq!(drained, Drained { sent: 0, waiting: 1, failed: true });
    assert!(webhook.texts().is_empty());
}
