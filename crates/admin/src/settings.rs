//! `[admin]`, `[claims]` and `[console]`: where the admin port listens, who may use it and what it shows.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ichido_serve::{Failure, RawSimilar, tls};
use ichido_settings::{Invalid, Secret};
use rustls::ServerConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::audit_log::{AuditLog, Rotation};
use crate::auth::{Access, TOKEN_VARIABLE, Tokens, TrustedUser};
use crate::operator::ClientSettings;
use crate::{Bodies, ClaimSettings, LogKeys};

/// The admin port speaks HTTP/1.1 only.
const PROTOCOL: &[u8] = b"http/1.1";

/// `[admin]` as it was written.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawAdmin {
    /// Where the admin port of `ichido gateway`, `run` and `meter` listens, or `off`. Default: `127.0.0.1:9090`.
    #[schemars(extend("x-env" = "ICHIDO_ADMIN_LISTEN"))]
    pub listen: Option<String>,
    /// The token that operators and callers of the claim API present; its name is `admin`. A port outside loopback requires a token. Commands send it to the admin port of another process.
    #[schemars(extend("x-env" = "ICHIDO_ADMIN_TOKEN", "x-env-only" = true, "x-never-empty" = true))]
    token: Option<Secret>,
    /// A second token, which opens the console and the metrics for reading; its name is `reader`.
    #[schemars(extend("x-env" = "ICHIDO_ADMIN_READ_TOKEN", "x-env-only" = true, "x-never-empty" = true))]
    read_token: Option<Secret>,
    /// A token for each person: `alice=TOKEN,bob:read=TOKEN`. With `:read`, it is a read-only one.
    #[schemars(extend("x-env" = "ICHIDO_ADMIN_TOKENS", "x-env-only" = true, "x-never-empty" = true))]
    tokens: Option<Secret>,
    /// With `tls_key_file`: the certificate chain of the admin port, as PEM.
    #[schemars(extend("x-env" = "ICHIDO_ADMIN_TLS_CERT_FILE"))]
    tls_cert_file: Option<PathBuf>,
    /// With `tls_cert_file`: its private key, as PEM.
    #[schemars(extend("x-env" = "ICHIDO_ADMIN_TLS_KEY_FILE"))]
    tls_key_file: Option<PathBuf>,
    /// For commands: authorities that may sign the certificate of an admin port, in addition to the system's, as PEM.
    #[schemars(extend("x-env" = "ICHIDO_ADMIN_CA_FILE"))]
    ca_file: Option<PathBuf>,
    /// For commands: the name in the certificate of the admin port. Not set: the host or address that the command connects to.
    #[schemars(extend("x-env" = "ICHIDO_ADMIN_SERVER_NAME"))]
    server_name: Option<String>,
    /// The header in which an authenticating proxy names the user, such as `X-Forwarded-User`. Requires `trusted_proxies`.
    #[schemars(extend("x-env" = "ICHIDO_ADMIN_TRUSTED_USER_HEADER"))]
    trusted_user_header: Option<String>,
    /// What users of the proxy may do.
    #[schemars(extend("x-env" = "ICHIDO_ADMIN_TRUSTED_USER_ACCESS"))]
    trusted_user_access: Access,
    /// Where the proxy sends from: networks or addresses. The header is ignored and removed in requests from elsewhere.
    #[schemars(extend("x-env" = "ICHIDO_ADMIN_TRUSTED_PROXIES"))]
    trusted_proxies: Vec<String>,
    /// The directory of the audit log, or `off`.
    #[schemars(extend("x-env" = "ICHIDO_ADMIN_AUDIT_DIR"))]
    audit_dir: String,
    /// The audit log starts a new file at this size.
    #[schemars(range(min = 4_096, max = 1_073_741_824), extend("x-env" = "ICHIDO_ADMIN_AUDIT_FILE_MAX_BYTES"))]
    audit_file_max_bytes: u64,
    /// The audit log starts a new file after this many days. Not set: by size only.
    #[schemars(range(min = 1, max = 3_660), extend("x-env" = "ICHIDO_ADMIN_AUDIT_FILE_MAX_DAYS"))]
    audit_file_max_days: Option<u64>,
}

impl Default for RawAdmin {
    fn default() -> Self {
        Self {
            listen: None,
            token: None,
            read_token: None,
            tokens: None,
            tls_cert_file: None,
            tls_key_file: None,
            ca_file: None,
            server_name: None,
            trusted_user_header: None,
            trusted_user_access: Access::default(),
            trusted_proxies: Vec::new(),
            audit_dir: "data/audit".to_owned(),
            audit_file_max_bytes: 64 << 20,
            audit_file_max_days: None,
        }
    }
}

/// Checked settings of an admin port.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(crate) tokens: Option<Tokens>,
    pub(crate) trusted_user: Option<TrustedUser>,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) audit: AuditLog,
}

impl Settings {
    /// Who may use the port, and how, in one line.
    pub fn describe(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let access = match (&self.tokens, &self.trusted_user) {
            (None, None) => "everyone on this machine".to_owned(),
            (tokens, user) => {
                let tokens = tokens.as_ref().map(|tokens| format!("tokens of {}", tokens.names().join(", ")));
                let user = user.as_ref().map(|user| format!("users named by {}", user.header()));
                tokens.into_iter().chain(user).collect::<Vec<_>>().join("; ")
            }
        };
        let audit = self
            .audit
            .dir()
            .map_or_else(|| "no audit log".to_owned(), |dir| format!("audit log in {}", dir.display()));
        format!("{scheme}, {access}; {audit}")
    }

    /// Whether the port may listen on this address. Outside loopback it requires a token, or a proxy that names its users.
    pub fn check_address(&self, address: SocketAddr) -> Result<(), Failure> {
        match &self.tokens {
            _ if address.ip().is_loopback() => Ok(()),
            Some(tokens) => Ok(tokens.check_length(address)?),
            None if self.trusted_user.is_some() => Ok(()),
            None => Err(Failure::usage(format!(
                "admin listener {address} is not on loopback and requires a token: set {TOKEN_VARIABLE}"
            ))),
        }
    }

    /// Where actions are recorded.
    pub fn audit(&self) -> &AuditLog {
        &self.audit
    }
}

impl RawAdmin {
    /// The settings of a process that serves an admin port.
    pub fn check(self) -> Result<Settings, Invalid> {
        let trusted_user = TrustedUser::check(
            self.trusted_user_header.as_deref(),
            &self.trusted_proxies,
            self.trusted_user_access,
        )?;
        let tls =
            tls::server_config("admin", self.tls_cert_file.clone(), self.tls_key_file.clone())?.map(|tls| {
                let mut tls = Arc::unwrap_or_clone(tls);
                tls.alpn_protocols = vec![PROTOCOL.to_vec()];
                Arc::new(tls)
            });
        Ok(Settings {
            tokens: Tokens::check(self.token.as_ref(), self.read_token.as_ref(), self.tokens.as_ref())?,
            trusted_user,
            tls,
            audit: self.audit(),
        })
    }

    /// The audit log.
    pub fn audit(&self) -> AuditLog {
        if self.audit_dir == "off" {
            return AuditLog::off();
        }
        let day = Duration::from_secs(24 * 3600);
        let max_age = self.audit_file_max_days.map(|days| day * u32::try_from(days).unwrap_or(u32::MAX));
        AuditLog::new(
            PathBuf::from(&self.audit_dir),
            Rotation { max_bytes: self.audit_file_max_bytes, max_age },
        )
    }

    /// The settings of a command that uses the admin port of another process.
    pub fn client(self) -> ClientSettings {
        ClientSettings {
            token: self.token,
            ca_file: tls::non_empty(self.ca_file),
            server_name: self.server_name.filter(|name| !name.is_empty()),
        }
    }
}

/// `[claims]` as it was written.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawClaims {
    /// How event keys appear in the log.
    #[schemars(extend("x-env" = "ICHIDO_CLAIMS_LOG_KEYS"))]
    log_keys: LogKeys,
    /// How near duplicates of events are found. The pointers refer to the `content` of an event.
    similar: Option<RawSimilar>,
}

impl RawClaims {
    /// Checks the section.
    pub fn check(self) -> Result<ClaimSettings, Invalid> {
        let similar = self.similar.map(|similar| similar.check("claims.similar")).transpose()?;
        Ok(ClaimSettings { log_keys: self.log_keys, similar })
    }
}

/// `[console]` as it was written.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawConsole {
    /// Whether pages show stored responses and records.
    #[schemars(extend("x-env" = "ICHIDO_CONSOLE_BODIES"))]
    bodies: Bodies,
    /// Where operators open the console, such as `https://ichido.example.com`. Notices then contain links to its pages.
    #[schemars(extend("x-env" = "ICHIDO_CONSOLE_URL", "x-url" = true))]
    url: Option<String>,
}

impl RawConsole {
    /// Checks the section.
    pub fn check(self) -> Result<ConsoleSettings, Invalid> {
        let url = self.url.filter(|url| !url.is_empty()).map(ConsoleUrl::check).transpose()?;
        Ok(ConsoleSettings { bodies: self.bodies, url })
    }
}

/// Checked settings of the console.
#[derive(Clone, Debug)]
pub struct ConsoleSettings {
    /// Whether pages show stored responses and records.
    pub bodies: Bodies,
    /// Where operators open the console, if that is known.
    pub url: Option<ConsoleUrl>,
}

/// Where operators open the console.
#[derive(Clone, Debug)]
pub struct ConsoleUrl(String);

impl ConsoleUrl {
    fn check(text: String) -> Result<Self, Invalid> {
        let url = url::Url::parse(&text).ok().filter(|url| {
            ["http", "https"].contains(&url.scheme())
                && url.username().is_empty()
                && url.password().is_none()
                && url.path() == "/"
                && url.query().is_none()
                && url.fragment().is_none()
        });
        match url {
            Some(_) => Ok(Self(text.trim_end_matches('/').to_owned())),
            None => {
                let expected = "must start with http:// or https:// and name only a host, such as https://ichido.example.com";
                Err(Invalid::new("console.url", expected))
            }
        }
    }

    /// The URL of a page.
    pub fn page(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn console(url: &str) -> Result<ConsoleSettings, Invalid> {
        RawConsole { url: Some(url.to_owned()), ..RawConsole::default() }.check()
    }

    #[test]
    fn console_url_names_a_host_and_nothing_else() {
        for url in ["https://ichido.example.com", "https://ichido.example.com/"] {
            let page = console(url).unwrap().url.unwrap().page("/history?days=7#hour");
            assert_eq!(page, "https://ichido.example.com/history?days=7#hour");
        }
        assert!(console("").unwrap().url.is_none());
        for url in [
            "ichido.example.com",
            "ftp://h",
            "https://h/console",
            "https://h/?a=b",
            "https://h/#a",
            "https://u:p@h",
        ] {
            let invalid = console(url).unwrap_err().to_string();
            assert!(invalid.contains("console.url"), "{url}: {invalid}");
        }
    }
}
