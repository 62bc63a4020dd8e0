//! Notices from the outbox to operators: a webhook and a mail server on real sockets with real TLS, killed
//! processes, and processes that share an outbox.

mod channels;
mod draining;
mod email;
mod processes;
mod secrets;
mod slack;
mod webhook;

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ichido_core::{Clock, SystemClock};
use ichido_delivery::notice::{self, Event, Failed, Notices, Settings, Timing};
use ichido_delivery::settings::Raw;
use ichido_delivery::tls_roots::TlsRoots;
use ichido_testkit::certificates::Authority;
use rustls::ServerConfig;

/// The authority that all channels trust.
static AUTHORITY: LazyLock<Authority> = LazyLock::new(Authority::new);

/// The longest that a test waits.
const PATIENCE: Duration = Duration::from_secs(60);

/// Short intervals, so that tests do not have to wait.
fn quick() -> Timing {
    Timing {
        gather: Duration::from_millis(50),
        window: Duration::from_millis(400),
        pause: Duration::from_millis(50),
        pause_max: Duration::from_millis(200),
        time_limit: Duration::from_secs(5),
        look: Duration::from_millis(100),
    }
}

fn failed(number: u64) -> Event {
    Event::Failed(Failed {
        file_path: format!("data/failed/failed_20250125T093000Z_{number:012}.json"),
        last_error: "HTTP 503 <Service & Unavailable> 停止中".to_owned(),
        first_attempt: "2025-01-18T12:05:30Z".to_owned(),
        retry_count: 10,
        batch_idempotency_key: format!("{number:064}"),
        records: 100,
    })
}

/// What each channel must say about `failed(number)`.
fn facts(number: u64) -> [String; 4] {
    [
        format!("filePath data/failed/failed_20250125T093000Z_{number:012}.json"),
        "lastError HTTP 503".to_owned(),
        "firstAttempt 2025-01-18T12:05:30Z".to_owned(),
        "retryCount 10".to_owned(),
    ]
}

/// The outbox in `dir` with the channels in these settings, which trust [`AUTHORITY`].
fn notices(dir: &Path, values: &[(&str, String)]) -> Notices {
    let get = |name: &str| values.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
    let settings = Settings::check(&Raw::from_variables(get).unwrap()).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let roots = TlsRoots::from_pem(AUTHORITY.pem().as_bytes()).unwrap();
    let channels = notice::channels(&settings, &roots, &clock).unwrap();
    Notices::open(dir, channels, clock).unwrap().with_timing(quick())
}

/// A server for `localhost` that the channels trust.
fn trusted() -> Arc<ServerConfig> {
    AUTHORITY.localhost().config
}

/// A server for `localhost` with a certificate of an unknown authority.
fn untrusted() -> Arc<ServerConfig> {
    Authority::new().localhost().config
}

fn slack_at(port: u16) -> (&'static str, String) {
    ("SLACK_WEBHOOK_URL", format!("https://localhost:{port}/services/T0/B0/hunter2hunter2"))
}

/// A mail server at `port`, with a login.
fn mail_at(scheme: &str, port: u16) -> [(&'static str, String); 3] {
    [
        ("SMTP_URL", format!("{scheme}://ops%40example.com:p%40ss%2Fw%3Ard@localhost:{port}")),
        ("NOTIFY_EMAIL_TO", "first@example.com, 二人目 <second@example.com>".to_owned()),
        ("NOTIFY_EMAIL_FROM", "ichido@example.com".to_owned()),
    ]
}

/// How many notices with this in their name processes have taken.
fn taken(dir: &Path, part: &str) -> usize {
    let processes = std::fs::read_dir(dir.join(".inflight")).unwrap();
    let files = processes.flat_map(|process| std::fs::read_dir(process.unwrap().path()).unwrap());
    files.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().contains(part)).count()
}
