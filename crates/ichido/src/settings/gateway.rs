//! The settings of the gateway: `[gateway]` and its routes, checked as a whole before anything starts.

mod bounds;
mod routes;
mod secrets;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::uri::{Authority, Scheme};
use ichido_http::{Outage, Rules, Tenant};
use serde::Deserialize;

use self::bounds::bounds;
use self::routes::{RawRoute, routes};
pub(crate) use self::secrets::unchecked;
use super::{text, tls, within};
use crate::exit::Failure;
use crate::gateway::jwt::JwtTenant;

/// How long a look at the service behind may take.
const REACH: Duration = Duration::from_secs(2);

/// gunicorn closes idle connections after 2 s, Node and Apache after 5 s, and a request must not meet the closing.
const UPSTREAM_IDLE: Duration = Duration::from_millis(1500);

/// Checked settings of the gateway.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) listen: SocketAddr,
    pub(crate) upstream: Upstream,
    pub(crate) rules: Rules,
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
    pub(crate) journal_dir: PathBuf,
    /// `None`: by the limit of open files.
    pub(crate) connections_max: Option<u64>,
    pub(crate) shutdown: Duration,
    /// Not ready while nobody listens at the upstream.
    pub(crate) ready_needs_upstream: bool,
}

/// Where requests go.
#[derive(Clone, Debug)]
pub(crate) struct Upstream {
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
    /// What is put before each path; empty or beginning with `/`.
    pub(crate) prefix: String,
    pub(crate) tls: Arc<rustls::ClientConfig>,
    /// How long an idle connection is kept for the next request.
    pub(crate) idle_time: Duration,
}

/// What the command line says about the gateway.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    pub(crate) upstream: Option<String>,
    pub(crate) listen: Option<String>,
    pub(crate) optional_key: bool,
}

impl Flags {
    /// What the environment says, for a process whose flags are about more than the gateway.
    pub(crate) fn from_env() -> Result<Self, Failure> {
        let (upstream, listen) = (text("ICHIDO_GATEWAY_UPSTREAM")?, text("ICHIDO_GATEWAY_LISTEN")?);
        Ok(Self { upstream, listen, optional_key: false })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawGateway {
    listen: Option<String>,
    upstream: Option<String>,
    upstream_ca_file: Option<PathBuf>,
    upstream_idle_ms: Option<u64>,
    tenant: Option<String>,
    jwt_key_file: Option<PathBuf>,
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
    routes: Option<Vec<RawRoute>>,
}

impl Gateway {
    pub(super) fn check(raw: RawGateway, flags: &Flags) -> Result<Self, Failure> {
        let (defaults, bounds) = (Rules::default(), bounds(&raw)?);
        let listen = flags.listen.clone().or(raw.listen).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
        let upstream = flags.upstream.clone().or(raw.upstream).ok_or_else(|| {
            Failure::usage("gateway.upstream is not set: say where the service is, e.g. --upstream http://127.0.0.1:5000")
        })?;
        let rules = Rules {
            routes: routes(raw.routes, flags.optional_key)?,
            tenant: tenant(raw.tenant.as_deref(), tls::given(raw.jwt_key_file).as_deref())?,
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
                ..Upstream::check(&upstream, tls::given(raw.upstream_ca_file).as_deref())?
            },
            rules,
            tls: tls::server("gateway", raw.tls_cert_file, raw.tls_key_file)?,
            journal_dir: raw.journal_dir.unwrap_or_else(|| PathBuf::from("data/journal")),
            ready_needs_upstream: raw.ready_needs_upstream,
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
    pub(crate) fn wants_fallback(&self) -> bool {
        self.rules.routes.iter().any(|route| route.outage == Outage::Fallback)
    }
}

pub(crate) fn address(name: &str, text: &str) -> Result<SocketAddr, Failure> {
    let text =
        text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    text.parse().map_err(|_| {
        // A URL in its place may hold a password.
        let given = if text.contains('@') { "no address".to_owned() } else { format!("{text:?}") };
        Failure::usage(format!("{name} is {given}; expected an address and a port, e.g. 127.0.0.1:8080"))
    })
}

impl Upstream {
    pub(crate) fn check(text: &str, ca_file: Option<&Path>) -> Result<Self, Failure> {
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
    pub(crate) fn host(&self) -> String {
        let silent = if self.scheme == Scheme::HTTPS { 443 } else { 80 };
        match self.authority.port_u16().filter(|port| *port != silent) {
            Some(port) => format!("{}:{port}", self.authority.host()),
            None => self.authority.host().to_owned(),
        }
    }

    /// Whether someone listens there.
    pub(crate) async fn reach(&self) -> Result<(), String> {
        let port = self.authority.port_u16().unwrap_or(if self.scheme == Scheme::HTTPS { 443 } else { 80 });
        reach(self.authority.as_str(), self.authority.host(), port).await
    }
}

/// Whether someone listens at a place.
pub(crate) async fn reach(place: &str, host: &str, port: u16) -> Result<(), String> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let connecting = tokio::net::TcpStream::connect((host, port));
    match tokio::time::timeout(REACH, connecting).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("{place} cannot be reached: {error}")),
        Err(_) => Err(format!("{place} does not answer")),
    }
}

fn client_tls(scheme: &Scheme, ca_file: Option<&Path>) -> Result<Arc<rustls::ClientConfig>, Failure> {
    let mut roots = rustls::RootCertStore::empty();
    if let Some(file) = ca_file {
        let name = "gateway.upstream_ca_file";
        for certificate in tls::certificates(name, file)? {
            roots
                .add(certificate)
                .map_err(|error| Failure::usage(format!("{name} {}: {error}", file.display())))?;
        }
    } else if *scheme == Scheme::HTTPS {
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

fn tenant(text: Option<&str>, key_file: Option<&Path>) -> Result<Tenant, Failure> {
    let bad = |why: &str| {
        Failure::usage(format!("gateway.tenant {why}; expected header:NAME, cookie:NAME, jwt:CLAIM or none"))
    };
    let tenant = match text.map(|text| text.split_once(':').unwrap_or((text, ""))) {
        None => Rules::default().tenant,
        Some(("none", "")) => Tenant::None,
        Some(("header", name)) => Tenant::Header(name.parse().map_err(|_| bad("names no header field"))?),
        Some(("cookie", name)) if !name.is_empty() && !name.contains(['=', ';', ' ']) => {
            Tenant::Cookie(name.to_owned())
        }
        Some(("cookie", _)) => return Err(bad("names no cookie")),
        Some(("jwt", "")) => return Err(bad("names no claim")),
        Some(("jwt", claim)) => {
            let file = key_file.ok_or_else(|| {
                Failure::usage("gateway.tenant is jwt:CLAIM, which needs gateway.jwt_key_file")
            })?;
            let tenant = JwtTenant::load(claim, file)
                .map_err(|why| Failure::usage(format!("gateway.jwt_key_file {why}")))?;
            return Ok(Tenant::Custom(Arc::new(tenant)));
        }
        Some(_) => return Err(bad("is of no known kind")),
    };
    match key_file {
        Some(_) => Err(Failure::usage("gateway.jwt_key_file is set, but gateway.tenant is not jwt:CLAIM")),
        None => Ok(tenant),
    }
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
            ("policy_path = \"x\"", "gateway.policy_path"),
            ("answer_max_bytes = 99999999999", "gateway.answer_max_bytes"),
            ("tls_cert_file = \"a.pem\"", "gateway.tls_key_file"),
            ("tls_cert_file = \"/nonexistent\"\ntls_key_file = \"/nonexistent\"", "gateway.tls_cert_file"),
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
