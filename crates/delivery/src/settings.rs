//! The settings of the sender, validated before anything starts.
//!
//! An error names the setting and never echoes its value, which may be a secret.

use std::ffi::OsString;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use ichido_settings::{Invalid, Secret, Sources};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conflict::Conflict;
use crate::cron::Cron;
use crate::endpoint::Endpoint;
use crate::invalid::invalid;
use crate::next_action::Policy;
use crate::request::Envelope;
use crate::resend_window::ResendWindow;
use crate::store;
use crate::token::Source;
use crate::transport;

const DAY_SECONDS: u64 = 86_400;

/// The settings of the sender.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The directory for batches, receipts and notices.
    pub data_dir: PathBuf,
    /// How requests are made.
    pub transport: transport::Options,
    /// A file of certificate authorities to trust in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// Where the token comes from.
    pub token: Source,
    /// When to retry.
    pub policy: Policy,
    /// The most records in a batch.
    pub batch_size: usize,
    /// The most requests per second.
    pub rate: Option<NonZeroU32>,
    /// How batches are stored.
    pub store: store::Options,
    /// How long a batch may stay in the spool before it moves to failed.
    pub retention: Duration,
    /// When a daemon resends spooled batches. Every minute if not set.
    pub cron: Option<Cron>,
    /// The hours in which spooled batches are resent.
    pub window: Option<ResendWindow>,
    /// How to interpret a 409.
    pub conflict: Conflict,
    /// How the records are wrapped.
    pub envelope: Envelope,
    /// Whether request bodies are compressed.
    pub gzip: bool,
    /// Whether plain HTTP is allowed on loopback.
    pub allow_http_loopback: bool,
}

/// How the sender presents itself to the receiver. The program that sends decides it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The `User-Agent` header, unless `EXTERNAL_API_USER_AGENT` is set.
    pub user_agent: String,
    /// The system that the records come from, for envelopes that name it.
    pub source_system: String,
}

/// `[delivery]` as it was written.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Raw {
    /// The URL that batches are sent to. Required for sending.
    #[schemars(extend("x-env" = "EXTERNAL_API_ENDPOINT", "x-url" = true))]
    pub endpoint: Option<String>,
    /// The bearer token that the receiver expects.
    #[schemars(extend("x-env" = "EXTERNAL_API_TOKEN", "x-env-only" = true))]
    pub token: Option<Secret>,
    /// A file that contains only the token. It is read again when it changes.
    #[schemars(extend("x-env" = "EXTERNAL_API_TOKEN_FILE"))]
    pub token_file: Option<String>,
    /// How long a request may take, in milliseconds.
    #[schemars(range(min = 1, max = 3_600_000), extend("x-env" = "EXTERNAL_API_TIMEOUT_MS"))]
    pub timeout_ms: u64,
    /// The `User-Agent` header. Empty: ichido's own.
    #[schemars(extend("x-env" = "EXTERNAL_API_USER_AGENT"))]
    pub user_agent: String,
    /// Certificate authorities to trust in addition to the system's, for every outgoing connection.
    #[schemars(extend("x-env" = "EXTERNAL_API_CA_FILE"))]
    pub ca_file: Option<String>,
    /// What a 409 means: `batch`, all of the batch is known; `record`, one of its records is; `auto` decides by the evidence.
    #[schemars(extend("x-env" = "EXTERNAL_API_CONFLICT"))]
    pub conflict: Conflict,
    /// How records are wrapped.
    #[schemars(extend("x-env" = "EXTERNAL_API_ENVELOPE"))]
    pub envelope: RawEnvelope,
    /// The tenant that the envelope `api_meter` names.
    #[schemars(extend("x-env" = "EXTERNAL_API_TENANT_ID"))]
    pub tenant_id: String,
    /// Whether request bodies are compressed.
    #[schemars(extend("x-env" = "EXTERNAL_API_GZIP"))]
    pub gzip: bool,
    /// Whether outgoing URLs may be plain HTTP on loopback, for trials.
    #[schemars(extend("x-env" = "EXTERNAL_API_ALLOW_HTTP_LOOPBACK"))]
    pub allow_http_loopback: bool,
    /// How often a batch is retried before it goes to the spool.
    #[schemars(range(min = 0, max = 20), extend("x-env" = "MAX_RETRIES"))]
    pub max_retries: u32,
    /// How often a spooled batch is resent before it goes to failed.
    #[schemars(range(min = 1, max = 1_000_000), extend("x-env" = "MAX_SPOOL_RETRIES"))]
    pub max_spool_retries: u32,
    /// The delay before the first retry, in milliseconds. It doubles each time.
    #[schemars(range(min = 1, max = 600_000), extend("x-env" = "RETRY_BACKOFF_MS"))]
    pub retry_backoff_ms: u64,
    /// Whether delays are randomised.
    #[schemars(extend("x-env" = "RETRY_JITTER"))]
    pub retry_jitter: bool,
    /// The longest that a receiver may defer a batch: `24h`, `90m`, or seconds.
    #[schemars(extend("x-env" = "RETRY_AFTER_MAX"))]
    pub retry_after_max: String,
    /// The most records in a batch.
    #[schemars(range(min = 1, max = 10_000), extend("x-env" = "BATCH_SIZE"))]
    pub batch_size: usize,
    /// The directory for batches, receipts and notices.
    #[schemars(extend("x-env" = "DATA_DIR"))]
    pub data_dir: String,
    /// The most requests per second; `0`: no limit.
    #[schemars(range(min = 0, max = 1_000_000), extend("x-env" = "SEND_RATE_PER_SECOND"))]
    pub send_rate_per_second: u32,
    /// The most requests under way at a time. `1`: one after the other.
    #[schemars(range(min = 1, max = 64), extend("x-env" = "SEND_CONCURRENCY"))]
    pub send_concurrency: usize,
    /// When `ichido run` resends the spool, such as `*/15 * * * *`. Empty: every minute.
    #[schemars(extend("x-env" = "RESEND_CRON"))]
    pub resend_cron: String,
    /// The hours in which the spool is resent, such as `22:00-06:00 Asia/Tokyo`. Empty: always.
    #[schemars(extend("x-env" = "RESEND_WINDOW"))]
    pub resend_window: String,
    /// Whether stored batches are compressed.
    #[schemars(extend("x-env" = "SPOOL_GZIP"))]
    pub spool_gzip: bool,
    /// The most bytes in the spool; `0`: no limit.
    #[schemars(extend("x-env" = "SPOOL_MAX_BYTES"))]
    pub spool_max_bytes: u64,
    /// After how many days a spooled batch goes to failed.
    #[schemars(range(min = 1, max = 36_500), extend("x-env" = "SPOOL_RETENTION_DAYS"))]
    pub spool_retention_days: u64,
    /// For how many days receipts are kept.
    #[schemars(range(min = 1, max = 36_500), extend("x-env" = "RECEIPT_RETENTION_DAYS"))]
    pub receipt_retention_days: u64,
    /// A Slack incoming webhook for notices.
    #[schemars(extend("x-env" = "SLACK_WEBHOOK_URL", "x-env-only" = true))]
    pub slack_webhook_url: Option<Secret>,
    /// The mail server for notices: `smtps://USER:PASSWORD@HOST`, or `smtp://` for STARTTLS.
    #[schemars(extend("x-env" = "SMTP_URL", "x-env-only" = true))]
    pub smtp_url: Option<Secret>,
    /// Who gets notices by e-mail, separated by commas.
    #[schemars(extend("x-env" = "NOTIFY_EMAIL_TO"))]
    pub notify_email_to: String,
    /// The sender of notices.
    #[schemars(extend("x-env" = "NOTIFY_EMAIL_FROM"))]
    pub notify_email_from: String,
    /// A webhook that gets notices as JSON.
    #[schemars(extend("x-env" = "NOTIFY_WEBHOOK_URL", "x-env-only" = true))]
    pub notify_webhook_url: Option<Secret>,
    /// The bearer token for `NOTIFY_WEBHOOK_URL`.
    #[schemars(extend("x-env" = "NOTIFY_WEBHOOK_TOKEN", "x-env-only" = true))]
    pub notify_webhook_token: Option<Secret>,
    /// A program that gets notices as JSON on standard input, and its arguments, separated by spaces. It runs without a
    /// shell.
    #[schemars(extend("x-env" = "NOTIFY_COMMAND"))]
    pub notify_command: String,
}

/// `EXTERNAL_API_ENVELOPE`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum RawEnvelope {
    /// `{"records": […]}`
    #[default]
    Plain,
    /// The request of an API_Meter, with tenant and export metadata.
    ApiMeter,
}

impl Default for Raw {
    fn default() -> Self {
        let policy = Policy::default();
        Self {
            endpoint: None,
            token: None,
            token_file: None,
            timeout_ms: 30_000,
            user_agent: String::new(),
            ca_file: None,
            conflict: Conflict::Auto,
            envelope: RawEnvelope::Plain,
            tenant_id: String::new(),
            gzip: false,
            allow_http_loopback: false,
            max_retries: policy.max_retries,
            max_spool_retries: policy.max_spool_retries,
            retry_backoff_ms: 1_000,
            retry_jitter: false,
            retry_after_max: "24h".to_owned(),
            batch_size: 100,
            data_dir: "data".to_owned(),
            send_rate_per_second: 0,
            send_concurrency: 4,
            resend_cron: String::new(),
            resend_window: String::new(),
            spool_gzip: false,
            spool_max_bytes: 0,
            spool_retention_days: 7,
            receipt_retention_days: 90,
            slack_webhook_url: None,
            smtp_url: None,
            notify_email_to: String::new(),
            notify_email_from: String::new(),
            notify_webhook_url: None,
            notify_webhook_token: None,
            notify_command: String::new(),
        }
    }
}

/// The endpoint may contain a password, until it is refused for that.
impl std::fmt::Debug for Raw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Raw").field("data_dir", &self.data_dir).finish_non_exhaustive()
    }
}

impl Raw {
    /// The section as environment variables alone define it.
    pub fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, Invalid> {
        let sources = Sources::new(&File::schema(), None, variable, &[])?;
        sources.section("delivery")
    }

    /// The directory for batches, receipts and notices.
    pub fn data_dir(&self) -> PathBuf {
        PathBuf::from(&self.data_dir)
    }

    /// How long receipts are kept.
    pub fn receipt_retention(&self) -> Duration {
        Duration::from_secs(self.receipt_retention_days * DAY_SECONDS)
    }

    /// Checks everything that sending needs.
    pub fn check(&self, identity: &Identity) -> Result<Settings, Invalid> {
        let problem =
            "is not set; name the receiver with --endpoint, EXTERNAL_API_ENDPOINT or endpoint in [delivery]";
        let endpoint = given(self.endpoint.as_deref()).ok_or_else(|| invalid("endpoint", problem))?;
        let endpoint = Endpoint::parse("delivery.endpoint", endpoint, self.allow_http_loopback)?;
        let user_agent = given(Some(&self.user_agent)).unwrap_or(&identity.user_agent);
        Ok(Settings {
            data_dir: self.data_dir(),
            transport: transport::Options {
                endpoint,
                timeout: Duration::from_millis(self.timeout_ms),
                user_agent: user_agent.to_owned(),
                concurrency: NonZeroUsize::new(self.send_concurrency).unwrap_or(NonZeroUsize::MIN),
            },
            ca_file: given(self.ca_file.as_deref()).map(PathBuf::from),
            token: self.token()?,
            policy: Policy {
                max_retries: self.max_retries,
                backoff: Duration::from_millis(self.retry_backoff_ms),
                jitter: self.retry_jitter,
                max_spool_retries: self.max_spool_retries,
                retry_after_max: duration("retry_after_max", &self.retry_after_max)?,
            },
            batch_size: self.batch_size,
            rate: NonZeroU32::new(self.send_rate_per_second),
            store: store::Options {
                gzip: self.spool_gzip,
                max_bytes: Some(self.spool_max_bytes).filter(|most| *most > 0),
                receipt_retention: self.receipt_retention(),
            },
            retention: Duration::from_secs(self.spool_retention_days * DAY_SECONDS),
            cron: given(Some(&self.resend_cron))
                .map(Cron::parse)
                .transpose()
                .map_err(|problem| invalid("resend_cron", problem))?,
            window: given(Some(&self.resend_window))
                .map(ResendWindow::parse)
                .transpose()
                .map_err(|problem| invalid("resend_window", problem))?,
            conflict: self.conflict,
            envelope: self.envelope(identity)?,
            gzip: self.gzip,
            allow_http_loopback: self.allow_http_loopback,
        })
    }

    fn token(&self) -> Result<Source, Invalid> {
        let token = self.token.clone().filter(|token| !token.expose().trim().is_empty());
        match (token, given(self.token_file.as_deref())) {
            (Some(_), Some(_)) => Err(invalid(
                "token_file",
                "EXTERNAL_API_TOKEN and EXTERNAL_API_TOKEN_FILE are both set; one is enough",
            )),
            (Some(token), None) => Ok(Source::Value(token.into_inner())),
            (None, Some(path)) => Ok(Source::File(PathBuf::from(path))),
            (None, None) => {
                Err(invalid("token", "is not set; set EXTERNAL_API_TOKEN or EXTERNAL_API_TOKEN_FILE"))
            }
        }
    }

    fn envelope(&self, identity: &Identity) -> Result<Envelope, Invalid> {
        match self.envelope {
            RawEnvelope::Plain => Ok(Envelope::Plain),
            RawEnvelope::ApiMeter => {
                let problem = "is not set (EXTERNAL_API_TENANT_ID); the envelope api_meter needs it";
                let tenant = given(Some(&self.tenant_id)).ok_or_else(|| invalid("tenant_id", problem))?;
                Ok(Envelope::ApiMeter {
                    tenant: tenant.to_owned(),
                    source_system: identity.source_system.clone(),
                })
            }
        }
    }
}

/// An empty value counts as not set.
pub(crate) fn given(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

/// A duration between a second and 30 days: `24h`, `90m`, or a number of seconds.
fn duration(name: &str, text: &str) -> Result<Duration, Invalid> {
    let text = text.trim();
    let read = match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => text.parse::<jiff::SignedDuration>().ok().and_then(|read| Duration::try_from(read).ok()),
    };
    let range = Duration::from_secs(1)..=Duration::from_secs(30 * DAY_SECONDS);
    read.filter(|read| range.contains(read)).ok_or_else(|| {
        invalid(name, "must be a duration between 1s and 720h, such as 24h, 90m or 3600 (seconds)")
    })
}

/// A settings file that has no other section.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct File {
    delivery: Raw,
}

impl File {
    fn schema() -> serde_json::Value {
        ichido_settings::schema::<Self>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn read(changes: &[(&str, &str)]) -> Result<Settings, String> {
        let mut values = HashMap::from([
            ("EXTERNAL_API_ENDPOINT", "https://api.example/usage"),
            ("EXTERNAL_API_TOKEN", "hunter2"),
        ]);
        values.extend(changes.iter().copied());
        let identity = Identity { user_agent: "sender/1".to_owned(), source_system: "source".to_owned() };
        let variable = |name: &str| values.get(name).map(|value| (*value).into());
        let sources =
            Sources::new(&File::schema(), None, variable, &[]).map_err(|invalid| invalid.to_string())?;
        let raw: Raw = sources.section("delivery").map_err(|invalid| invalid.to_string())?;
        raw.check(&identity).map_err(|invalid| sources.explain(&invalid).to_string())
    }

    #[test]
    fn defaults_match_the_documentation() {
        let settings = read(&[]).unwrap();
        assert_eq!(settings.data_dir, PathBuf::from("data"));
        assert_eq!(settings.transport.timeout, Duration::from_secs(30));
        assert_eq!(settings.transport.user_agent, "sender/1");
        assert_eq!(settings.policy, Policy::default());
        assert_eq!((settings.batch_size, settings.rate), (100, None));
        assert_eq!(settings.store, store::Options::default());
        assert_eq!(settings.retention, Duration::from_secs(7 * 86_400));
        assert_eq!(
            (settings.conflict, settings.envelope, settings.gzip),
            (Conflict::Auto, Envelope::Plain, false)
        );
    }

    #[test]
    fn invalid_setting_is_named_and_not_echoed() {
        for (name, value) in [
            ("EXTERNAL_API_ENDPOINT", "http://hunter2"),
            ("EXTERNAL_API_ENDPOINT", ""),
            ("EXTERNAL_API_TOKEN", ""),
            ("EXTERNAL_API_TOKEN_FILE", "hunter2"),
            ("EXTERNAL_API_TIMEOUT_MS", "hunter2"),
            ("EXTERNAL_API_TIMEOUT_MS", "0"),
            ("MAX_RETRIES", "-1"),
            ("MAX_SPOOL_RETRIES", "0"),
            ("RETRY_BACKOFF_MS", "1.5"),
            ("RETRY_JITTER", "hunter2"),
            ("BATCH_SIZE", "0"),
            ("SEND_RATE_PER_SECOND", "many"),
            ("SPOOL_GZIP", "maybe"),
            ("SPOOL_MAX_BYTES", "1GB"),
            ("SPOOL_RETENTION_DAYS", "0"),
            ("RETRY_AFTER_MAX", "hunter2"),
            ("RETRY_AFTER_MAX", "0"),
            ("RETRY_AFTER_MAX", "-1h"),
            ("RETRY_AFTER_MAX", "721h"),
            ("RECEIPT_RETENTION_DAYS", "0"),
            ("RESEND_CRON", "hunter2"),
            ("RESEND_WINDOW", "hunter2"),
            ("EXTERNAL_API_CONFLICT", "hunter2"),
            ("EXTERNAL_API_ENVELOPE", "hunter2"),
            ("EXTERNAL_API_GZIP", "hunter2"),
        ] {
            let error = read(&[(name, value)]).unwrap_err();
            assert!(
                error.contains(name) && !error.contains("hunter2") && !error.contains('\n'),
                "{name}: {error}"
            );
        }
    }

    #[test]
    fn duration_has_a_unit_or_is_in_seconds() {
        for (text, seconds) in [("24h", 86_400), ("90m", 5_400), ("1h 30m", 5_400), ("45", 45), (" 45s ", 45)]
        {
            let settings = read(&[("RETRY_AFTER_MAX", text)]).unwrap();
            assert_eq!(settings.policy.retry_after_max, Duration::from_secs(seconds), "{text}");
        }
    }

    const NAMES: [&str; 13] = [
        "RETRY_AFTER_MAX",
        "EXTERNAL_API_ENDPOINT",
        "EXTERNAL_API_TOKEN_FILE",
        "EXTERNAL_API_TIMEOUT_MS",
        "EXTERNAL_API_CONFLICT",
        "EXTERNAL_API_ENVELOPE",
        "MAX_RETRIES",
        "RETRY_JITTER",
        "BATCH_SIZE",
        "SPOOL_MAX_BYTES",
        "SPOOL_RETENTION_DAYS",
        "RESEND_CRON",
        "RESEND_WINDOW",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn no_value_makes_it_panic_or_is_echoed(
            values in prop::collection::vec((prop::sample::select(&NAMES[..]), "hunter2[ -~あ]{0,30}|[0-9:/* -]{0,30}"), 0..4),
        ) {
            let values: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
            if let Err(line) = read(&values) {
                prop_assert!(!line.contains("hunter2") && !line.contains('\n'), "{}", line);
            }
        }
    }
}
