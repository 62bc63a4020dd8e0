//! Settings: the file, then the environment, then flags; checked before anything starts.
//!
//! An error names the setting and where it came from, and echoes no value that may be a secret.

pub(crate) mod delivery;
pub(crate) mod meter;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::args::{Common, DeliveryFlags};
use crate::delivery::Values;
use ichido_admin::{Bodies, LogKeys};
use ichido_export::settings as export;
use ichido_gateway::settings as gateway;
use ichido_serve::Failure;
use ichido_serve::ledger::Settings as Ledger;
use ichido_settings::{number, text, within};

/// Checked settings, ready to use.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) file: Option<PathBuf>,
    pub(crate) ledger: Ledger,
    pub(crate) claims: Claims,
    /// What the console may show.
    pub(crate) bodies: Bodies,
    gateway: Option<gateway::RawGateway>,
    delivery: Option<delivery::RawDelivery>,
    meter: Option<meter::RawMeter>,
    dify: Option<export::RawDify>,
}

/// The claim API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claims {
    pub(crate) log_keys: LogKeys,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[serde(default)]
    ledger: RawLedger,
    #[serde(default)]
    claims: RawClaims,
    #[serde(default)]
    console: RawConsole,
    gateway: Option<gateway::RawGateway>,
    delivery: Option<delivery::RawDelivery>,
    meter: Option<meter::RawMeter>,
    #[serde(default)]
    export: export::RawExports,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLedger {
    url: Option<String>,
    timeout_ms: Option<u64>,
    fallback: Option<String>,
    fallback_seconds: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawClaims {
    log_keys: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConsole {
    bodies: Option<String>,
}

impl RawConsole {
    fn bodies(self) -> Result<Bodies, Failure> {
        match text("ICHIDO_CONSOLE_BODIES")?.or(self.bodies).as_deref() {
            None | Some("masked") => Ok(Bodies::Masked),
            Some("shown") => Ok(Bodies::Shown),
            Some(_) => Err(Failure::usage("console.bodies must be \"masked\" or \"shown\"")),
        }
    }
}

impl Settings {
    pub(crate) fn load(common: &Common) -> Result<Self, Failure> {
        let file = settings_file(common.config.as_deref())?;
        let RawFile { ledger: raw, claims, console, gateway, delivery, meter, export } = match &file {
            Some(path) => read(path)?,
            None => RawFile::default(),
        };
        let url = common.ledger.clone().or(raw.url).unwrap_or_else(|| "file:data/ledger".to_owned());
        let timeout_ms = number("ICHIDO_LEDGER_TIMEOUT_MS")?.or(raw.timeout_ms).unwrap_or(5_000);
        let seconds = number("ICHIDO_LEDGER_FALLBACK_SECONDS")?.or(raw.fallback_seconds).unwrap_or(60);
        let fallback =
            text("ICHIDO_LEDGER_FALLBACK")?.or(raw.fallback).unwrap_or_else(|| "memory:".to_owned());
        let ledger = Ledger {
            url,
            timeout: Duration::from_millis(within("ledger.timeout_ms", timeout_ms, 1, 600_000)?),
            fallback,
            fallback_pause: Duration::from_secs(within("ledger.fallback_seconds", seconds, 1, 86_400)?),
        };
        check_fallback(&ledger.fallback)?;
        let log_keys = text("ICHIDO_CLAIMS_LOG_KEYS")?.or(claims.log_keys);
        let claims = Claims { log_keys: log_keys.as_deref().map_or(Ok(LogKeys::Hashed), LogKeys::parse)? };
        let (bodies, dify) = (console.bodies()?, export.dify);
        Ok(Self { file, ledger, claims, bodies, gateway, delivery, meter, dify })
    }

    /// Whether the file has a section for the gateway.
    pub(crate) fn has_gateway(&self) -> bool {
        self.gateway.is_some()
    }

    /// Whether the file has a section for the sender.
    pub(crate) fn has_delivery(&self) -> bool {
        self.delivery.is_some()
    }

    /// What was said of the sender, whether or not the file has a section for it.
    pub(crate) fn delivery(&self, flags: &DeliveryFlags) -> Values {
        Values::new(flags, self.delivery.clone().unwrap_or_default())
    }

    /// Whether the file has a section for the meter.
    pub(crate) fn has_meter(&self) -> bool {
        self.meter.is_some()
    }

    /// The settings of the meter, whether or not the file has a section for it.
    pub(crate) fn meter(&mut self, flags: &meter::Flags) -> Result<meter::Meter, Failure> {
        meter::Meter::check(self.meter.take().unwrap_or_default(), flags)
    }

    /// Whether the file has a section for the export.
    pub(crate) fn has_export(&self) -> bool {
        self.dify.is_some()
    }

    /// The settings of the export, whether or not the file has a section for it.
    pub(crate) fn export(&mut self, flags: &export::Flags) -> Result<export::Dify, Failure> {
        let allow_http_loopback = self.delivery(&DeliveryFlags::default()).allow_http_loopback()?;
        export::Dify::check(self.dify.take().unwrap_or_default(), flags, allow_http_loopback)
    }

    /// The settings of the gateway, whether or not the file has a section for it.
    pub(crate) fn gateway(&mut self, flags: &gateway::Flags) -> Result<gateway::Gateway, Failure> {
        gateway::Gateway::check(self.gateway.take().unwrap_or_default(), flags)
    }
}

fn settings_file(asked: Option<&Path>) -> Result<Option<PathBuf>, Failure> {
    let default = Path::new("ichido.toml");
    match asked {
        Some(path) if path.is_file() => Ok(Some(path.to_owned())),
        Some(path) => {
            let why = if path.exists() { "is not a regular file" } else { "no such file" };
            Err(Failure::usage(format!("settings file {}: {why}", path.display())))
        }
        None => Ok(default.is_file().then(|| default.to_owned())),
    }
}

fn read(path: &Path) -> Result<RawFile, Failure> {
    let fail = |what: String| Failure::usage(format!("settings file {}: {what}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
    toml::from_str(&text).map_err(|error: toml::de::Error| fail(complaint(&text, &error)))
}

/// Where a settings file is wrong and why, without the value that stands there: it may be a secret.
fn complaint(text: &str, error: &toml::de::Error) -> String {
    let start = error.span().map_or(0, |span| span.start.min(text.len()));
    let number = text[..start].matches('\n').count() + 1;
    let setting =
        text.lines().nth(number - 1).and_then(|line| line.split_once('=')).map(|(name, _)| name.trim());
    let message = error.message().replace('\n', " ");
    // serde quotes what it found before it says what it expected. The parser quotes only what it expected.
    let message = match message.split_once(['"', '`']) {
        Some((own, _)) if own.contains("expected ") => message,
        Some((found, rest)) if found.starts_with("invalid ") => {
            let expected = rest.rfind(", expected ").map_or("", |at| &rest[at..]);
            format!("{}{expected}", found.trim_end())
        }
        Some((_, rest)) if !rest.split('`').next().is_some_and(is_name) => {
            "what stands here is not known".to_owned()
        }
        _ => message,
    };
    match setting {
        Some(name) if is_name(name) && !message.contains(name) => format!("line {number}: {name}: {message}"),
        _ => format!("line {number}: {message}"),
    }
}

/// Whether this is how a setting could be called.
fn is_name(word: &str) -> bool {
    (1..=64).contains(&word.len())
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

/// A fallback must be local: one that can be out itself is no fallback.
fn check_fallback(url: &str) -> Result<(), Failure> {
    if url.starts_with("memory:") || url.starts_with("file:") {
        Ok(())
    } else {
        Err(Failure::usage("ledger.fallback must be memory: or file:DIR: a fallback is local"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn load(text: &str) -> Result<Settings, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ichido.toml");
        std::fs::write(&path, text).unwrap();
        Settings::load(&Common { config: Some(path), ledger: None, json: false })
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn defaults_are_those_of_the_documentation() {
        let settings = load("").unwrap().ledger;
        assert_eq!(settings.url, "file:data/ledger");
        assert_eq!(settings.timeout, Duration::from_secs(5));
        assert_eq!(
            (settings.fallback.as_str(), settings.fallback_pause),
            ("memory:", Duration::from_secs(60))
        );
        assert_eq!(settings.directory(), Some(Path::new("data/ledger")));
        assert_eq!(load("").unwrap().claims.log_keys, LogKeys::Hashed);
        assert_eq!(load("[claims]\nlog_keys = \"verbatim\"").unwrap().claims.log_keys, LogKeys::Verbatim);
    }

    #[test]
    fn the_examples_of_the_documentation_are_settings() {
        let page = include_str!("../../../docs/events.md");
        let examples: Vec<_> =
            page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        assert_eq!(examples.len(), 3);
        for example in examples {
            let upstream = Some("http://127.0.0.1:3000".to_owned());
            let flags = gateway::Flags { upstream, ..gateway::Flags::default() };
            let checked = load(example).unwrap().gateway(&flags);
            assert!(checked.is_ok(), "{example}: {}", checked.unwrap_err());
        }
    }

    #[test]
    fn a_place_has_no_password() {
        let place = |url: &str| {
            let common = Common { config: None, ledger: Some(url.to_owned()), json: false };
            Settings::load(&common)
                .map(|settings| settings.ledger.location())
                .map_err(|failure| failure.to_string())
        };
        assert_eq!(
            place("postgres://user:hunter2@db:5432/app?sslmode=require").unwrap(),
            "postgres db:5432/app"
        );
        assert_eq!(place("redis://:hun?ter@2@db").unwrap(), "redis db");
        assert_eq!(place("dynamodb:").unwrap(), "dynamodb");
        assert_eq!(place("file:data/ledger").unwrap(), "file data/ledger");
        assert_eq!(place("file:/var/lib/ichido").unwrap(), "file /var/lib/ichido");
    }

    #[test]
    fn a_bad_setting_is_named_with_its_line() {
        let unknown = load("[ledger]\n\nurll = \"memory:\"\n").unwrap_err();
        assert!(unknown.contains("line 3") && unknown.contains("urll"), "{unknown}");
        let section = load("[gatway]\n").unwrap_err();
        assert!(section.contains("gatway"), "{section}");
        let kind = load("[ledger]\ntimeout_ms = \"redis://:hunter2@h\"\n").unwrap_err();
        assert!(kind.ends_with("line 2: timeout_ms: invalid type: string, expected u64"), "{kind}");
        let digits = load("[gateway]\nadmin_token = 73313\n").unwrap_err();
        assert!(digits.contains("line 2") && !digits.contains("73313"), "{digits}");
        let open = load("[ledger]\nurl = \"hunter2\n").unwrap_err();
        assert!(open.ends_with("line 2: url: invalid basic string, expected `\"`"), "{open}");
        let table = load("[ledger\n").unwrap_err();
        assert!(table.contains("line 1: ") && table.contains("expected `]`"), "{table}");
        let key = load("[ledger]\n\"redis://:hunter2@h\" = 1\n").unwrap_err();
        assert!(key.contains("line 2") && !key.contains("hunter2"), "{key}");
        let range = load("[ledger]\ntimeout_ms = 0\n").unwrap_err();
        assert_eq!(range, "ledger.timeout_ms is 0; it must be between 1 and 600000");
        let keys = load("[claims]\nlog_keys = \"all\"\n").unwrap_err();
        assert_eq!(keys, "claims.log_keys must be \"hashed\" or \"verbatim\"");
        let bodies = load("[console]\nbodies = \"some\"\n").unwrap_err();
        assert_eq!(bodies, "console.bodies must be \"masked\" or \"shown\"");
        let fallback = load("[ledger]\nfallback = \"redis://:secret@h\"\n").unwrap_err();
        assert!(fallback.contains("ledger.fallback") && !fallback.contains("secret"), "{fallback}");
    }

    /// Words of a settings file, right and wrong, in any order.
    const WORDS: [&str; 30] = [
        "[ledger]\n",
        "[delivery]\n",
        "endpoint = ",
        "max_retries = ",
        "token_file = ",
        "[gateway]\n",
        "[[gateway.routes]]\n",
        "url = ",
        "timeout_ms = ",
        "upstream = ",
        "tenant = ",
        "key = ",
        "preset = ",
        "slack_signing_secret = ",
        "match = ",
        "retention_seconds = ",
        "\"file:x\"\n",
        "\"POST /**\"\n",
        "[\"body\"]\n",
        "-1\n",
        "99999999999999999999\n",
        "1\n",
        "true\n",
        "\"http://u:hunter2@h\"\n",
        "\"\u{0}\"\n",
        "\n",
        "=",
        "{",
        "\"\"\"",
        "キー",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn no_settings_file_makes_it_panic_or_tells_a_secret(words in prop::collection::vec(0..WORDS.len(), 0..14), noise: String) {
            let text: String = words.into_iter().map(|word| WORDS[word]).collect();
            for text in [text.clone(), format!("{text}{noise}")] {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("ichido.toml");
                std::fs::write(&path, text).unwrap();
                let loaded = Settings::load(&Common { config: Some(path), ledger: None, json: false });
                let checked = loaded.map(|mut settings| {
                    let gateway = settings.gateway(&gateway::Flags::default()).err();
                    [gateway, settings.delivery(&DeliveryFlags::default()).settings().err()]
                });
                for failure in checked.unwrap_or_else(|failure| [Some(failure), None]).into_iter().flatten() {
                    prop_assert!(!failure.to_string().contains("hunter2"), "{}", failure);
                }
            }
        }
    }
}
