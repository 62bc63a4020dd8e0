//! The way to the service behind: what is changed in a request before it goes there, and in its answer.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use http::header::{CONNECTION, EXPECT, HOST, HeaderName, HeaderValue, UPGRADE};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::TokioIo;
use ichido_http::{Failure, Route, strip_hop_by_hop};
use ichido_ledger::within;
use metrics::{Histogram, histogram};
use tower_service::Service;

use super::pool::{Answer, Body, Pool};
use crate::exit::Failure as StartFailure;
use crate::settings::gateway::Upstream;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// How long a request waits at least for the head of its answer.
const PATIENCE: Duration = Duration::from_secs(300);
/// A keyed request is given up by the layer, whose limit is the route's: this one comes later.
const MARGIN: Duration = Duration::from_secs(5);

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

/// Sends requests to the service behind.
#[derive(Clone, Debug)]
pub(crate) struct Forward {
    shared: Arc<Shared>,
    peer: Option<Peer>,
}

#[derive(Debug)]
struct Shared {
    pool: Arc<Pool>,
    /// For requests that name no host.
    host: HeaderValue,
    prefix: String,
    patience: Duration,
    seconds: Histogram,
}

impl Forward {
    pub(crate) fn new(upstream: &Upstream, routes: &[Route]) -> Result<Self, StartFailure> {
        let wrong = |error: http::Error| StartFailure::usage(format!("gateway.upstream: {error}"));
        let shared = Shared {
            pool: Arc::new(
                Pool::new(upstream, routes.iter().filter_map(|route| route.timeout)).map_err(wrong)?,
            ),
            host: HeaderValue::try_from(upstream.host()).map_err(|error| wrong(error.into()))?,
            prefix: upstream.prefix.clone(),
            patience: patience(routes),
            seconds: histogram!("ichido_upstream_seconds"),
        };
        Ok(Self { shared: Arc::new(shared), peer: None })
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
        match host {
            Some(host) => {
                headers.insert(FORWARDED_HOST, host.clone());
                headers.insert(HOST, host);
            }
            None => drop(headers.insert(HOST, self.shared.host.clone())),
        }
        *request.version_mut() = Version::HTTP_11;
        let is_path = request.uri().authority().is_none() && request.uri().scheme().is_none();
        let place = match request.uri().path_and_query() {
            Some(_) if is_path && self.shared.prefix.is_empty() => return Ok(()),
            Some(place) if self.shared.prefix.is_empty() => place.clone(),
            place => {
                let place = place.map_or("/", PathAndQuery::as_str);
                let place = format!("{}{place}", self.shared.prefix).parse();
                place.map_err(|error: http::uri::InvalidUri| Failure::NotSent(error.into()))?
            }
        };
        *request.uri_mut() = Uri::from(place);
        Ok(())
    }

    async fn send(self, mut request: Request<Body>) -> Result<Response<Answer>, Failure> {
        let upgrade = upgrade_of(&request);
        let client_side = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
        self.prepare(&mut request, upgrade)?;
        let started = Instant::now();
        let answered = self.shared.pool.send(request).await;
        self.shared.seconds.record(started.elapsed());
        let mut response = answered?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS
            && let Some(client_side) = client_side
        {
            let service_side = hyper::upgrade::on(&mut response);
            response.body_mut().let_go();
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
    type Response = Response<Answer>;
    type Error = Failure;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Response<Answer>, Failure>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let forward = self.clone();
        Box::pin(async move {
            let patience = forward.shared.patience;
            // In its place from the beginning: it is too large to be moved about.
            let sending = pin!(forward.send(request));
            match within(patience, sending).await {
                Ok(answer) => answer,
                Err(_) => Err(Failure::TimedOut("no answer in time".into())),
            }
        })
    }
}

fn patience(routes: &[Route]) -> Duration {
    let longest = routes.iter().filter_map(|route| route.timeout).max();
    longest.map_or(PATIENCE, |longest| PATIENCE.max(longest.saturating_add(MARGIN)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_route_is_more_patient_than_the_way_to_the_service() {
        let taking = |seconds| Route { timeout: Some(Duration::from_secs(seconds)), ..Route::default() };
        assert_eq!(patience(&[taking(30), Route::default()]), PATIENCE);
        for longest in [300, 3600] {
            assert!(patience(&[taking(30), taking(longest), taking(1)]) > Duration::from_secs(longest));
        }
    }
}
