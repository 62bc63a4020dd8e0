//! The settings of the meter: `[meter]`, the environment, and the tenants' tokens, which are never in the file.

mod budgets;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ichido_serve::tls;
use ichido_settings::{Invalid, Secret, address, location};
use ichido_usage::Profile;
use ichido_usage::named_enum::UnknownName;
use schemars::JsonSchema;
use serde::Deserialize;

use self::budgets::{RawBudget, check_budgets};
use crate::access::{Access, Tokens};
use crate::budget::Budget;

/// Checked settings of the meter.
#[derive(Debug)]
pub struct Settings {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Where records are counted.
    pub database: Database,
    /// What happens to a record that the meter already has.
    pub profile: Profile,
    /// Who may send.
    pub access: Access,
    /// TLS for the listener.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// The largest body.
    pub body_max_bytes: usize,
    /// How long batches may take after SIGTERM.
    pub shutdown: Duration,
    /// What may be used in a month.
    pub budgets: Vec<Budget>,
}

/// What a command needs that reads the meter's database itself.
#[derive(Debug)]
pub struct Reading {
    /// Where records are counted.
    pub database: Database,
    /// The profile that the database was created for.
    pub profile: Profile,
    /// The tenants whose tokens are known here.
    pub tenants: Vec<String>,
    /// What may be used in a month.
    pub budgets: Vec<Budget>,
}

/// Where records are counted. The URL may hold a password.
pub struct Database(String);

/// `[meter]` as it was written.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Raw {
    /// Where the meter listens.
    #[schemars(extend("x-env" = "METER_LISTEN"))]
    listen: String,
    /// The database: `sqlite:FILE` or `postgres://USER@HOST/DATABASE`.
    #[schemars(extend("x-env" = "METER_DB", "x-url" = true))]
    db: String,
    /// What happens to a record that the meter already has.
    #[schemars(extend("x-env" = "METER_PROFILE", "enum" = ["first_wins", "upsert_by_event_id", "upsert_by_model_day"]))]
    profile: String,
    /// Who may send: `tenant=token,tenant=token`. Required if the port is not on loopback.
    #[schemars(extend("x-env" = "METER_TOKENS", "x-env-only" = true, "x-never-empty" = true))]
    tokens: Option<Secret>,
    /// A file with one `tenant=token` per line.
    #[schemars(extend("x-env" = "METER_TOKENS_FILE"))]
    tokens_file: Option<PathBuf>,
    /// With `tls_key_file`: the certificate chain of the listener, as PEM.
    tls_cert_file: Option<PathBuf>,
    /// With `tls_cert_file`: its private key, as PEM.
    tls_key_file: Option<PathBuf>,
    /// Larger bodies are refused, compressed or not.
    #[schemars(range(min = 1_024, max = 1_073_741_824), extend("x-env" = "METER_BODY_MAX_BYTES"))]
    body_max_bytes: usize,
    /// How long connections and batches in progress may take after SIGTERM, in seconds.
    #[schemars(range(min = 0, max = 3_600))]
    shutdown_seconds: u64,
    /// What may be used in a month; notices are sent at 80 % and 100 %.
    budgets: Vec<RawBudget>,
}

impl Default for Raw {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8090".to_owned(),
            db: "sqlite:data/meter.db".to_owned(),
            profile: Profile::default().to_string(),
            tokens: None,
            tokens_file: None,
            tls_cert_file: None,
            tls_key_file: None,
            body_max_bytes: 16 << 20,
            shutdown_seconds: 30,
            budgets: Vec::new(),
        }
    }
}

/// The URL of the database may contain a password.
impl std::fmt::Debug for Raw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Raw").field("listen", &self.listen).finish_non_exhaustive()
    }
}

impl Settings {
    /// Checks the section.
    pub fn check(raw: Raw) -> Result<Self, Invalid> {
        let listen = address("meter.listen", &raw.listen)?;
        let access = access(listen, raw.tokens, raw.tokens_file)?;
        Ok(Self {
            listen,
            database: Database::check(raw.db)?,
            profile: profile(&raw.profile)?,
            budgets: check_budgets(&raw.budgets, &access.tenants())?,
            access,
            tls: tls::server_config("meter", raw.tls_cert_file, raw.tls_key_file)?,
            body_max_bytes: raw.body_max_bytes,
            shutdown: Duration::from_secs(raw.shutdown_seconds),
        })
    }
}

impl Reading {
    /// Checks what reading needs. The tokens of the tenants are secrets of the server, so they may be missing here.
    pub fn check(raw: Raw) -> Result<Self, Invalid> {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let tenants = access(loopback, raw.tokens, raw.tokens_file)?.tenants();
        Ok(Self {
            database: Database::check(raw.db)?,
            profile: profile(&raw.profile)?,
            budgets: check_budgets(&raw.budgets, &tenants)?,
            tenants,
        })
    }
}

fn profile(text: &str) -> Result<Profile, Invalid> {
    text.parse().map_err(|error: UnknownName| {
        Invalid::new("meter.profile", format!("must be one of {}", error.known.join(", ")))
    })
}

impl Database {
    fn check(url: String) -> Result<Self, Invalid> {
        let known = ["sqlite:", "postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme));
        if known {
            Ok(Self(url))
        } else {
            Err(Invalid::new("meter.db", "must be sqlite:FILE or postgres://…"))
        }
    }

    /// The URL, which may contain a password.
    pub fn url(&self) -> &str {
        &self.0
    }

    /// The URL without credentials.
    pub fn location(&self) -> String {
        location(&self.0)
    }

    /// The file, if it is one.
    pub fn file(&self) -> Option<PathBuf> {
        self.0.strip_prefix("sqlite:").map(PathBuf::from)
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Database({})", self.location())
    }
}

/// Without tokens everyone on this machine is the one tenant. Off loopback there must be some.
fn access(listen: SocketAddr, tokens: Option<Secret>, file: Option<PathBuf>) -> Result<Access, Invalid> {
    let file = file.filter(|file| !file.as_os_str().is_empty());
    let (setting, tokens) = match (tokens, file) {
        (Some(_), Some(_)) => {
            let problem = "is set together with METER_TOKENS; one is enough";
            return Err(Invalid::new("meter.tokens_file", problem));
        }
        (Some(tokens), None) => ("meter.tokens", tokens.expose().to_owned()),
        (None, Some(file)) => {
            let unreadable =
                |error| Invalid::new("meter.tokens_file", format!("cannot read {}: {error}", file.display()));
            ("meter.tokens_file", std::fs::read_to_string(&file).map_err(unreadable)?)
        }
        (None, None) if listen.ip().is_loopback() => return Ok(Access::Open),
        (None, None) => {
            let problem = format!(
                "{listen} is not on loopback, so the meter needs tokens: set METER_TOKENS to tenant=token,…"
            );
            return Err(Invalid::new("meter.listen", problem));
        }
    };
    Tokens::parse(&tokens).map(Access::Tokens).map_err(|error| Invalid::new(setting, error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ichido_settings::Sources;

    use super::*;

    #[derive(Default, Deserialize, JsonSchema)]
    #[serde(default)]
    struct File {
        meter: Raw,
    }

    fn check(text: &str, listen: Option<&str>) -> Result<Settings, String> {
        let listen = listen.map_or_else(String::new, |listen| format!("listen = {listen:?}\n"));
        let text = format!("[meter]\n{text}\n{listen}");
        let schema = ichido_settings::schema::<File>();
        let sources = Sources::from_text(&schema, Path::new("ichido.toml"), &text)
            .map_err(|invalid| invalid.to_string())?;
        let raw = sources.section("meter").map_err(|invalid| invalid.to_string())?;
        Settings::check(raw).map_err(|invalid| sources.explain(&invalid).to_string())
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
            ("tokens_file = \"/nonexistent\"", "meter.tokens_file: cannot read /nonexistent"),
            (tokens.as_str(), "entry 2"),
            ("tokens = \"a=hunter2\"", "tokens"),
            ("[[meter.budgets]]\napp = \"a\"", "meter.budgets[0]: sets no limit"),
            ("[[meter.budgets]]\nmonth_cost = \"100\"", "meter.budgets[0].currency: is missing"),
            (
                "[[meter.budgets]]\nmonth_cost = \"x\"\ncurrency = \"USD\"",
                "meter.budgets[0].month_cost: must be a decimal",
            ),
            (
                "[[meter.budgets]]\nmonth_cost = \"1\"\ncurrency = \"usd\"",
                "meter.budgets[0].currency: must be three",
            ),
            ("[[meter.budgets]]\nmonth_tokens = 0", "meter.budgets[0].month_tokens: must be more than 0"),
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
