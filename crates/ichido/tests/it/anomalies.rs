//! An unusual hour in the history, as an operator hears of it.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ichido_core::{Clock, SystemClock};
use ichido_history::{Recorder, Settings};
use ichido_testkit::http_server::{HttpServer, Reply};
use ichido_testkit::mail_server::{Encryption, MailServer, Rejects};
use ichido_testkit::wait::eventually;
use rusqlite::{Connection, params};
use serde_json::{Value, json};

use crate::serving::Serving;
use crate::{json, ok, refused};

const DAY: Duration = Duration::from_secs(86_400);

/// Writes the history of four weeks, with 40 events in each hour, and 400 in the last one. Returns that hour.
pub(crate) fn write_history(dir: &Path) -> i64 {
    let clock = Arc::new(SystemClock::default());
    let last = i64::try_from((clock.now().0 - 2 * 60 * 1_000) / 3_600_000 - 1).unwrap();
    let settings = Settings {
        dir: dir.to_owned(),
        instance: "one".to_owned(),
        decisions_max: 1_000,
        decisions_age: 7 * DAY,
        counts_age: 30 * DAY,
        clock,
    };
    let recorder = Recorder::start(settings).unwrap();
    let path = recorder.path().to_owned();
    drop(recorder);
    let mut connection = Connection::open(path).unwrap();
    let transaction = connection.transaction().unwrap();
    for hour in last - 28 * 24..=last {
        let count = if hour == last { 400 } else { 40 };
        let insert = "INSERT INTO hours VALUES (?1, 'events', 'C1', 'new', 0, ?2, 0, 0)";
        transaction.execute(insert, params![hour, count]).unwrap();
        transaction.execute("INSERT OR REPLACE INTO recorded VALUES (?1, 3600)", [hour]).unwrap();
    }
    transaction.commit().unwrap();
    // The hours before were checked, so that this one is too, even if another hour ends meanwhile.
    std::fs::write(dir.join("anomalies.checked"), (last - 1).to_string()).unwrap();
    last
}

#[test]
fn unusual_hour_is_shown_logged_counted_and_announced() {
    let dir = tempfile::tempdir().unwrap();
    let history = dir.path().join("data/history");
    let hour = write_history(&history);

    let shown = ok(dir.path(), &["events", "anomalies"]);
    assert!(shown.contains(r#"volume: source "C1" on "events" had 400 arrivals"#), "{shown}");
    assert!(
        shown.contains("ichido events history --by hour") && shown.contains("1 anomaly in 7 days"),
        "{shown}"
    );
    let found = json(dir.path(), &["events", "anomalies", "--days", "1", "--json"]);
    let finding = &found["anomalies"][0];
    assert_eq!((&finding["kind"], &finding["source"]), (&json!("volume"), &json!("C1")), "{found}");
    assert_eq!((&finding["observed"], &finding["usual"]), (&json!(400.0), &json!(40.0)), "{found}");

    let serving = Serving::claims(dir.path(), "memory:", None);
    serving.says("had 400 arrivals");
    let metrics = serving.call("GET", "/metrics", &[], "").text();
    assert!(metrics.contains(r#"ichido_anomalies_total{kind="volume"} 1"#), "{metrics}");
    assert!(metrics.contains(r#"ichido_anomalies_total{kind="silence"} 0"#), "{metrics}");
    serving.says("ichido: 1 anomaly");
    eventually("the hour is noted as checked", || {
        let noted = std::fs::read_to_string(history.join("anomalies.checked")).unwrap();
        noted.parse::<i64>().ok().filter(|noted| *noted >= hour)
    });
}

/// The page of the console that shows the unusual hour.
fn page(hour: i64) -> String {
    format!("/history?days=30&route=events&source=C1&at={}#hour", hour * 3_600_000)
}

const SENTENCE: &str = r#"source "C1" on "events" had 400 arrivals"#;

/// A process that finds the unusual hour, and whose console has an address. Returns the link of its notice.
fn start_with_link(dir: &Path, channel: &[(&str, &str)]) -> (Serving, String) {
    let hour = write_history(&dir.join("data/history"));
    let common =
        [("EXTERNAL_API_ALLOW_HTTP_LOOPBACK", "on"), ("ICHIDO_CONSOLE_URL", "https://ichido.example.com/")];
    let serving = Serving::claims_with(dir, "memory:", &[&common, channel].concat());
    (serving, format!("https://ichido.example.com{}", page(hour)))
}

#[test]
fn notice_with_a_link_arrives_at_slack() {
    let dir = tempfile::tempdir().unwrap();
    let messages = Arc::<Mutex<Vec<Value>>>::default();
    let kept = messages.clone();
    let slack = HttpServer::start(move |request| {
        kept.lock().unwrap().push(serde_json::from_slice(request.body()).unwrap());
        async { Reply::status(200, "ok") }
    });
    let url = format!("http://{}/services/x", slack.as_ref().unwrap().address());
    let (serving, link) = start_with_link(dir.path(), &[("SLACK_WEBHOOK_URL", &url)]);
    let message = eventually("a message", || messages.lock().unwrap().first().cloned());
    let text = message["text"].as_str().unwrap().replace("&amp;", "&");
    assert!(text.contains("1 anomaly") && text.contains(SENTENCE) && text.contains(&link), "{text}");
    serving.says(&link);
}

#[tokio::test(flavor = "multi_thread")]
async fn notice_with_a_link_arrives_by_mail() {
    let dir = tempfile::tempdir().unwrap();
    let server = MailServer::start(Encryption::None, Rejects::default()).await;
    let url = format!("smtp://127.0.0.1:{}", server.port);
    let channel = [
        ("SMTP_URL", url.as_str()),
        ("NOTIFY_EMAIL_TO", "ops@example.com"),
        ("NOTIFY_EMAIL_FROM", "ichido@example.com"),
    ];
    let (_serving, link) = start_with_link(dir.path(), &channel);
    let mail = eventually("a mail", || server.mails().first().cloned());
    assert_eq!(mail.to, ["ops@example.com"]);
    assert!(mail.data.lines().any(|line| line == "Subject: ichido: 1 anomaly"), "{}", mail.data);
    let text = mail.data.replace("=\n", "").replace("=3D", "=");
    assert!(text.contains(SENTENCE) && text.contains(&link), "{text}");
}

#[test]
fn running_process_tells_what_it_has_found() {
    let dir = tempfile::tempdir().unwrap();
    let hour = write_history(&dir.path().join("data/history"));
    let serving = Serving::claims(dir.path(), "memory:", None);
    let (elsewhere, address) = (tempfile::tempdir().unwrap(), serving.address.to_string());
    let arguments = ["events", "anomalies", "--admin", &address];
    let anomalies = |more: &[&'static str]| [&arguments, more].concat();
    let shown = ok(elsewhere.path(), &anomalies(&[]));
    assert!(shown.contains("had 400 arrivals") && shown.contains("1 anomaly in 7 days"), "{shown}");
    let link = format!("http://{address}{}", page(hour));
    assert!(shown.contains(&link), "{shown}");
    let found = json(elsewhere.path(), &anomalies(&["--days", "1", "--json"]));
    assert_eq!(found["anomalies"][0]["link"], link, "{found}");
    let api = serving.get("/v1/history/anomalies").json();
    assert_eq!(api["anomalies"][0]["page"], page(hour), "{api}");
    assert_eq!((&api["known_hours"], &api["until"]), (&found["known_hours"], &found["until"]), "{api}");

    let line = refused(elsewhere.path(), &anomalies(&["--days", "8"]), 2);
    assert!(line.contains("days must be between 1 and 7"), "{line}");
    let line = refused(elsewhere.path(), &anomalies(&["--dir", "data/history"]), 2);
    assert!(line.contains("--dir cannot be used with --admin"), "{line}");
    let line = refused(elsewhere.path(), &["events", "history", "--admin", &address], 2);
    assert!(line.contains("use --dir instead of --admin"), "{line}");

    drop(serving);
    let serving = Serving::claims_with(dir.path(), "memory:", &[("ICHIDO_ANOMALIES_ENABLED", "false")]);
    let refused = serving.get("/v1/history/anomalies");
    assert_eq!((refused.status, &refused.json()["type"]), (503, &json!("/problems/history-unavailable")));
    assert!(!serving.get("/").text().contains("anomalies"));
}

#[test]
fn settings_are_checked_by_name() {
    let dir = tempfile::tempdir().unwrap();
    for (setting, problem) in [
        ("cool_down_hours = 0", "anomalies.cool_down_hours"),
        ("sensitivity = \"extreme\"", "anomalies.sensitivity"),
        ("enabled = 3", "anomalies.enabled"),
    ] {
        std::fs::write(dir.path().join("ichido.toml"), format!("[anomalies]\n{setting}\n")).unwrap();
        let line = refused(dir.path(), &["events", "anomalies", "--dir", "elsewhere"], 2);
        assert!(line.contains(problem), "{line}");
    }
    std::fs::remove_file(dir.path().join("ichido.toml")).unwrap();
    let line = refused(dir.path(), &["events", "anomalies", "--dir", "elsewhere"], 2);
    assert!(line.contains("elsewhere") && line.contains("nothing was recorded here yet"), "{line}");
}
