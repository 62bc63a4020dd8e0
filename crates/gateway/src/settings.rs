//! The settings of the gateway: `[gateway]` and its routes, checked as a whole before anything starts.

mod bounds;
mod origins;
mod proxies;
mod routes;
mod secrets;
mod tenant;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::uri::{Authority, Scheme};
use ichido_http::{Outage, Rules};
use serde::Deserialize;

use self::bounds::bounds;
pub use self::origins::Origins;
pub use self::proxies::TrustedProxies;
use self::routes::{OneOrMany, RawRoute, origins, routes};
pub use self::secrets::unchecked;
use self::tenant::RawTenant;
use ichido_serve::Failure;
use ichido_serve::tls;
use ichido_settings::{address, text, within};

/// gunicorn closes idle connections after 2 s, Node and Apache after 5 s, and a request must not meet the closing.
const UPSTREAM_IDLE: Duration = Duration::from_millis(1500);

/// Checked settings of the gateway.
#[derive(Debug)]
pub struct Gateway {
    pub listen: SocketAddr,
    pub upstream: Upstream,
    pub rules: Rules,
    /// Who may read the answers of each route, in the order of the routes.
    pub origins: Vec<Option<Origins>>,
    pub tls: Option<Arc<rustls::ServerConfig>>,
    pub journal_dir: PathBuf,
    /// `None`: by the limit of open files.
    pub connections_max: Option<u64>,
    pub shutdown: Duration,
    pub trusted_proxies: TrustedProxies,
    /// Not ready while nobody listens at the upstream.
    pub ready_needs_upstream: bool,
}

/// Where requests go.
#[derive(Clone, Debug)]
pub struct Upstream {
    pub scheme: Scheme,
    pub authority: Authority,
    /// What is put before each path; empty or beginning with `/`.
    pub prefix: String,
    pub tls: Arc<rustls::ClientConfig>,
    /// How long an idle connection is kept for the next request.
    pub idle_time: Duration,
}

/// What the command line says about the gateway.
#[derive(Debug, Default)]
pub struct Flags {
    pub upstream: Option<String>,
    pub listen: Option<String>,
    pub optional_key: bool,
}

impl Flags {
    /// What the environment says, for a process whose flags are about more than the gateway.
    pub fn from_env() -> Result<Self, Failure> {
        let (upstream, listen) = (text("ICHIDO_GATEWAY_UPSTREAM")?, text("ICHIDO_GATEWAY_LISTEN")?);
        Ok(Self { upstream, listen, optional_key: false })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawGateway {
    listen: Option<String>,
    upstream: Option<String>,
    upstream_ca_file: Option<PathBuf>,
    upstream_idle_ms: Option<u64>,
    tenant: Option<String>,
    jwt_key_file: Option<PathBuf>,
    jwt_issuer: Option<OneOrMany>,
    jwt_audience: Option<OneOrMany>,
    policy_path: Option<String>,
    strict_keys: bool,
    body_memory_bytes: Option<u64>,
    body_max_bytes: Option<u64>,
    body_parse_max_bytes: Option<u64>,
    body_min_rate_bytes: Option<u64>,
    body_memory_total_bytes: Option<u64>,
    body_disk_total_bytes: Option<u64>,
    answer_max_bytes: Option<u64>,
    inflight_max: Option<u64>,
    inflight_max_per_tenant: Option<u64>,
    inflight_max_per_connection: Option<u64>,
    connections_max: Option<u64>,
    tls_cert_file: Option<PathBuf>,
    tls_key_file: Option<PathBuf>,
    journal_dir: Option<PathBuf>,
    shutdown_seconds: Option<u64>,
    ready_needs_upstream: bool,
    trusted_proxies: Option<Vec<String>>,
    routes: Option<Vec<RawRoute>>,
}

impl Gateway {
    pub fn check(raw: RawGateway, flags: &Flags) -> Result<Self, Failure> {
        let (defaults, bounds) = (Rules::default(), bounds(&raw)?);
        let listen = flags.listen.clone().or(raw.listen).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
        let upstream = flags.upstream.clone().or(raw.upstream).ok_or_else(|| {
            Failure::usage("gateway.upstream is not set: say where the service is, e.g. --upstream http://127.0.0.1:5000")
        })?;
        let origins = origins(raw.routes.as_deref())?;
        let rules = Rules {
            routes: routes(raw.routes, flags.optional_key)?,
            tenant: RawTenant {
                rule: raw.tenant,
                jwt_key_file: raw.jwt_key_file,
                jwt_issuer: raw.jwt_issuer,
                jwt_audience: raw.jwt_audience,
            }
            .check()?,
            policy_path: policy_path(raw.policy_path, defaults.policy_path)?,
            strict_keys: raw.strict_keys,
            ..bounds
        };
        let idle_ms = raw.upstream_idle_ms.map(|ms| within("gateway.upstream_idle_ms", ms, 0, 3_600_000));
        let idle_time = idle_ms.transpose()?.map_or(UPSTREAM_IDLE, Duration::from_millis);
        let connections_max = raw.connections_max;
        Ok(Self {
            listen: address("gateway.listen", &listen)?,
            upstream: Upstream {
                idle_time,
                ..Upstream::check(&upstream, tls::non_empty(raw.upstream_ca_file).as_deref())?
            },
            rules,
            origins,
            tls: tls::server_config("gateway", raw.tls_cert_file, raw.tls_key_file)?,
            journal_dir: raw.journal_dir.unwrap_or_else(|| PathBuf::from("data/journal")),
            ready_needs_upstream: raw.ready_needs_upstream,
            trusted_proxies: TrustedProxies::check(raw.trusted_proxies)?,
            connections_max: connections_max
                .map(|most| within("gateway.connections_max", most, 1, 1_000_000))
                .transpose()?,
            shutdown: Duration::from_secs(within(
                "gateway.shutdown_seconds",
                raw.shutdown_seconds.unwrap_or(30),
                0,
                3600,
            )?),
        })
    }

    /// Whether a route goes on with a local ledger during an outage.
    pub fn wants_fallback(&self) -> bool {
        self.rules.routes.iter().any(|route| route.outage == Outage::Fallback)
    }
}

impl Upstream {
    pub fn check(text: &str, ca_file: Option<&Path>) -> Result<Self, Failure> {
        let bad = |why: &str| {
            Failure::usage(format!("gateway.upstream {why}; expected something like http://127.0.0.1:5000"))
        };
        let parts = text.parse::<Uri>().map_err(|_| bad("is not a URL"))?.into_parts();
        let scheme = parts.scheme.ok_or_else(|| bad("has no scheme"))?;
        if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
            return Err(bad("is neither http nor https"));
        }
        let authority = parts.authority.ok_or_else(|| bad("has no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("holds a user name or password, which would not be sent"));
        }
        if authority.as_str() != authority.host() && authority.port_u16().is_none_or(|port| port == 0) {
            return Err(bad("has no port between 1 and 65535"));
        }
        let place = parts.path_and_query;
        if place.as_ref().is_some_and(|place| place.query().is_some()) {
            return Err(bad("has a query"));
        }
        let prefix = place.map_or_else(String::new, |place| place.path().trim_end_matches('/').to_owned());
        Ok(Self { tls: client_tls(&scheme, ca_file)?, scheme, authority, prefix, idle_time: UPSTREAM_IDLE })
    }
}

impl Upstream {
    /// Its name for requests that name none: without the port that goes without saying.
    pub fn host(&self) -> String {
        let default = default_port(&self.scheme);
        match self.authority.port_u16().filter(|port| *port != default) {
            Some(port) => format!("{}:{port}", self.authority.host()),
            None => self.authority.host().to_owned(),
        }
    }

    /// The port, given or implied by the scheme.
    pub fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(default_port(&self.scheme))
    }
}

fn default_port(scheme: &Scheme) -> u16 {
    if *scheme == Scheme::HTTPS { 443 } else { 80 }
}

fn client_tls(scheme: &Scheme, ca_file: Option<&Path>) -> Result<Arc<rustls::ClientConfig>, Failure> {
    let mut roots = rustls::RootCertStore::empty();
    if let Some(file) = ca_file {
        let name = "gateway.upstream_ca_file";
        for certificate in tls::read_certificates(name, file)? {
            roots
                .add(certificate)
                .map_err(|error| Failure::usage(format!("{name} {}: {error}", file.display())))?;
        }
    }
    // Like every other file of authorities, it adds to those that the system trusts.
    if *scheme == Scheme::HTTPS {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let config =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Failure::internal(format!("preparing TLS: {error}")))?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

fn policy_path(path: Option<String>, default: String) -> Result<String, Failure> {
    let path = path.unwrap_or(default);
    let fits = path.starts_with('/')
        && path.len() > 1
        && !path.ends_with('/')
        && path.parse::<http::uri::PathAndQuery>().is_ok();
    if !fits || path.contains(['?', '"', '<', '>']) {
        return Err(Failure::usage("gateway.policy_path must be a path such as /.well-known/idempotency"));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use ichido_http::KeySource;

    use super::*;

    fn check(text: &str) -> Result<Gateway, String> {
        let raw: RawGateway = toml::from_str(text).map_err(|error| error.to_string())?;
        let flags = Flags { upstream: Some("http://127.0.0.1:5000/api/".to_owned()), ..Flags::default() };
        Gateway::check(raw, &flags).map_err(|failure| failure.to_string())
    }

    #[test]
    fn the_defaults_are_those_of_the_documentation() {
        let gateway = check("").unwrap();
        assert_eq!(gateway.listen.to_string(), "127.0.0.1:8080");
        assert_eq!(
            (gateway.upstream.authority.as_str(), gateway.upstream.prefix.as_str()),
            ("127.0.0.1:5000", "/api")
        );
        let route = &gateway.rules.routes[0];
        assert_eq!(route.matches.to_string(), "POST,PATCH /**");
        assert_eq!(route.keys, ["header:Idempotency-Key".parse::<KeySource>().unwrap()]);
        assert_eq!((route.retention, route.lease), (Duration::from_secs(86_400), Duration::from_secs(30)));
        assert_eq!(route.timeout, Some(Duration::from_secs(30)));
        assert!(matches!(gateway.rules.tenant, ichido_http::Tenant::Auto));
        assert!(route.required && gateway.tls.is_none() && !gateway.wants_fallback());
    }

    #[test]
    fn a_bad_setting_is_named() {
        for (text, word) in [
            ("listen = \"8080\"", "gateway.listen"),
            ("listen = \"http://u:hunter2@h\"", "gateway.listen"),
            ("upstrem = \"x\"", "upstrem"),
            ("tenant = \"jwt:sub\"", "gateway.jwt_key_file"),
            ("tenant = \"jwt:sub\"\njwt_key_file = \"/nonexistent\"", "/nonexistent"),
            ("tenant = \"ip\"", "gateway.tenant"),
            ("upstream_idle_ms = 99999999", "gateway.upstream_idle_ms"),
            ("tenant = \"auto:x\"", "gateway.tenant"),
            ("jwt_issuer = \"https://issuer\"", "gateway.jwt_issuer is set"),
            ("tenant = \"auto\"\njwt_audience = [\"orders\"]", "gateway.jwt_audience is set"),
            (
                "tenant = \"jwt:sub\"\njwt_key_file = \"/nonexistent\"\njwt_issuer = []",
                "gateway.jwt_issuer is empty",
            ),
            ("policy_path = \"x\"", "gateway.policy_path"),
            ("answer_max_bytes = 99999999999", "gateway.answer_max_bytes"),
            ("tls_cert_file = \"a.pem\"", "gateway.tls_key_file"),
            ("tls_cert_file = \"/nonexistent\"\ntls_key_file = \"/nonexistent\"", "gateway.tls_cert_file"),
            ("trusted_proxies = [\"proxy\"]", "gateway.trusted_proxies"),
            ("routes = []", "gateway.routes"),
            ("[[routes]]\nmatch = \"GET /x\"", "gateway.routes[0].match"),
            ("[[routes]]\n[[routes]]\nkey = [\"cookie:x\"]", "gateway.routes[1].key"),
            ("[[routes]]\nmode = \"watch\"", "gateway.routes[0].mode"),
            ("[[routes]]\nin_flight = \"queue\"", "gateway.routes[0].in_flight"),
            ("[[routes]]\nlease_ms = 0", "gateway.routes[0].lease_ms"),
            ("[[routes]]\npreset = \"slack\"", "slack-events, github, stripe-events, cloudevents"),
            (
                "[[routes]]\npreset = \"github\"\nslack_signing_secret = \"hunter2\"",
                "routes[0].slack_signing_secret",
            ),
            ("[[routes]]\ngithub_webhook_secret = \"hunter2\"", "gateway.routes[0].github_webhook_secret"),
            (
                "[[routes]]\npreset = \"slack-events\"\nslack_signing_secret = \"\"",
                "slack_signing_secret is empty",
            ),
            ("[[routes]]\ntenant = \"ip\"", "gateway.routes[0].tenant"),
            ("[[routes]]\nkey = 5", "a text or a list of texts"),
            ("[[routes]]\nkey = []", "gateway.routes[0].key"),
            ("[[routes]]\n[[routes]]\ncors = \"app.example\"", "gateway.routes[1].cors"),
            ("[[routes]]\nclient_errors = \"no\"", "gateway.routes[0].client_errors"),
            ("[[routes]]\nfingerprint = \"raw\"\nfingerprint_ignore = [\"/a\"]", "fingerprint_ignore"),
        ] {
            let message = check(text).unwrap_err();
            assert!(message.contains(word) && !message.contains("hunter2"), "{text}: {message}");
        }
    }

    #[test]
    fn an_upstream_is_a_plain_url() {
        for url in [
            "127.0.0.1:5000",
            "ftp://h",
            "http://",
            "http://u:hunter2@h",
            "http://h/?q=1",
            "unix:/x",
            "http://h:99999",
            "http://h:0",
            "http://[::1]:99999/api",
        ] {
            let flags = Flags { upstream: Some(url.to_owned()), ..Flags::default() };
            let message = Gateway::check(RawGateway::default(), &flags).unwrap_err().to_string();
            assert!(message.contains("gateway.upstream") && !message.contains("hunter2"), "{url}: {message}");
        }
        let message = Gateway::check(RawGateway::default(), &Flags::default()).unwrap_err().to_string();
        assert!(message.contains("--upstream"), "{message}");
        for url in ["http://h", "https://h:443", "http://[::1]", "http://[::1]:5000/api"] {
            Upstream::check(url, None).unwrap();
        }
    }
}
