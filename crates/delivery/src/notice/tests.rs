use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use ichido_core::{ManualClock, Timestamp};

use super::*;
use crate::disk;

fn failed(number: u64) -> Event {
    Event::Failed(Failed {
        file_path: format!("data/failed/failed_20250125T093000Z_{number:012}.json"),
        last_error: "HTTP 503 Service Unavailable".to_owned(),
        first_attempt: "2025-01-18T12:05:30Z".to_owned(),
        retry_count: 10,
        batch_idempotency_key: format!("{number:064}"),
        records: 100,
    })
}

fn held() -> Event {
    Event::Held { lane: "https://api.example".to_owned(), reason: "HTTP 401 Unauthorized".to_owned() }
}

/// 2025-01-25T09:30:00Z
const NOW: Timestamp = Timestamp(1_737_797_400_000);

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(NOW))
}

fn open(dir: &Path) -> Notices {
    Notices::open(dir, Vec::new(), clock()).unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names = disk::file_names(dir).unwrap();
    names.retain(|name| name != ".inflight" && name != ".outages");
    names.sort();
    names
}

/// Takes waiting notices, as a drain does.
fn taken(notices: &Notices) -> (Digest, Vec<file_name::FileName>) {
    let mut digest = Digest::default();
    let mut files = Vec::new();
    let taken = notices.outbox.take(|found| match found {
        outbox::Found::Notice { file, id, notice } => {
            digest.add(&id, &notice);
            files.push(file);
        }
        outbox::Found::Unreadable(file) => digest.add_unreadable(&file),
    });
    taken.unwrap();
    (digest, files)
}

#[test]
fn notice_is_a_file_with_the_documented_fields() {
    let dir = tempfile::tempdir().unwrap();
    let notices = open(dir.path());
    notices.announce(failed(7)).unwrap();
    let [name] = names(dir.path()).try_into().unwrap();
    assert!(name.starts_with("notice_20250125T093000Z_") && name.ends_with(".json"), "{name}");
    let json: serde_json::Value = serde_json::from_slice(&fs::read(dir.path().join(&name)).unwrap()).unwrap();
    assert_eq!(json["at"], "2025-01-25T09:30:00Z");
    assert_eq!(json["event"], "failed");
    assert_eq!(json["filePath"], "data/failed/failed_20250125T093000Z_000000000007.json");
    assert_eq!(json["lastError"], "HTTP 503 Service Unavailable");
    assert_eq!(json["firstAttempt"], "2025-01-18T12:05:30Z");
    assert_eq!(json["retryCount"], 10);
}

#[test]
fn files_are_private() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("data/notices");
    let notices = open(&root);
    notices.announce(failed(1)).unwrap();
    notices.begin_outage("lane", held()).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for dir in [&root, &root.join(".inflight"), &root.join(".outages"), notices.outbox.process_dir()] {
        assert_eq!(mode(dir), 0o700, "{}", dir.display());
        for name in disk::file_names(dir).unwrap() {
            let path = dir.join(name);
            assert_eq!(mode(&path), if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
        }
    }
}

#[test]
fn identical_notices_are_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let notices = open(dir.path());
    notices.announce(failed(1)).unwrap();
    notices.announce(failed(1)).unwrap();
    notices.announce(failed(2)).unwrap();
    assert_eq!(notices.waiting().unwrap(), 2);
    assert_eq!(
        disk::file_names(notices.outbox.process_dir()).unwrap(),
        ["lock"],
        "no temporary file is left"
    );
}

#[test]
fn notices_taken_by_a_process_are_recovered_only_after_it_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (open(dir.path()), open(dir.path()));
    (0..3).for_each(|number| first.announce(failed(number)).unwrap());
    assert_eq!(taken(&first).0.count(), 3);
    assert_eq!(taken(&second).0.count(), 0);
    assert_eq!(second.waiting().unwrap(), 3, "they still count as waiting");
    // The same process finds them again, as after a cancelled drain.
    assert_eq!(taken(&first).0.count(), 3);
    drop(first);
    let (digest, files) = taken(&second);
    assert_eq!(digest.count(), 3);
    files.iter().for_each(|file| second.outbox.remove(file).unwrap());
    assert_eq!(second.waiting().unwrap(), 0);
    assert_eq!(
        disk::file_names(&dir.path().join(".inflight")).unwrap().len(),
        1,
        "the directory of the ended process is removed"
    );
}

#[test]
fn temporary_file_of_a_crashed_process_is_never_read() {
    let dir = tempfile::tempdir().unwrap();
    let abandoned = dir.path().join(".inflight/4000000-1");
    fs::create_dir_all(&abandoned).unwrap();
    fs::write(abandoned.join("lock"), "").unwrap();
    fs::write(abandoned.join(".half-notice_x.json"), "{\"at\":").unwrap();
    let notices = open(dir.path());
    assert_eq!(taken(&notices).0.count(), 0);
    assert!(!abandoned.exists() && names(dir.path()).is_empty());
}

#[test]
fn unreadable_notice_is_reported_and_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let notices = open(dir.path());
    notices.announce(failed(1)).unwrap();
    fs::write(dir.path().join("notice_20250101T000000Z_ffff.json"), "{\"at\":").unwrap();
    let (digest, files) = taken(&notices);
    assert_eq!((digest.count(), files.len()), (2, 1));
    assert!(digest.message().subject.contains("1 unreadable notice"), "{:?}", digest.message());
    assert_eq!(names(dir.path()), ["notice_20250101T000000Z_ffff.json.unreadable"]);
}

#[test]
fn foreign_files_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("README"), "x").unwrap();
    assert_eq!(taken(&open(dir.path())).0.count(), 0);
    assert_eq!(names(dir.path()), ["README"]);
}

#[test]
fn thousands_of_notices_are_counted_in_one_message() {
    let mut digest = Digest::default();
    for number in 0..5_000 {
        let at = format!("2025-01-25T09:30:{:02}Z", number % 60);
        digest.add("id", &Notice { at, event: failed(number) });
    }
    digest.add("id", &Notice { at: "2025-01-25T09:31:00Z".to_owned(), event: held() });
    let message = digest.message();
    assert_eq!(message.subject, "ichido: 1 lane held, 5000 batches failed");
    assert!(
        message.text.starts_with("From 2025-01-25T09:30:00Z to 2025-01-25T09:31:00Z\n"),
        "{}",
        message.text
    );
    assert!(message.text.contains("- and 4995 more: run `ichido failed list`"), "{}", message.text);
    for word in [
        "filePath data/failed/failed_",
        "lastError HTTP 503",
        "firstAttempt 2025-01-18T12:05:30Z",
        "retryCount 10",
    ] {
        assert!(message.text.contains(word), "{}", message.text);
    }
    assert!(message.text.len() < 4_000);
}

#[test]
fn text_from_a_server_stays_on_one_line() {
    let mut digest = Digest::default();
    let reason = format!("a\r\nSubject: b\n{}", "x".repeat(10_000));
    digest.add("id", &Notice { at: String::new(), event: Event::Held { lane: "l".to_owned(), reason } });
    let text = digest.message().text;
    assert!(text.contains("l: a  Subject: b x") && text.len() < 1_000, "{text}");
}

#[test]
fn outage_and_recovery_are_announced_once_across_processes() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (open(dir.path()), open(dir.path()));
    assert!(!first.end_outage("lane").unwrap(), "no outage, no recovery");
    assert!(first.begin_outage("lane", held()).unwrap());
    assert!(!first.begin_outage("lane", held()).unwrap());
    assert!(!second.begin_outage("lane", held()).unwrap());
    assert!(second.begin_outage("other", held()).unwrap());
    assert!(second.end_outage("lane").unwrap());
    assert!(!first.end_outage("lane").unwrap());
    let (digest, _) = taken(&first);
    assert!(digest.message().subject.ends_with("1 recovery"), "{:?}", digest.message());
    assert!(
        digest
            .message()
            .text
            .contains("lane: recovered at 2025-01-25T09:30:00Z (outage since 2025-01-25T09:30:00Z)")
    );
    assert!(first.begin_outage("lane", held()).unwrap(), "the next outage is a new one");
}

#[test]
fn lasting_outage_is_announced_again_after_a_day() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let notices = Notices::open(dir.path(), Vec::new(), clock.clone()).unwrap();
    assert!(notices.begin_outage("lane", held()).unwrap());
    clock.advance(23 * 3_600_000);
    assert!(!notices.begin_outage("lane", held()).unwrap());
    clock.advance(2 * 3_600_000);
    assert!(notices.begin_outage("lane", held()).unwrap());
    notices.end_outage("lane").unwrap();
    assert!(
        taken(&notices).0.message().text.contains("(outage since 2025-01-25T09:30:00Z)"),
        "since the first"
    );
}

#[test]
fn recovery_that_a_crashed_process_did_not_announce_is_announced_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let notices = open(dir.path());
    notices.begin_outage("lane", held()).unwrap();
    let [mark] = disk::file_names(&dir.path().join(".outages")).unwrap().try_into().unwrap();
    fs::rename(dir.path().join(".outages").join(&mark), notices.outbox.process_dir().join(&mark)).unwrap();
    drop(notices);
    assert!(open(dir.path()).end_outage("lane").unwrap());
}

#[tokio::test]
async fn notice_that_cannot_be_written_is_sent_from_memory() {
    let dir = tempfile::tempdir().unwrap();
    let notices = open(dir.path());
    fs::remove_dir_all(notices.outbox.process_dir()).unwrap();
    notices.announce(failed(1)).unwrap_err();
    assert_eq!(notices.waiting().unwrap(), 0);
    let drained = notices.drain(Duration::from_secs(5)).await;
    assert_eq!(drained, Drained { sent: 1, waiting: 0, failed: false });
    assert_eq!(notices.drain(Duration::from_secs(5)).await, Drained::default());
}

#[tokio::test]
async fn outage_that_cannot_be_written_is_announced_once_and_so_is_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let notices = open(dir.path());
    fs::remove_dir_all(notices.outbox.process_dir()).unwrap();
    let full = || Event::SpoolFull { reason: "No space left on device".to_owned() };
    notices.begin_outage("spool", full()).unwrap_err();
    assert!(!notices.begin_outage("spool", full()).unwrap());
    assert_eq!(notices.drain(Duration::from_secs(5)).await.sent, 1);
    notices.end_outage("spool").unwrap_err();
    assert!(!notices.end_outage("spool").unwrap());
    assert_eq!(notices.drain(Duration::from_secs(5)).await.sent, 1);
}

#[test]
fn unusable_outbox_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = Notices::open(&file.path().join("notices"), Vec::new(), clock()).unwrap_err().to_string();
    assert!(error.contains("cannot use ") && error.contains("notices"), "{error}");
}

fn read(values: &[(&str, &str)], loopback: bool) -> Result<Settings, String> {
    let get = |name: &str| values.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
    let mut raw = crate::settings::Raw::from_variables(get).map_err(|invalid| invalid.to_string())?;
    raw.allow_http_loopback = loopback;
    Settings::check(&raw).map_err(|invalid| invalid.to_string())
}

#[test]
fn invalid_setting_is_named_and_not_echoed() {
    let mail = |url| [("SMTP_URL", url), ("NOTIFY_EMAIL_TO", "a@b.c"), ("NOTIFY_EMAIL_FROM", "d@e.f")];
    let slack = |url| [("SLACK_WEBHOOK_URL", url)];
    for (values, setting) in [
        (&slack("http://hunter2.example/x")[..], "delivery.slack_webhook_url: must start with https://"),
        (&slack("https://u:hunter2@x/y"), "delivery.slack_webhook_url: must have a host and no user"),
        (&slack("hunter2"), "delivery.slack_webhook_url: is not a URL"),
        (&mail("hunter2"), "delivery.smtp_url: is not a URL"),
        (&mail("http://u:hunter2@mail.example"), "delivery.smtp_url: must start with smtps://"),
        (&mail("smtps://:hunter2@mail.example"), "delivery.smtp_url: must have both a user and a password"),
        (&mail("smtps://u:hunter2@mail.example?tls=opportunistic"), "delivery.smtp_url: may only have"),
        (&mail("smtps://u:%FFhunter2@mail.example"), "delivery.smtp_url: has a password that is not UTF-8"),
        (&mail("smtps://u:pw@mail.example"), "delivery.smtp_url: must have a password of at least 4"),
        (&mail("smtps:"), "delivery.smtp_url: must have a host"),
        (&mail("smtps://mail.example")[..2], "delivery.notify_email_from: is not set"),
        (&mail("smtps://mail.example")[..1], "delivery.notify_email_to: is not set"),
        (&mail("smtps://mail.example")[1..], "delivery.smtp_url: is not set"),
        (
            &[
                ("SMTP_URL", "smtps://m"),
                ("NOTIFY_EMAIL_TO", "a@b.c, hunter2"),
                ("NOTIFY_EMAIL_FROM", "d@e.f"),
            ],
            "delivery.notify_email_to: is not an e-mail address",
        ),
    ] {
        let error = read(values, false).unwrap_err();
        assert!(error.starts_with(setting) && !error.contains("hunter2"), "{error}");
    }
}

#[test]
fn settings_determine_how_the_mail_server_is_reached() {
    use settings::Encryption;
    let email = |url, loopback| {
        let values =
            [("SMTP_URL", url), ("NOTIFY_EMAIL_TO", "Ops <a@b.c>, g@h.i"), ("NOTIFY_EMAIL_FROM", "d@e.f")];
        read(&values, loopback).unwrap().email.unwrap()
    };
    let server = |url, loopback| {
        let email = email(url, loopback);
        (email.host, email.port, email.encryption)
    };
    assert_eq!(server("smtps://mail.example", false), ("mail.example".to_owned(), 465, Encryption::Tls));
    assert_eq!(
        server("smtp://mail.example:2525?tls=required", false),
        ("mail.example".to_owned(), 2525, Encryption::StartTls)
    );
    assert_eq!(server("smtp://127.0.0.1", false), ("127.0.0.1".to_owned(), 587, Encryption::StartTls));
    assert_eq!(server("smtp://127.0.0.1", true), ("127.0.0.1".to_owned(), 587, Encryption::IfOffered));
    assert_eq!(server("smtp://mail.example", true).2, Encryption::StartTls);
    let login = email("smtps://ops%40example.com:p%40ss%2Fw%3Ard@mail.example", false);
    assert!(!format!("{login:?}").contains("p@ss"), "{login:?}");
    let (user, password) = login.login.unwrap();
    assert_eq!(
        (user.as_str(), secrecy::ExposeSecret::expose_secret(&password)),
        ("ops@example.com", "p@ss/w:rd")
    );
    assert_eq!(login.to.len(), 2);
}

#[test]
fn invalid_webhook_or_command_is_named_and_not_echoed() {
    let webhook = |url| ("NOTIFY_WEBHOOK_URL", url);
    let token = |token| ("NOTIFY_WEBHOOK_TOKEN", token);
    for (values, setting) in [
        (&[webhook("http://hunter2.example/x")][..], "delivery.notify_webhook_url: must start with https://"),
        (
            &[webhook("http://127.0.0.1/hunter2")],
            "delivery.notify_webhook_url: must start with https:// (on loopback, set",
        ),
        (&[webhook("https://u:hunter2@x/y")], "delivery.notify_webhook_url: must have a host and no user"),
        (&[token("hunter2")], "delivery.notify_webhook_token: is set, but NOTIFY_WEBHOOK_URL is not"),
        (
            &[webhook("https://x/"), token("hun")],
            "delivery.notify_webhook_token: must have at least 4 characters",
        ),
        (&[webhook("https://x/"), token("hunter 2")], "delivery.notify_webhook_token: must be visible ASCII"),
        (
            &[("NOTIFY_COMMAND", "/nonexistent/page --x")],
            "delivery.notify_command: /nonexistent/page is not a file",
        ),
    ] {
        let error = read(values, false).unwrap_err();
        assert!(error.starts_with(setting) && !error.contains("hunter2"), "{error}");
    }
    let settings =
        read(&[webhook("https://hooks.example/secret"), ("NOTIFY_COMMAND", " /bin/true  a b ")], false);
    let settings = settings.unwrap();
    assert_eq!(settings.webhook.unwrap().origin, "https://hooks.example");
    let command =
        CommandSettings { program: "/bin/true".to_owned(), args: vec!["a".to_owned(), "b".to_owned()] };
    assert_eq!(settings.command, Some(command));
}

#[test]
fn message_for_programs_has_the_documented_fields() {
    let mut digest = Digest::default();
    let at = "2025-01-25T09:30:00Z".to_owned();
    digest.add("n1", &Notice { at: at.clone(), event: failed(7) });
    for number in 0..150 {
        let reason = "x".repeat(10_000);
        digest.add("n2", &Notice { at: at.clone(), event: Event::InvalidInput { count: number, reason } });
    }
    let json = digest.message().to_json();
    assert_eq!((&json["schema"], &json["count"], &json["omitted"]), (&1.into(), &151.into(), &51.into()));
    assert_eq!(json["notices"].as_array().unwrap().len(), 100);
    assert_eq!((&json["first_at"], &json["last_at"]), (&at.as_str().into(), &at.as_str().into()));
    let first = &json["notices"][0];
    assert_eq!(
        (&first["id"], &first["event"], &first["at"]),
        (&"n1".into(), &"failed".into(), &at.as_str().into())
    );
    let details = serde_json::json!({
        "file_path": "data/failed/failed_20250125T093000Z_000000000007.json",
        "last_error": "HTTP 503 Service Unavailable", "first_attempt": "2025-01-18T12:05:30Z", "retry_count": 10,
        "batch_idempotency_key": format!("{:064}", 7), "records": 100,
    });
    assert_eq!(first["details"], details);
    assert_eq!(json["notices"][1]["event"], "invalid_input");
    assert!(json.to_string().len() < 400_000, "details are shortened");
}

#[test]
fn plain_http_to_slack_is_allowed_on_loopback_only() {
    let slack = |url, loopback| read(&[("SLACK_WEBHOOK_URL", url)], loopback);
    assert!(slack("http://127.0.0.1:1/x", false).is_err());
    assert!(slack("http://127.0.0.1:1/x", true).unwrap().slack.is_some());
    assert!(slack("http://hooks.example/x", true).is_err());
    assert!(read(&[("SLACK_WEBHOOK_URL", " ")], false).unwrap().slack.is_none());
}

#[test]
fn waiting_notices_can_be_read_while_a_process_has_taken_them() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = dir.path().join("nowhere");
    assert_eq!(waiting(&nowhere, 10).unwrap(), (0, Vec::new()));
    assert!(!nowhere.exists(), "reading creates nothing");
    let notices = open(dir.path());
    notices.announce(failed(1)).unwrap();
    taken(&notices);
    notices.announce(failed(2)).unwrap();
    let (count, first) = waiting(dir.path(), 10).unwrap();
    assert_eq!((count, first.len()), (2, 2), "{first:?}");
    assert!(first.iter().any(|notice| notice.event == failed(1)), "{first:?}");
    assert_eq!(waiting(dir.path(), 1).unwrap().1.len(), 1);
}
