//! The settings of the sender, read from the environment and validated before anything starts.
//!
//! An error names the setting and never echoes its value, which may be a secret.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use crate::conflict::Conflict;
use crate::cron::Cron;
use crate::endpoint::Endpoint;
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

/// A setting that is missing or invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

/// Looks up a setting by its variable name. `Err`: the value is not valid UTF-8.
pub type Get<'a> = &'a dyn Fn(&str) -> Result<Option<String>, String>;

/// `DATA_DIR`, which is all that a command needs to read the store.
pub fn data_dir(get: Get<'_>) -> Result<PathBuf, Error> {
    Ok(PathBuf::from(text(get, "DATA_DIR")?.unwrap_or_else(|| "data".to_owned())))
}

/// `RECEIPT_RETENTION_DAYS`, which `ichido failed accept` needs too.
pub fn receipt_retention(get: Get<'_>) -> Result<Duration, Error> {
    Ok(Duration::from_secs(number(get, "RECEIPT_RETENTION_DAYS", 90, 1, 36_500)? * DAY_SECONDS))
}

/// `EXTERNAL_API_ALLOW_HTTP_LOOPBACK`, which applies to every outgoing URL.
pub fn allow_http_loopback(get: Get<'_>) -> Result<bool, Error> {
    flag(get, "EXTERNAL_API_ALLOW_HTTP_LOOPBACK")
}

impl Settings {
    /// Reads and validates all settings.
    pub fn read(get: Get<'_>, identity: &Identity) -> Result<Self, Error> {
        let allow_http_loopback = allow_http_loopback(get)?;
        let endpoint = text(get, "EXTERNAL_API_ENDPOINT")?
            .ok_or_else(|| Error("EXTERNAL_API_ENDPOINT is not set".to_owned()))?;
        let endpoint =
            Endpoint::parse("EXTERNAL_API_ENDPOINT", &endpoint, allow_http_loopback).map_err(Error)?;
        Ok(Self {
            data_dir: data_dir(get)?,
            transport: transport::Options {
                endpoint,
                timeout: Duration::from_millis(number(get, "EXTERNAL_API_TIMEOUT_MS", 30_000, 1, 3_600_000)?),
                user_agent: text(get, "EXTERNAL_API_USER_AGENT")?
                    .unwrap_or_else(|| identity.user_agent.clone()),
            },
            ca_file: text(get, "EXTERNAL_API_CA_FILE")?.map(PathBuf::from),
            token: token(get)?,
            policy: Policy {
                max_retries: small(get, "MAX_RETRIES", 3, 0, 20)?,
                backoff: Duration::from_millis(number(get, "RETRY_BACKOFF_MS", 1_000, 1, 600_000)?),
                jitter: flag(get, "RETRY_JITTER")?,
                max_spool_retries: small(get, "MAX_SPOOL_RETRIES", 10, 1, 1_000_000)?,
                retry_after_max: duration(get, "RETRY_AFTER_MAX", Policy::default().retry_after_max)?,
            },
            batch_size: usize::try_from(number(get, "BATCH_SIZE", 100, 1, 10_000)?).unwrap_or(100),
            rate: NonZeroU32::new(small(get, "SEND_RATE_PER_SECOND", 0, 0, 1_000_000)?),
            store: store::Options {
                gzip: flag(get, "SPOOL_GZIP")?,
                max_bytes: Some(number(get, "SPOOL_MAX_BYTES", 0, 0, u64::MAX)?).filter(|most| *most > 0),
                receipt_retention: receipt_retention(get)?,
            },
            retention: Duration::from_secs(number(get, "SPOOL_RETENTION_DAYS", 7, 1, 36_500)? * DAY_SECONDS),
            cron: text(get, "RESEND_CRON")?.map(|text| Cron::parse(&text)).transpose().map_err(Error)?,
            window: text(get, "RESEND_WINDOW")?
                .map(|text| ResendWindow::parse(&text))
                .transpose()
                .map_err(Error)?,
            conflict: conflict(get)?,
            envelope: envelope(get, identity)?,
            gzip: flag(get, "EXTERNAL_API_GZIP")?,
            allow_http_loopback,
        })
    }
}

fn token(get: Get<'_>) -> Result<Source, Error> {
    match (text(get, "EXTERNAL_API_TOKEN")?, text(get, "EXTERNAL_API_TOKEN_FILE")?) {
        (Some(_), Some(_)) => Err(Error(
            "EXTERNAL_API_TOKEN and EXTERNAL_API_TOKEN_FILE are both set; one is enough".to_owned(),
        )),
        (Some(token), None) => Ok(Source::Value(SecretString::from(token))),
        (None, Some(path)) => Ok(Source::File(PathBuf::from(path))),
        (None, None) => Err(Error("EXTERNAL_API_TOKEN is not set (nor EXTERNAL_API_TOKEN_FILE)".to_owned())),
    }
}

fn conflict(get: Get<'_>) -> Result<Conflict, Error> {
    match text(get, "EXTERNAL_API_CONFLICT")?.as_deref() {
        None | Some("auto") => Ok(Conflict::Auto),
        Some("batch") => Ok(Conflict::Batch),
        Some("record") => Ok(Conflict::Record),
        Some(_) => Err(Error("EXTERNAL_API_CONFLICT must be auto, batch or record".to_owned())),
    }
}

fn envelope(get: Get<'_>, identity: &Identity) -> Result<Envelope, Error> {
    match text(get, "EXTERNAL_API_ENVELOPE")?.as_deref() {
        None | Some("plain") => Ok(Envelope::Plain),
        Some("api_meter") => {
            let tenant = text(get, "EXTERNAL_API_TENANT_ID")?.ok_or_else(|| {
                Error(
                    "EXTERNAL_API_TENANT_ID is not set; EXTERNAL_API_ENVELOPE=api_meter needs it".to_owned(),
                )
            })?;
            Ok(Envelope::ApiMeter { tenant, source_system: identity.source_system.clone() })
        }
        Some(_) => Err(Error("EXTERNAL_API_ENVELOPE must be plain or api_meter".to_owned())),
    }
}

/// The value of a setting. An empty value counts as not set.
fn text(get: Get<'_>, name: &str) -> Result<Option<String>, Error> {
    Ok(get(name).map_err(Error)?.filter(|value| !value.trim().is_empty()))
}

fn flag(get: Get<'_>, name: &str) -> Result<bool, Error> {
    match text(get, name)?.map(|value| value.trim().to_ascii_lowercase()).as_deref() {
        None | Some("0" | "false" | "off" | "no") => Ok(false),
        Some("1" | "true" | "on" | "yes") => Ok(true),
        Some(_) => Err(Error(format!("{name} must be on or off"))),
    }
}

fn number(get: Get<'_>, name: &str, default: u64, least: u64, most: u64) -> Result<u64, Error> {
    let Some(value) = text(get, name)? else { return Ok(default) };
    let value: u64 = value.trim().parse().map_err(|_| Error(format!("{name} is not a whole number")))?;
    match (least..=most).contains(&value) {
        true => Ok(value),
        false => Err(Error(format!("{name} is {value}; it must be between {least} and {most}"))),
    }
}

/// A duration between a second and 30 days: `24h`, `90m`, or a number of seconds.
fn duration(get: Get<'_>, name: &str, default: Duration) -> Result<Duration, Error> {
    let Some(value) = text(get, name)? else { return Ok(default) };
    let value = value.trim();
    let read = match value.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => value.parse::<jiff::SignedDuration>().ok().and_then(|read| Duration::try_from(read).ok()),
    };
    let range = Duration::from_secs(1)..=Duration::from_secs(30 * 86_400);
    read.filter(|read| range.contains(read)).ok_or_else(|| {
        Error(format!("{name} must be a duration between 1s and 720h, such as 24h, 90m or 3600 (seconds)"))
    })
}

fn small(get: Get<'_>, name: &str, default: u32, least: u32, most: u32) -> Result<u32, Error> {
    let value = number(get, name, default.into(), least.into(), most.into())?;
    Ok(u32::try_from(value).unwrap_or(default))
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
        Settings::read(&|name| Ok(values.get(name).map(|value| (*value).to_owned())), &identity)
            .map_err(|error| error.to_string())
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
