//! The settings of the meter: `[meter]`, the environment, and the tenants' tokens, which are never in the file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ichido_meter::Access;
use ichido_meter::access::Tokens;
use ichido_usage::Profile;
use serde::Deserialize;

use ichido_serve::Failure;
use ichido_serve::tls;
use ichido_settings::{address, location, number, text, within};

/// The variables that hold the tokens, or the name of the file that does.
const TOKENS: &str = "METER_TOKENS";
const TOKENS_FILE: &str = "METER_TOKENS_FILE";
const LISTEN: &str = "127.0.0.1:8090";
const DATABASE: &str = "sqlite:data/meter.db";
const BODY_MAX_BYTES: u64 = 16 << 20;

/// Checked settings of the meter.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) listen: SocketAddr,
    pub(crate) database: Database,
    pub(crate) profile: Profile,
    pub(crate) access: Access,
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
    pub(crate) body_max_bytes: usize,
    pub(crate) shutdown: Duration,
}

/// Where records are counted. The URL may hold a password.
pub(crate) struct Database(String);

/// What the command line says about the meter.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    pub(crate) listen: Option<String>,
    pub(crate) db: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawMeter {
    listen: Option<String>,
    db: Option<String>,
    profile: Option<String>,
    tokens_file: Option<PathBuf>,
    tls_cert_file: Option<PathBuf>,
    tls_key_file: Option<PathBuf>,
    body_max_bytes: Option<u64>,
    shutdown_seconds: Option<u64>,
}

impl Meter {
    pub(super) fn check(raw: RawMeter, flags: &Flags) -> Result<Self, Failure> {
        let listen = flags.listen.clone().or(text("METER_LISTEN")?).or(raw.listen);
        let listen = address("meter.listen", listen.as_deref().unwrap_or(LISTEN))?;
        let db = flags.db.clone().or(text("METER_DB")?).or(raw.db);
        let profile = match text("METER_PROFILE")?.or(raw.profile) {
            Some(word) => word.parse().map_err(|_| {
                Failure::usage(format!("meter.profile must be one of {}", Profile::NAMES.join(", ")))
            })?,
            None => Profile::default(),
        };
        let body = number("METER_BODY_MAX_BYTES")?.or(raw.body_max_bytes).unwrap_or(BODY_MAX_BYTES);
        let body = within("meter.body_max_bytes", body, 1024, 1 << 30)?;
        Ok(Self {
            listen,
            database: Database::check(db.unwrap_or_else(|| DATABASE.to_owned()))?,
            profile,
            access: access(listen, raw.tokens_file)?,
            tls: tls::server_config("meter", raw.tls_cert_file, raw.tls_key_file)?,
            body_max_bytes: usize::try_from(body).unwrap_or(usize::MAX),
            shutdown: Duration::from_secs(within(
                "meter.shutdown_seconds",
                raw.shutdown_seconds.unwrap_or(30),
                0,
                3600,
            )?),
        })
    }
}

impl Database {
    fn check(url: String) -> Result<Self, Failure> {
        let known = ["sqlite:", "postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme));
        if known {
            Ok(Self(url))
        } else {
            Err(Failure::usage("meter.db must be sqlite:FILE or postgres://…"))
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.0
    }

    /// Where it is, for people.
    pub(crate) fn place(&self) -> String {
        location(&self.0)
    }

    /// The file, if it is one.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.0.strip_prefix("sqlite:").map(PathBuf::from)
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Database({})", self.place())
    }
}

/// Paths and names; the database's URL may hold a password.
impl std::fmt::Debug for RawMeter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawMeter").field("listen", &self.listen).finish_non_exhaustive()
    }
}

/// Without tokens everyone on this machine is the one tenant. Off loopback there must be some.
fn access(listen: SocketAddr, file: Option<PathBuf>) -> Result<Access, Failure> {
    let variable = text(TOKENS)?;
    let file = text(TOKENS_FILE)?.map(PathBuf::from).or(file).filter(|file| !file.as_os_str().is_empty());
    let (name, tokens) = match (variable, file) {
        (Some(_), Some(_)) => {
            return Err(Failure::usage(format!(
                "{TOKENS} and meter.tokens_file ({TOKENS_FILE}) are both set; one is enough"
            )));
        }
        (Some(tokens), None) => (TOKENS.to_owned(), tokens),
        (None, Some(file)) => {
            let name = format!("meter.tokens_file {}", file.display());
            let tokens = std::fs::read_to_string(&file);
            (name.clone(), tokens.map_err(|error| Failure::usage(format!("{name}: {error}")))?)
        }
        (None, None) if listen.ip().is_loopback() => return Ok(Access::Open),
        (None, None) => {
            return Err(Failure::usage(format!(
                "the meter's listener {listen} is not on loopback and needs tokens: set {TOKENS} to tenant=token,…"
            )));
        }
    };
    Tokens::parse(&tokens).map(Access::Tokens).map_err(|error| Failure::usage(format!("{name}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, listen: Option<&str>) -> Result<Meter, String> {
        let raw: RawMeter = toml::from_str(text).map_err(|error| error.to_string())?;
        let flags = Flags { listen: listen.map(str::to_owned), db: None };
        Meter::check(raw, &flags).map_err(|failure| failure.to_string())
    }

    #[test]
    fn the_defaults_are_those_of_the_documentation() {
        let meter = check("", None).unwrap();
        assert_eq!(meter.listen.to_string(), "127.0.0.1:8090");
        assert_eq!(meter.database.url(), "sqlite:data/meter.db");
        assert_eq!(meter.profile, Profile::FirstWins);
        assert_eq!(meter.body_max_bytes, 16 << 20);
        assert!(matches!(meter.access, Access::Open) && meter.tls.is_none());
    }

    #[test]
    fn the_example_of_the_documentation_is_settings() {
        let page = include_str!("../../../../docs/configuration.md");
        let example =
            page.split("```toml\n[meter]").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        check(example, None).unwrap();
    }

    #[test]
    fn a_bad_setting_is_named_and_no_secret_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = dir.path().join("tokens");
        std::fs::write(&tokens, "a=hunter2\nb=hunter2\n").unwrap();
        let tokens = format!("tokens_file = {:?}", tokens.display().to_string());
        for (text, word) in [
            ("listen = \"8090\"", "meter.listen"),
            ("db = \"mysql://u:hunter2@h/d\"", "meter.db"),
            ("profile = \"hunter2\"", "first_wins, upsert_by_event_id, upsert_by_model_day"),
            ("body_max_bytes = 1", "meter.body_max_bytes"),
            ("tls_cert_file = \"a.pem\"", "meter.tls_key_file"),
            ("tokens_file = \"/nonexistent\"", "meter.tokens_file /nonexistent"),
            (tokens.as_str(), "entry 2"),
            ("tokens = \"a=hunter2\"", "tokens"),
        ] {
            let message = check(text, None).unwrap_err();
            assert!(message.contains(word), "{text}: {message}");
            assert!(!message.contains("hunter2") || text.starts_with("tokens ="), "{message}");
        }
        let message = check("", Some("0.0.0.0:8090")).unwrap_err();
        assert!(message.contains("not on loopback") && message.contains("METER_TOKENS"), "{message}");
        let meter = check("db = \"postgres://u:hunter2@h/d\"", None).unwrap();
        assert!(!format!("{meter:?}").contains("hunter2"));
    }
}
