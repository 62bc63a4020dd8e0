//! The way to the service behind: one pool of connections, and errors that say whether a byte was sent.

use std::error::Error as StdError;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use http::header::{CONNECTION, EXPECT, HOST, HeaderName, HeaderValue, UPGRADE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use ichido_http::{Failure, RequestBody, strip_hop_by_hop};
use metrics::{Histogram, histogram};
use tower_service::Service;

use crate::settings::gateway::Upstream;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Many servers close idle connections after 5 s; a request must not meet such a closing.
const IDLE: Duration = Duration::from_secs(3);
/// How long an unkeyed request waits for the head of its answer.
const PATIENCE: Duration = Duration::from_secs(300);

/// Where requests came from: one caller's connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    forwarded_for: Option<HeaderValue>,
    tls: bool,
}

impl Peer {
    pub(crate) fn new(address: SocketAddr, tls: bool) -> Self {
        Self { forwarded_for: HeaderValue::try_from(address.ip().to_string()).ok(), tls }
    }
}

type Body = RequestBody<Incoming>;

/// Sends requests to the service behind.
#[derive(Clone, Debug)]
pub(crate) struct Forward {
    shared: Arc<Shared>,
    peer: Option<Peer>,
}

#[derive(Debug)]
struct Shared {
    client: Client<HttpsConnector<HttpConnector>, Body>,
    scheme: Scheme,
    authority: Authority,
    prefix: String,
    seconds: Histogram,
}

impl Forward {
    pub(crate) fn new(upstream: &Upstream) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config((*upstream.tls).clone())
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .build(connector);
        let shared = Shared {
            client,
            scheme: upstream.scheme.clone(),
            authority: upstream.authority.clone(),
            prefix: upstream.prefix.clone(),
            seconds: histogram!("ichido_upstream_seconds"),
        };
        Self { shared: Arc::new(shared), peer: None }
    }

    /// The same, for the requests of one caller.
    pub(crate) fn of(&self, peer: Peer) -> Self {
        Self { shared: self.shared.clone(), peer: Some(peer) }
    }

    fn prepare(&self, request: &mut Request<Body>, upgrade: Option<HeaderValue>) -> Result<(), Failure> {
        let host = host_of(request);
        let headers = request.headers_mut();
        strip_hop_by_hop(headers);
        // Whoever reads the body tells the client to go on; the service behind is not asked.
        headers.remove(EXPECT);
        if let Some(protocol) = upgrade {
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(UPGRADE, protocol);
        }
        if let Some(peer) = &self.peer {
            forwarded_for(headers, peer.forwarded_for.as_ref());
            headers
                .insert(FORWARDED_PROTO, HeaderValue::from_static(if peer.tls { "https" } else { "http" }));
        }
        if let Some(host) = host {
            headers.insert(FORWARDED_HOST, host.clone());
            headers.insert(HOST, host);
        }
        *request.version_mut() = Version::HTTP_11;
        let place = match request.uri().path_and_query() {
            Some(place) if self.shared.prefix.is_empty() => place.clone(),
            place => {
                let place = place.map_or("/", PathAndQuery::as_str);
                format!("{}{place}", self.shared.prefix).parse().map_err(not_sent)?
            }
        };
        let uri = Uri::builder().scheme(self.shared.scheme.clone()).authority(self.shared.authority.clone());
        *request.uri_mut() = uri.path_and_query(place).build().map_err(not_sent)?;
        Ok(())
    }

    async fn send(self, mut request: Request<Body>) -> Result<Response<Incoming>, Failure> {
        let upgrade = upgrade_of(&request);
        let client_side = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
        self.prepare(&mut request, upgrade)?;
        let started = Instant::now();
        let answered = self.shared.client.request(request).await;
        self.shared.seconds.record(started.elapsed());
        let mut response = answered.map_err(judge)?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS
            && let Some(client_side) = client_side
        {
            let service_side = hyper::upgrade::on(&mut response);
            tokio::spawn(join(client_side, service_side));
            return Ok(response);
        }
        strip_hop_by_hop(response.headers_mut());
        // A service that speaks HTTP/1.0 must not make our answer to a newer client one.
        *response.version_mut() = Version::HTTP_11;
        Ok(response)
    }
}

impl Service<Request<Body>> for Forward {
    type Response = Response<Incoming>;
    type Error = Failure;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Response<Incoming>, Failure>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let sending = self.clone().send(request);
        Box::pin(async move {
            match tokio::time::timeout(PATIENCE, sending).await {
                Ok(answer) => answer,
                Err(_) => Err(Failure::TimedOut("no answer in time".into())),
            }
        })
    }
}

/// A connection that could not be made, or a request that hyper gave back, reached nobody.
fn judge(error: ClientError) -> Failure {
    let given_back = error
        .source()
        .and_then(|cause| cause.downcast_ref::<hyper::Error>())
        .is_some_and(hyper::Error::is_canceled);
    if error.is_connect() || given_back {
        return Failure::NotSent(describe(&error).into());
    }
    Failure::Lost(describe(&error).into())
}

fn describe(error: &ClientError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

fn not_sent(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Failure {
    Failure::NotSent(error.into())
}

fn host_of(request: &Request<Body>) -> Option<HeaderValue> {
    request.headers().get(HOST).cloned().or_else(|| {
        let authority = request.uri().authority()?;
        HeaderValue::try_from(authority.as_str()).ok()
    })
}

fn forwarded_for(headers: &mut http::HeaderMap, caller: Option<&HeaderValue>) {
    let Some(caller) = caller else { return };
    let mut earlier =
        headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok()).peekable();
    if earlier.peek().is_none() {
        headers.insert(FORWARDED_FOR, caller.clone());
        return;
    }
    let all: Vec<_> = earlier.chain(caller.to_str().ok()).collect();
    if let Ok(value) = HeaderValue::try_from(all.join(", ")) {
        headers.insert(FORWARDED_FOR, value);
    }
}

/// The protocol that a request wants to change to.
fn upgrade_of(request: &Request<Body>) -> Option<HeaderValue> {
    let headers = request.headers();
    let protocol = headers.get(UPGRADE)?;
    let names = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    let asked = names.map(str::trim).any(|name| name.eq_ignore_ascii_case("upgrade"));
    (asked && request.version() == Version::HTTP_11).then(|| protocol.clone())
}

async fn join(client_side: hyper::upgrade::OnUpgrade, service_side: hyper::upgrade::OnUpgrade) {
    match tokio::try_join!(client_side, service_side) {
        Ok((client_side, service_side)) => {
            let (mut client_side, mut service_side) = (TokioIo::new(client_side), TokioIo::new(service_side));
            if let Err(error) = tokio::io::copy_bidirectional(&mut client_side, &mut service_side).await {
                tracing::debug!(%error, "an upgraded connection ended");
            }
        }
        Err(error) => tracing::warn!(%error, "a connection could not be upgraded"),
    }
}
