//! The settings of the gateway: `[gateway]` and its routes, checked as a whole before anything starts.

mod bounds;
mod origins;
mod parse;
mod resolve;
mod routes;
mod secrets;
mod signature;
mod tenant;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::uri::{Authority, Scheme};
use ichido_http::{Outage, Rules};
use schemars::JsonSchema;
use serde::Deserialize;

use self::bounds::{ANSWER_MAX, bounds};
pub use self::origins::Origins;
use self::resolve::TenantKind;
use self::routes::{RawRoute, Shared, origins, routes};
use self::secrets::Secrets;
pub use self::secrets::unchecked;
use self::tenant::RawTenant;
use ichido_serve::{TrustedProxies, tls};
use ichido_settings::{Invalid, OneOrMany, Secret, address};

/// Below the keep-alive timeouts of gunicorn (2 s), Node and Apache (5 s), so that a request rarely meets a closing connection.
const UPSTREAM_IDLE_MS: u64 = 1_500;

/// Settings of the section that take effect only when the gateway starts. All others can be reloaded.
pub const NEEDS_RESTART: [&str; 6] = [
    "gateway.listen",
    "gateway.inflight_max_per_connection",
    "gateway.connections_max",
    "gateway.journal_dir",
    "gateway.shutdown_seconds",
    "gateway.ready_needs_upstream",
];

/// Checked settings of the gateway.
#[derive(Debug)]
pub struct Settings {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Where requests are forwarded.
    pub upstream: Upstream,
    /// The rules of the idempotency layer.
    pub rules: Rules,
    /// The origins that may read the responses of each route, in the order of the routes.
    pub origins: Vec<Option<Origins>>,
    /// TLS for the listener.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// The directory of the completion journal.
    pub journal_dir: PathBuf,
    /// The most open connections. `None`: derived from the limit of open files.
    pub connections_max: Option<u64>,
    /// How long requests may take after SIGTERM.
    pub shutdown: Duration,
    /// The peers whose forwarding headers are kept.
    pub trusted_proxies: TrustedProxies,
    /// Whether the process is ready only while the upstream accepts connections.
    pub ready_needs_upstream: bool,
}

/// The upstream.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// `http` or `https`.
    pub scheme: Scheme,
    /// Host and port.
    pub authority: Authority,
    /// The prefix of every path; empty, or starting with `/`.
    pub prefix: String,
    /// TLS for connections to it.
    pub tls: Arc<rustls::ClientConfig>,
    /// How long an idle connection is kept for the next request.
    pub idle_time: Duration,
}

/// The section as it was written.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Raw {
    /// Where the gateway listens.
    #[schemars(extend("x-env" = "ICHIDO_GATEWAY_LISTEN"))]
    listen: String,
    /// The service behind the gateway, such as `http://127.0.0.1:5000`. Required.
    #[schemars(extend("x-env" = "ICHIDO_GATEWAY_UPSTREAM", "x-url" = true))]
    upstream: Option<String>,
    /// Certificate authorities to trust for an `https://` upstream, in addition to the system's.
    upstream_ca_file: Option<PathBuf>,
    /// How long an idle upstream connection is kept, in milliseconds; `0` never keeps one. Stay below the upstream's keep-alive
    /// timeout.
    #[schemars(range(min = 0, max = 3_600_000))]
    upstream_idle_ms: u64,
    /// How the tenant of a key is determined: `auto`, `header:NAME`, `cookie:NAME`, `jwt:CLAIM` or `none`.
    tenant: Option<String>,
    /// For `jwt:CLAIM`: a public key as PEM, a JWK set, or a shared secret.
    jwt_key_file: Option<PathBuf>,
    /// For `jwt:CLAIM`: accepted issuers. Not set: any.
    jwt_issuer: Option<OneOrMany>,
    /// For `jwt:CLAIM`: accepted audiences. Not set: any.
    jwt_audience: Option<OneOrMany>,
    /// The path where the rules are published.
    policy_path: String,
    /// Whether `Idempotency-Key` must be quoted.
    strict_keys: bool,
    /// Larger request bodies are written to disk while they are hashed.
    #[schemars(range(min = 1, max = 4_294_967_296_u64))]
    body_memory_bytes: u64,
    /// Larger request bodies are refused with 413.
    #[schemars(range(min = 1, max = 1_099_511_627_776_u64))]
    body_max_bytes: u64,
    /// How much of a body is parsed for keys and fingerprints from JSON; larger ones are refused with 413.
    #[schemars(range(min = 1, max = 1_073_741_824))]
    body_parse_max_bytes: u64,
    /// Bytes per second; slower request bodies are refused with 408 after 30 s.
    #[schemars(range(min = 1, max = 1_073_741_824))]
    body_min_rate_bytes: u64,
    /// The memory of all request bodies together; beyond it 503. Not set: 256 times the larger of `body_memory_bytes` and
    /// `body_parse_max_bytes`.
    #[schemars(range(min = 1, max = 1_125_899_906_842_624_u64))]
    body_memory_total_bytes: Option<u64>,
    /// The disk space of all request bodies together; beyond it 503. Not set: 64 times `body_max_bytes`.
    #[schemars(range(min = 1, max = 1_125_899_906_842_624_u64))]
    body_disk_total_bytes: Option<u64>,
    /// Larger responses are streamed and leave a tombstone.
    #[schemars(range(min = 1, max = ANSWER_MAX))]
    answer_max_bytes: u64,
    /// Keyed requests in flight; beyond it 503.
    #[schemars(range(min = 1, max = 1_000_000))]
    inflight_max: u64,
    /// Keyed requests of one tenant in flight; beyond it 503. Not set: half of `inflight_max`.
    #[schemars(range(min = 1, max = 1_000_000))]
    inflight_max_per_tenant: Option<u64>,
    /// Keyed requests of one connection in flight; also its limit of HTTP/2 streams.
    #[schemars(range(min = 1, max = 1_000_000))]
    inflight_max_per_connection: u64,
    /// Open connections; further ones wait. Not set: derived from the limit of open files.
    #[schemars(range(min = 1, max = 1_000_000))]
    connections_max: Option<u64>,
    /// With `tls_key_file`: the certificate chain of the listener, as PEM.
    tls_cert_file: Option<PathBuf>,
    /// With `tls_cert_file`: its private key, as PEM.
    tls_key_file: Option<PathBuf>,
    /// The completion journal, for ledgers other than `file:` and `memory:`.
    journal_dir: PathBuf,
    /// How long requests, streams and WebSockets may take after SIGTERM, in seconds.
    #[schemars(range(min = 0, max = 3600))]
    shutdown_seconds: u64,
    /// Whether `/readyz` also checks that the upstream accepts connections.
    ready_needs_upstream: bool,
    /// Peers whose `X-Forwarded-*` and `Forwarded` headers are kept: networks or addresses.
    trusted_proxies: Vec<String>,
    /// Signing secrets of Slack, separated by commas. They override those of the routes.
    #[schemars(extend("x-env" = "SLACK_SIGNING_SECRET", "x-env-only" = true, "x-never-empty" = true))]
    slack_signing_secret: Option<Secret>,
    /// Webhook secrets of GitHub, separated by commas. They override those of the routes.
    #[schemars(extend("x-env" = "GITHUB_WEBHOOK_SECRET", "x-env-only" = true, "x-never-empty" = true))]
    github_webhook_secret: Option<Secret>,
    /// Webhook secrets of Stripe, separated by commas. They override those of the routes.
    #[schemars(extend("x-env" = "STRIPE_WEBHOOK_SECRET", "x-env-only" = true, "x-never-empty" = true))]
    stripe_webhook_secret: Option<Secret>,
    /// Secrets of Standard Webhooks (`whsec_…`, or `whpk_…` for Ed25519), separated by commas. They override those of the routes.
    #[schemars(extend("x-env" = "STANDARD_WEBHOOKS_SECRET", "x-env-only" = true, "x-never-empty" = true))]
    standard_webhooks_secret: Option<Secret>,
    /// `Authorization` of the requests that ask the service about effects in doubt (`resolve` of a route).
    #[schemars(extend("x-env" = "ICHIDO_RESOLVE_AUTHORIZATION", "x-env-only" = true, "x-never-empty" = true))]
    resolve_authorization: Option<Secret>,
    /// Which requests are claimed, and how.
    routes: Option<Vec<RawRoute>>,
}

impl Default for Raw {
    fn default() -> Self {
        let rules = Rules::default();
        Self {
            listen: "127.0.0.1:8080".to_owned(),
            upstream: None,
            upstream_ca_file: None,
            upstream_idle_ms: UPSTREAM_IDLE_MS,
            tenant: None,
            jwt_key_file: None,
            jwt_issuer: None,
            jwt_audience: None,
            policy_path: rules.policy_path,
            strict_keys: false,
            body_memory_bytes: rules.body_memory_bytes,
            body_max_bytes: rules.body_max_bytes,
            body_parse_max_bytes: rules.body_parse_max_bytes,
            body_min_rate_bytes: rules.body_min_rate_bytes,
            body_memory_total_bytes: None,
            body_disk_total_bytes: None,
            answer_max_bytes: rules.answer_max_bytes as u64,
            inflight_max: rules.inflight_max as u64,
            inflight_max_per_tenant: None,
            inflight_max_per_connection: rules.inflight_max_per_connection as u64,
            connections_max: None,
            tls_cert_file: None,
            tls_key_file: None,
            journal_dir: PathBuf::from("data/journal"),
            shutdown_seconds: 30,
            ready_needs_upstream: false,
            trusted_proxies: vec!["127.0.0.0/8".to_owned(), "::1/128".to_owned()],
            slack_signing_secret: None,
            github_webhook_secret: None,
            stripe_webhook_secret: None,
            standard_webhooks_secret: None,
            resolve_authorization: None,
            routes: None,
        }
    }
}

impl Settings {
    /// Checks the section as a whole. `optional_key`: requests without a key pass, whatever the routes say.
    pub fn check(raw: Raw, optional_key: bool) -> Result<Self, Invalid> {
        let bounds = bounds(&raw)?;
        let upstream = raw.upstream.as_deref().ok_or_else(|| {
            let problem = "is not set; name the service behind the gateway, for example --upstream http://127.0.0.1:5000";
            Invalid::new("gateway.upstream", problem)
        })?;
        let origins = origins(raw.routes.as_deref())?;
        let secrets = Secrets {
            slack: raw.slack_signing_secret,
            github: raw.github_webhook_secret,
            stripe: raw.stripe_webhook_secret,
            standard_webhooks: raw.standard_webhooks_secret,
        };
        let shared = Shared {
            is_auto: raw.tenant.as_deref().is_none_or(|tenant| tenant == "auto"),
            tenant: TenantKind::of_rule(raw.tenant.as_deref()),
            secrets: &secrets,
            resolve_authorization: raw.resolve_authorization.as_ref(),
        };
        let rules = Rules {
            routes: routes(raw.routes, optional_key, &shared)?,
            tenant: RawTenant {
                rule: raw.tenant,
                jwt_key_file: raw.jwt_key_file,
                jwt_issuer: raw.jwt_issuer,
                jwt_audience: raw.jwt_audience,
            }
            .check()?,
            policy_path: policy_path(raw.policy_path)?,
            strict_keys: raw.strict_keys,
            ..bounds
        };
        Ok(Self {
            listen: address("gateway.listen", &raw.listen)?,
            upstream: Upstream {
                idle_time: Duration::from_millis(raw.upstream_idle_ms),
                ..Upstream::check(upstream, tls::non_empty(raw.upstream_ca_file).as_deref())?
            },
            rules,
            origins,
            tls: tls::server_config("gateway", raw.tls_cert_file, raw.tls_key_file)?,
            journal_dir: raw.journal_dir,
            ready_needs_upstream: raw.ready_needs_upstream,
            trusted_proxies: TrustedProxies::check("gateway.trusted_proxies", &raw.trusted_proxies)?,
            connections_max: raw.connections_max,
            shutdown: Duration::from_secs(raw.shutdown_seconds),
        })
    }

    /// Whether a route goes on with a local ledger during an outage.
    pub fn wants_fallback(&self) -> bool {
        self.rules.routes.iter().any(|route| route.outage == Outage::Fallback)
    }
}

impl Upstream {
    /// Parses the URL.
    pub fn check(text: &str, ca_file: Option<&Path>) -> Result<Self, Invalid> {
        let bad = |why: &str| {
            Invalid::new("gateway.upstream", format!("{why}; expected something like http://127.0.0.1:5000"))
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
        Ok(Self {
            tls: tls::client_config(
                "gateway.upstream",
                scheme == Scheme::HTTPS,
                ca_file.map(|file| ("gateway.upstream_ca_file", file)),
            )?,
            scheme,
            authority,
            prefix,
            idle_time: Duration::from_millis(UPSTREAM_IDLE_MS),
        })
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

/// Logs what an operator should know about rules that take effect.
pub(crate) fn log_cautions(rules: &Rules) {
    for warning in rules.routes.iter().filter_map(unchecked) {
        tracing::warn!("{warning}");
    }
    let tenant = &rules.tenant;
    tracing::info!(rule = tenant.describe(), caution = tenant.caution(), "tenant rule");
}

fn default_port(scheme: &Scheme) -> u16 {
    if *scheme == Scheme::HTTPS { 443 } else { 80 }
}

fn policy_path(path: String) -> Result<String, Invalid> {
    let fits = path.starts_with('/')
        && path.len() > 1
        && !path.ends_with('/')
        && path.parse::<http::uri::PathAndQuery>().is_ok();
    if !fits || path.contains(['?', '"', '<', '>']) {
        return Err(Invalid::new("gateway.policy_path", "must be a path such as /.well-known/idempotency"));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use ichido_http::KeySource;
    use ichido_settings::Sources;

    use super::*;

    #[derive(Default, Deserialize, JsonSchema)]
    #[serde(default)]
    struct File {
        gateway: Raw,
    }

    fn read(text: &str) -> Result<Settings, String> {
        let schema = ichido_settings::schema::<File>();
        let sources = Sources::from_text(&schema, Path::new("ichido.toml"), text)
            .map_err(|invalid| invalid.to_string())?;
        let raw = sources.section::<Raw>("gateway").map_err(|invalid| invalid.to_string())?;
        Settings::check(raw, false).map_err(|invalid| sources.explain(&invalid).to_string())
    }

    fn check(text: &str) -> Result<Settings, String> {
        let text = text.replace("[[routes]]", "[[gateway.routes]]");
        read(&format!("[gateway]\nupstream = \"http://127.0.0.1:5000/api/\"\n{text}"))
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
    fn proxies_on_this_machine_are_trusted_unless_a_list_says_otherwise() {
        let trusts = |list: &[String], ip: &str| {
            let proxies = TrustedProxies::check("gateway.trusted_proxies", list).unwrap();
            proxies.contains(ip.parse().unwrap())
        };
        let default = Raw::default().trusted_proxies;
        assert!(trusts(&default, "127.8.9.10") && trusts(&default, "::1") && !trusts(&default, "10.1.2.3"));
        assert!(!trusts(&["10.0.0.0/8".to_owned()], "127.0.0.1"));
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
            ("jwt_issuer = \"https://issuer\"", "gateway.jwt_issuer: is set"),
            ("tenant = \"auto\"\njwt_audience = [\"orders\"]", "gateway.jwt_audience: is set"),
            (
                "tenant = \"jwt:sub\"\njwt_key_file = \"/nonexistent\"\njwt_issuer = []",
                "gateway.jwt_issuer: is empty",
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
            (
                "[[routes]]\npreset = \"slack\"",
                "slack-events, github, stripe-events, standard-webhooks, cloudevents",
            ),
            (
                "[[routes]]\npreset = \"github\"\nslack_signing_secret = \"hunter2\"",
                "routes[0].slack_signing_secret",
            ),
            ("[[routes]]\ngithub_webhook_secret = \"hunter2\"", "gateway.routes[0].github_webhook_secret"),
            (
                "[[routes]]\npreset = \"slack-events\"\nslack_signing_secret = \"\"",
                "slack_signing_secret: is empty",
            ),
            ("[[routes]]\ntenant = \"ip\"", "gateway.routes[0].tenant"),
            ("[[routes]]\nkey = 5", "a string or a list of strings"),
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
    fn what_needs_a_restart_is_a_setting() {
        let settings = ichido_settings::settings(&ichido_settings::schema::<File>());
        for name in NEEDS_RESTART {
            assert!(settings.iter().any(|setting| setting.path == name), "{name}");
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
            let message = read(&format!("[gateway]\nupstream = \"{url}\"\n")).unwrap_err();
            assert!(message.contains("gateway.upstream") && !message.contains("hunter2"), "{url}: {message}");
        }
        let message = read("").unwrap_err();
        assert!(message.contains("--upstream"), "{message}");
        for url in ["http://h", "https://h:443", "http://[::1]", "http://[::1]:5000/api"] {
            Upstream::check(url, None).unwrap();
        }
    }
}
