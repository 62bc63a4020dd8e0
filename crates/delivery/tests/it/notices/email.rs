//! E-mail: what arrives, and that an untrusted server gets nothing.

use std::time::Duration;

use ichido_delivery::notice::Drained;
use ichido_testkit::mail_server::{Encryption, Mail, MailServer, Rejects};

use super::{facts, failed, mail_at, notices, trusted, untrusted};

const WITHIN: Duration = Duration::from_secs(60);

/// Decodes quoted-printable well enough to search for ASCII.
fn body(mail: &Mail) -> String {
    let (_, body) = mail.data.split_once("\n\n").unwrap();
    body.replace("=\n", "").replace("=3D", "=")
}

async fn arrives(encryption: Encryption, scheme: &str) {
    let (dir, server) =
        (tempfile::tempdir().unwrap(), MailServer::start(encryption, Rejects::default()).await);
    let notices = notices(dir.path(), &mail_at(scheme, server.port));
    notices.announce(failed(1)).unwrap();
    assert_eq!(notices.drain(WITHIN).await, Drained { sent: 1, waiting: 0, failed: false });
    let [mail] = server.mails().try_into().unwrap();
    assert!(mail.encrypted && mail.logged_in, "{mail:?}");
    assert_eq!(mail.to, ["first@example.com", "second@example.com"]);
    for header in ["Subject: ichido: 1 batch failed", "From: ichido@example.com"] {
        assert!(mail.data.lines().any(|line| line == header), "{header}: {}", mail.data);
    }
    for fact in facts(1) {
        assert!(body(&mail).contains(&fact), "{fact}: {}", mail.data);
    }
}

#[tokio::test]
async fn mail_is_sent_over_tls() {
    arrives(Encryption::Tls(trusted()), "smtps").await;
}

#[tokio::test]
async fn mail_is_sent_after_starttls() {
    arrives(Encryption::StartTls(trusted()), "smtp").await;
}

#[tokio::test]
async fn server_without_tls_or_trust_gets_nothing() {
    for (encryption, scheme) in [
        (Encryption::None, "smtp"),
        (Encryption::StartTls(untrusted()), "smtp"),
        (Encryption::Tls(untrusted()), "smtps"),
    ] {
        let (dir, server) =
            (tempfile::tempdir().unwrap(), MailServer::start(encryption, Rejects::default()).await);
        let notices = notices(dir.path(), &mail_at(scheme, server.port));
        notices.announce(failed(1)).unwrap();
        let drained = notices.drain(Duration::from_secs(1)).await;
        assert_eq!(drained, Drained { sent: 0, waiting: 1, failed: true });
        assert!(server.mails().is_empty());
        let lines = server.lines();
        assert!(!lines.contains("AUTH") && !lines.contains("MAIL"), "{lines}");
    }
}

#[tokio::test]
async fn busy_server_is_retried() {
    let rejects = Rejects { first: 2, ..Rejects::default() };
    let (dir, server) =
        (tempfile::tempdir().unwrap(), MailServer::start(Encryption::Tls(trusted()), rejects).await);
    let notices = notices(dir.path(), &mail_at("smtps", server.port));
    notices.announce(failed(1)).unwrap();
    assert_eq!(notices.drain(WITHIN).await.sent, 1);
    assert_eq!(server.mails().len(), 1);
}

#[tokio::test]
async fn invalid_address_does_not_keep_mail_from_the_others() {
    let rejects = Rejects { recipient: Some("first@"), ..Rejects::default() };
    let (dir, server) =
        (tempfile::tempdir().unwrap(), MailServer::start(Encryption::Tls(trusted()), rejects).await);
    let notices = notices(dir.path(), &mail_at("smtps", server.port));
    notices.announce(failed(1)).unwrap();
    assert_eq!(notices.drain(WITHIN).await.sent, 1);
    let [mail] = server.mails().try_into().unwrap();
    assert_eq!(mail.to, ["second@example.com"]);
}
