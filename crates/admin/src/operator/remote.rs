//! Operator actions through the admin port of the process that holds the store.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ichido_ledger::file::HeldBy;
use ichido_ledger::{Page, Query, Stats, Swept};
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::form_urlencoded;

use super::wire::{ReleaseBody, ResolveBody};
use super::{ClaimSelector, ClaimView, Operator, PAGE_MAX, Refusal, ResolveAs, ResolvedClaim};
use crate::auth::{AdminToken, HOLDER_HEADER, TOKEN_VARIABLE};
use ichido_core::error_chain;
use ichido_serve::Failure;
use ichido_serve::problem::Body;

/// The largest response that is read: the largest outcome, escaped.
const RESPONSE_BYTES_MAX: usize = 128 * 1024 * 1024;

/// The process that holds a store, reached through its admin port.
#[derive(Debug)]
pub struct Remote {
    /// The error of opening the store. Every failure starts with it.
    held_by: String,
    address: String,
    pid: Option<u32>,
    token: Option<AdminToken>,
    /// Longer than the holder's own timeouts.
    timeout: Duration,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Remote {
    /// Prepares to reach the holder. Fails if it has no admin port.
    pub fn new(
        held_by: String,
        holder: HeldBy,
        token: Option<AdminToken>,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let Some(address) = holder.admin else {
            return Err(Failure::usage(format!("{held_by}, which has no admin port")));
        };
        let client = Client::builder(TokioExecutor::new()).build_http();
        Ok(Self { held_by, address, pid: holder.pid, token, timeout, client })
    }

    async fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> Result<T, Refusal> {
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
        self.call(Method::GET, &format!("{path}?{query}"), Bytes::new()).await
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Refusal> {
        let body = serde_json::to_vec(body).map_err(|error| self.failed(&error_chain(&error)))?;
        self.call(Method::POST, path, body.into()).await
    }

    async fn call<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes) -> Result<T, Refusal> {
        let request = self.request(method, path, body).map_err(|error| self.failed(&error_chain(&error)))?;
        let (status, response) = tokio::time::timeout(self.timeout, self.exchange(request))
            .await
            .map_err(|_| self.failed("it did not respond in time; the action may have been carried out"))??;
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
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(pid) = self.pid {
            request = request.header(HOLDER_HEADER, pid);
        }
        if let Some(token) = self.token.as_ref().and_then(AdminToken::authorization) {
            request = request.header(header::AUTHORIZATION, token);
        }
        request.body(Full::new(body))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), Refusal> {
        let response = self.client.request(request).await.map_err(|error| match error.is_connect() {
            true => self.failed(&format!("it cannot be reached: {}", error_chain(&error))),
            false => self.failed(&format!("{}; the action may have been carried out", error_chain(&error))),
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
        self.failed(&match self.token {
            Some(_) => format!("it refused the token in {TOKEN_VARIABLE}"),
            None => format!("it requires a token: set {TOKEN_VARIABLE}"),
        })
    }

    fn failed(&self, what: &str) -> Refusal {
        Refusal::Failed(Failure::usage(format!("{}: {what}", self.held_by)))
    }
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
        self.post("/v1/claims/resolve", &ResolveBody::new(selector.clone(), resolve_as)).await
    }

    async fn release(&self, selector: &ClaimSelector, force: bool) -> Result<ResolvedClaim, Refusal> {
        self.post("/v1/claims/release-by-operator", &ReleaseBody::new(selector.clone(), force)).await
    }

    async fn sweep_step(&self) -> Result<Swept, Refusal> {
        self.call(Method::POST, "/v1/ledger/sweep", Bytes::new()).await
    }

    async fn stats(&self) -> Result<Stats, Refusal> {
        self.get("/v1/ledger/stats", &[]).await
    }
}
