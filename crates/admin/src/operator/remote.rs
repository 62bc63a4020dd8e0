//! Operator actions through the admin port of the process that holds the store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ichido_delivery::tls_roots::TlsRoots;
use ichido_history::Entry;
use ichido_history::anomalies::Found;
use ichido_ledger::file::HeldBy;
use ichido_ledger::{Backup, MarkPage, MarkQuery, MarkSummary, Page, Query, Stats, Swept, Verified};
use rustls::pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::form_urlencoded;

use super::doubt_wire::{AskBody, ResolveAllBody, ResolvedAll};
use super::wire::{
    BackupBody, ClaimReasonBody, EraseEventBody, ForgetEventBody, ReleaseBody, ResolveBody, Timeline,
};
use super::{
    AskedClaim, ClaimSelector, ClaimView, Confirmed, ErasedEvent, EventView, Operator, PAGE_MAX, Refusal,
    ResolveAs, ResolvedClaim, SeenClaim, SeenResult, Triage, TriageFilter,
};
use crate::auth::{HOLDER_HEADER, TOKEN_VARIABLE, checked_token};
use ichido_core::error_chain;
use ichido_serve::Failure;
use ichido_serve::problem::Body;
use ichido_settings::{Invalid, Secret};

/// The largest response that is read: the largest outcome, escaped.
const RESPONSE_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Claims that are resolved with one request, so that the longest keys fit into its body.
const RESOLVE_CHUNK: usize = 100;
/// How long the other side may be silent before the operating system checks that it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// How long to wait for a response.
#[derive(Clone, Copy, Debug)]
enum Wait {
    /// A little longer than the holder's own timeouts.
    Ordinary,
    /// As long as the holder is there: the work may take hours.
    UntilDone,
}

/// How commands use the admin port of another process.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The operator's own token.
    pub token: Option<Secret>,
    /// Authorities that are trusted in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// The name in the certificate, if it is not the host of the URL.
    pub server_name: Option<String>,
}

/// The process that holds a store, reached through its admin port.
#[derive(Debug)]
pub struct Remote {
    /// The error of opening the store. Every failure starts with it.
    held_by: String,
    /// The URL of the port, without a path.
    url: String,
    pid: Option<u32>,
    authorization: Option<HeaderValue>,
    /// Longer than the holder's own timeouts.
    timeout: Duration,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Remote {
    /// Prepares to reach the holder. Fails if it has no admin port.
    pub fn new(
        held_by: String,
        holder: HeldBy,
        settings: &ClientSettings,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let Some(address) = holder.admin else {
            return Err(Failure::usage(format!("{held_by}, which has no admin port")));
        };
        let url = match address.split_once("://") {
            None => format!("http://{address}"),
            Some(("http" | "https", _)) => address.trim_end_matches('/').to_owned(),
            Some(_) => {
                return Err(Failure::usage(format!(
                    "{held_by}: its URL must start with http:// or https://"
                )));
            }
        };
        let client = Client::builder(TokioExecutor::new()).build(connector(&url, settings)?);
        let authorization = settings.token.as_ref().map(authorization).transpose()?.flatten();
        Ok(Self { held_by, url, pid: holder.pid, authorization, timeout, client })
    }

    /// The URL of a page of its console.
    pub fn page(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// What was decided about a key, as the histories of that process tell.
    pub async fn timeline(&self, find: &str) -> Result<Vec<Entry>, Refusal> {
        Ok(self.get::<Timeline>("/v1/history/timeline", &[("find", find)]).await?.timeline)
    }

    /// What was unusual in the last days, as the histories of that process tell.
    pub async fn anomalies(&self, days: u32) -> Result<Found, Refusal> {
        self.get("/v1/history/anomalies", &[("days", &days.to_string())]).await
    }

    /// A response of this process to a request that only reads.
    pub(crate) async fn read<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, Refusal> {
        self.get(path, query).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> Result<T, Refusal> {
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
        self.call(Method::GET, &format!("{path}?{query}"), Bytes::new(), Wait::Ordinary).await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        wait: Wait,
    ) -> Result<T, Refusal> {
        let body = serde_json::to_vec(body).map_err(|error| self.failed(&error_chain(&error)))?;
        self.call(Method::POST, path, body.into(), wait).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        wait: Wait,
    ) -> Result<T, Refusal> {
        let request = self.request(method, path, body).map_err(|error| self.failed(&error_chain(&error)))?;
        let exchange = self.exchange(request);
        let (status, response) = match wait {
            Wait::Ordinary => tokio::time::timeout(self.timeout, exchange).await.map_err(|_| {
                self.failed("it did not respond in time; the action may have been carried out")
            })??,
            Wait::UntilDone => exchange.await?,
        };
        if status.is_success() {
            return serde_json::from_slice(&response)
                .map_err(|error| self.failed(&format!("its response is invalid: {error}")));
        }
        match serde_json::from_slice::<Body>(&response) {
            Ok(_) if status == StatusCode::UNAUTHORIZED => Err(self.token_refused()),
            Ok(body) => Err(Refusal::from_problem(&body).unwrap_or_else(|| self.failed(body.detail()))),
            Err(_) => Err(self.failed(&format!("it returned {status} and is not an admin port"))),
        }
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> http::Result<Request<Full<Bytes>>> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(pid) = self.pid {
            request = request.header(HOLDER_HEADER, pid);
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        request.body(Full::new(body))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), Refusal> {
        let response = self.client.request(request).await.map_err(|error| match error.is_connect() {
            true => self.failed(&format!("it cannot be reached: {}", with_hint(&error_chain(&error)))),
            false => self.failed(&format!(
                "{}; the action may have been carried out{}",
                error_chain(&error),
                if self.url.starts_with("http://") { " (if the port uses TLS, use https://)" } else { "" }
            )),
        })?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await.map_err(|error| {
            self.failed(&format!(
                "its response broke off: {}; the action may have been carried out",
                error_chain(&*error)
            ))
        })?;
        Ok((head.status, body.to_bytes()))
    }

    fn token_refused(&self) -> Refusal {
        self.failed(&match self.authorization {
            Some(_) => format!("it refused the token in {TOKEN_VARIABLE}"),
            None => format!("it requires a token: set {TOKEN_VARIABLE}"),
        })
    }

    fn failed(&self, what: &str) -> Refusal {
        Refusal::Failed(Failure::usage(format!("{}: {what}", self.held_by)))
    }
}

/// A failed verification of the certificate is explained by the settings that decide it.
fn with_hint(error: &str) -> String {
    match error.contains("certificate") {
        true => format!("{error} (admin.ca_file and admin.server_name say which certificate is trusted)"),
        false => error.to_owned(),
    }
}

fn authorization(token: &Secret) -> Result<Option<HeaderValue>, Invalid> {
    let token = checked_token(TOKEN_VARIABLE, token.expose())?;
    Ok(HeaderValue::try_from(format!("Bearer {token}")).ok().map(|mut value| {
        value.set_sensitive(true);
        value
    }))
}

fn connector(url: &str, settings: &ClientSettings) -> Result<HttpsConnector<HttpConnector>, Invalid> {
    let bad = |problem: String| Invalid::new("admin.ca_file", problem);
    // Reading the system's authorities takes a while, and a port without TLS needs none.
    let tls = match url.starts_with("https://") {
        true => TlsRoots::read_setting("admin.ca_file", settings.ca_file.as_deref())?.client(),
        false => {
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map(|tls| tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
        }
    };
    let tls = tls.map_err(|error| bad(format!("cannot prepare TLS: {error}")))?;
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let builder = match &settings.server_name {
        None => builder,
        Some(name) => builder.with_server_name_resolver(FixedServerNameResolver::new(
            ServerName::try_from(name.clone())
                .map_err(|_| Invalid::new("admin.server_name", "must be a host name or an IP address"))?,
        )),
    };
    // A holder whose machine is gone sends nothing, and some responses have no deadline.
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_keepalive(Some(KEEP_ALIVE));
    tcp.set_keepalive_interval(Some(KEEP_ALIVE));
    tcp.set_keepalive_retries(Some(4));
    Ok(builder.enable_http1().wrap_connector(tcp))
}

impl Operator for Remote {
    async fn list(&self, query: &Query) -> Result<Page, Refusal> {
        let limit = query.limit.min(PAGE_MAX).to_string();
        let mut pairs = vec![("limit", limit.as_str())];
        pairs.extend(query.state.map(|state| ("state", state.as_str())));
        pairs.extend(query.prefix.as_deref().map(|prefix| ("prefix", prefix)));
        pairs.extend(query.cursor.as_deref().map(|cursor| ("cursor", cursor)));
        self.get("/v1/claims", &pairs).await
    }

    async fn show(&self, selector: &ClaimSelector) -> Result<ClaimView, Refusal> {
        let mut pairs = vec![("key", selector.key.as_str())];
        pairs.extend(selector.tenant.as_deref().map(|tenant| ("tenant", tenant)));
        pairs.extend(selector.route.as_deref().map(|route| ("route", route)));
        self.get("/v1/claims/one", &pairs).await
    }

    async fn resolve(
        &self,
        selector: &ClaimSelector,
        resolve_as: &ResolveAs,
    ) -> Result<ResolvedClaim, Refusal> {
        self.post("/v1/claims/resolve", &ResolveBody::new(selector.clone(), resolve_as), Wait::Ordinary).await
    }

    async fn ask(
        &self,
        selector: &ClaimSelector,
        confirmed: Option<&Confirmed>,
    ) -> Result<AskedClaim, Refusal> {
        let ClaimSelector { key, tenant, route } = selector.clone();
        let body = AskBody { key, tenant, route, confirmed: confirmed.cloned() };
        // The service may take as long as its own timeout.
        self.post("/v1/claims/ask", &body, Wait::UntilDone).await
    }

    async fn triage(&self, filter: &TriageFilter, limit: usize) -> Result<Triage, Refusal> {
        let limit = limit.min(PAGE_MAX).to_string();
        let older_than = filter.older_than.map(|age| age.as_secs().to_string());
        let mut pairs = vec![("limit", limit.as_str())];
        pairs.extend(filter.route.as_deref().map(|route| ("route", route)));
        pairs.extend(filter.reason.as_deref().map(|reason| ("reason", reason)));
        pairs.extend(filter.tenant.as_deref().map(|tenant| ("tenant", tenant)));
        pairs.extend(older_than.as_deref().map(|seconds| ("older_than_seconds", seconds)));
        self.get("/v1/claims/triage", &pairs).await
    }

    async fn resolve_all(
        &self,
        claims: &[SeenClaim],
        resolve_as: &ResolveAs,
        reason: Option<&str>,
    ) -> Result<Vec<SeenResult>, Refusal> {
        let mut results = Vec::with_capacity(claims.len());
        for claims in claims.chunks(RESOLVE_CHUNK) {
            let (kind, reason) = (resolve_as.kind(), reason.map(ToOwned::to_owned));
            let body = ResolveAllBody { kind, claims: claims.to_vec(), reason };
            let resolved: ResolvedAll = self.post("/v1/claims/resolve-all", &body, Wait::UntilDone).await?;
            results.extend(resolved.claims);
        }
        Ok(results)
    }

    async fn release(&self, selector: &ClaimSelector, force: bool) -> Result<ResolvedClaim, Refusal> {
        self.post(
            "/v1/claims/release-by-operator",
            &ReleaseBody::new(selector.clone(), force),
            Wait::Ordinary,
        )
        .await
    }

    async fn forget(&self, selector: &ClaimSelector, reason: &str) -> Result<ResolvedClaim, Refusal> {
        let body = ClaimReasonBody::new(selector.clone(), reason);
        self.post("/v1/claims/forget", &body, Wait::Ordinary).await
    }

    async fn erase(&self, selector: &ClaimSelector, reason: &str) -> Result<ResolvedClaim, Refusal> {
        let body = ClaimReasonBody::new(selector.clone(), reason);
        self.post("/v1/claims/erase", &body, Wait::Ordinary).await
    }

    async fn erase_event(&self, key: &str, reason: &str) -> Result<ErasedEvent, Refusal> {
        let body = EraseEventBody { key: key.to_owned(), reason: reason.to_owned() };
        self.post("/v1/events/erase", &body, Wait::Ordinary).await
    }

    async fn list_events(&self, query: &MarkQuery) -> Result<MarkPage, Refusal> {
        let limit = query.limit.min(PAGE_MAX).to_string();
        let mut pairs = vec![("limit", limit.as_str())];
        pairs.extend(query.prefix.as_deref().map(|prefix| ("prefix", prefix)));
        pairs.extend(query.cursor.as_deref().map(|cursor| ("cursor", cursor)));
        self.get("/v1/events", &pairs).await
    }

    async fn show_event(&self, key: &str) -> Result<EventView, Refusal> {
        self.get("/v1/events/one", &[("key", key)]).await
    }

    async fn forget_event(&self, key: &str, reason: Option<&str>) -> Result<MarkSummary, Refusal> {
        let body = ForgetEventBody { key: key.to_owned(), reason: reason.map(ToOwned::to_owned) };
        self.post("/v1/events/forget", &body, Wait::Ordinary).await
    }

    async fn sweep_step(&self) -> Result<Swept, Refusal> {
        self.call(Method::POST, "/v1/ledger/sweep", Bytes::new(), Wait::Ordinary).await
    }

    async fn stats(&self) -> Result<Stats, Refusal> {
        self.get("/v1/ledger/stats", &[]).await
    }

    async fn verify(&self) -> Result<Verified, Refusal> {
        self.call(Method::POST, "/v1/ledger/verify", Bytes::new(), Wait::UntilDone).await
    }

    async fn backup(&self, to: &Path) -> Result<Backup, Refusal> {
        let Some(directory) = to.to_str().map(str::to_owned) else {
            return Err(self.failed(&format!("the path {} is not valid UTF-8", to.display())));
        };
        self.post("/v1/ledger/backup", &BackupBody { directory }, Wait::UntilDone).await
    }

    async fn compact(&self) -> Result<Swept, Refusal> {
        self.call(Method::POST, "/v1/ledger/compact", Bytes::new(), Wait::UntilDone).await
    }
}
