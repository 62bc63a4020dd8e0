//! Forwards requests to the upstream: rewrites each request for it, and its response for the client.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONNECTION, COOKIE, EXPECT, HOST, HeaderName, HeaderValue, UPGRADE};
use http::uri::PathAndQuery;
use http::{HeaderMap, Request, Response, StatusCode, Uri, Version};
use ichido_http::{ActiveSpan, Failure, Progress, Route, strip_hop_by_hop};
use ichido_ledger::{Elapsed, lazy_timeout};
use metrics::{Histogram, histogram};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tower_service::Service;

use super::forwarded_headers::Peer;
use super::pool::{Body, Pool, UpstreamBody, is_small};
use super::tunnel::Tunnels;
use crate::settings::Upstream;
use ichido_serve::Failure as StartFailure;

/// The shortest timeout for the head of a response, counted from the last progress of the request body.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(300);
/// How much longer than the timeout of any route we wait. The layer times out keyed requests, and must come first.
const MARGIN: Duration = Duration::from_secs(5);
/// Protocols that carry HTTP requests. The layer would not see the requests in such a tunnel.
const HTTP_CARRIERS: [&str; 4] = ["h2c", "h2", "http", "tls"];

/// Forwards requests to the upstream.
#[derive(Clone, Debug)]
pub(crate) struct Forward {
    shared: Arc<Shared>,
    peer: Option<Peer>,
}

#[derive(Debug)]
struct Shared {
    pool: Arc<Pool>,
    /// Of the pool, and of those that replace it.
    permits: Arc<Semaphore>,
    /// The `Host` of requests that have none.
    host: HeaderValue,
    /// Its name in spans.
    server: String,
    prefix: String,
    response_timeout: Duration,
    latency: Histogram,
    tunnels: Tunnels,
}

impl Forward {
    /// Opens at most `connections_max` connections to the upstream at once.
    pub(crate) fn new(
        upstream: &Upstream,
        routes: &[Route],
        connections_max: usize,
    ) -> Result<Self, StartFailure> {
        let permits = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
        Self::build(upstream, routes, permits, Tunnels::default())
    }

    /// Forwards to another upstream, within the same limit of connections.
    pub(crate) fn with_upstream(&self, upstream: &Upstream, routes: &[Route]) -> Result<Self, StartFailure> {
        Self::build(upstream, routes, self.shared.permits.clone(), self.tunnels())
    }

    fn build(
        upstream: &Upstream,
        routes: &[Route],
        permits: Arc<Semaphore>,
        tunnels: Tunnels,
    ) -> Result<Self, StartFailure> {
        let invalid = |error: http::Error| StartFailure::usage(format!("gateway.upstream: {error}"));
        let shared = Shared {
            pool: Arc::new(
                Pool::new(upstream, routes.iter().filter_map(|route| route.timeout), permits.clone())
                    .map_err(invalid)?,
            ),
            permits,
            host: HeaderValue::try_from(upstream.host()).map_err(|error| invalid(error.into()))?,
            server: upstream.authority.host().to_owned(),
            prefix: upstream.prefix.clone(),
            response_timeout: response_timeout(routes),
            latency: histogram!("ichido_upstream_seconds"),
            tunnels,
        };
        Ok(Self { shared: Arc::new(shared), peer: None })
    }

    /// Forwards the requests of one client connection.
    pub(super) fn for_peer(&self, peer: Peer) -> Self {
        Self { shared: self.shared.clone(), peer: Some(peer) }
    }

    /// Keeps no idle connections any longer: another [`Forward`] has replaced this one.
    pub(super) fn retire(&self) {
        self.shared.pool.retire();
    }

    /// The upgraded connections.
    pub(super) fn tunnels(&self) -> Tunnels {
        self.shared.tunnels.clone()
    }

    fn rewrite(&self, request: &mut Request<Body>, upgrade: Option<HeaderValue>) -> Result<(), Failure> {
        let host = host_of(request);
        let headers = request.headers_mut();
        strip_hop_by_hop(headers);
        // hyper sends `100 Continue` to the client when the body is read; the upstream is not asked.
        headers.remove(EXPECT);
        join_cookies(headers);
        if let Some(protocol) = upgrade {
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(UPGRADE, protocol);
        }
        if let Some(peer) = &self.peer {
            peer.set_headers(headers, host.as_ref());
        }
        headers.insert(HOST, host.unwrap_or_else(|| self.shared.host.clone()));
        *request.version_mut() = Version::HTTP_11;
        let is_path = request.uri().authority().is_none() && request.uri().scheme().is_none();
        let path = match request.uri().path_and_query() {
            Some(_) if is_path && self.shared.prefix.is_empty() => return Ok(()),
            Some(path) if self.shared.prefix.is_empty() => path.clone(),
            path => {
                let path = path.map_or("/", PathAndQuery::as_str);
                let path = format!("{}{path}", self.shared.prefix).parse();
                path.map_err(|error: http::uri::InvalidUri| Failure::NotSent(error.into()))?
            }
        };
        *request.uri_mut() = Uri::from(path);
        Ok(())
    }

    async fn send(self, mut request: Request<Body>) -> Result<Response<UpstreamBody>, Failure> {
        let upgrade = requested_upgrade(&request);
        let client_side = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
        self.rewrite(&mut request, upgrade)?;
        let span = request.extensions_mut().remove::<ActiveSpan>().map(|span| {
            let method = request.method().clone();
            span.call(method.as_str(), &self.shared.server, request.headers_mut())
        });
        let started = Instant::now();
        let response = self.shared.pool.send(request).await;
        self.shared.latency.record(started.elapsed());
        if let Some(span) = span {
            span.end(match &response {
                Ok(response) => Ok(response.status()),
                Err(failure) => Err(failure.cause().to_string()),
            });
        }
        let mut response = response?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let client_side = client_side.ok_or_else(Failure::unrequested_upgrade)?;
            let upstream_side = hyper::upgrade::on(&mut response);
            response.body_mut().detach();
            self.shared.tunnels.open(client_side, upstream_side);
            return Ok(response);
        }
        strip_hop_by_hop(response.headers_mut());
        // The response of an HTTP/1.0 upstream must not downgrade ours.
        *response.version_mut() = Version::HTTP_11;
        Ok(response)
    }
}

impl Service<Request<Body>> for Forward {
    type Response = Response<UpstreamBody>;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Response<UpstreamBody>, Failure>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let forward = self.clone();
        Box::pin(async move {
            let timeout = forward.shared.response_timeout;
            let progress = if is_small(request.body()) { None } else { request.body_mut().progress() };
            // Pinned here because the future is too large to move.
            let sending = pin!(forward.send(request));
            let response = timeout_without_progress(timeout, progress, sending).await;
            response.unwrap_or_else(|_| Err(Failure::TimedOut("the service timed out".into())))
        })
    }
}

/// Waits for a response. The timeout starts again whenever some of the request body was sent meanwhile: a long upload may
/// take its time.
async fn timeout_without_progress<F: Future>(
    timeout: Duration,
    progress: Option<Progress>,
    mut sending: Pin<&mut F>,
) -> Result<F::Output, Elapsed> {
    loop {
        match lazy_timeout(timeout, sending.as_mut()).await {
            Err(Elapsed) if progress.as_ref().is_some_and(Progress::moved) => {}
            result @ (Ok(_) | Err(Elapsed)) => return result,
        }
    }
}

fn response_timeout(routes: &[Route]) -> Duration {
    let longest = routes.iter().filter_map(|route| route.timeout).max();
    longest.map_or(RESPONSE_TIMEOUT, |longest| RESPONSE_TIMEOUT.max(longest.saturating_add(MARGIN)))
}

/// The authority in the request target takes precedence over `Host` (RFC 9112, section 3.2.2), as in HTTP/2.
fn host_of<B>(request: &Request<B>) -> Option<HeaderValue> {
    match request.uri().authority() {
        Some(authority) => HeaderValue::try_from(authority.as_str()).ok(),
        None => request.headers().get(HOST).cloned(),
    }
}

/// HTTP/2 may split cookies into several fields; HTTP/1.1 has one field for all of them (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
    let (Some(first), Some(second)) = (lines.next(), lines.next()) else { return };
    let all: Vec<_> = [first, second].into_iter().chain(lines).collect();
    if let Ok(value) = HeaderValue::from_bytes(&all.join(&b"; "[..])) {
        headers.insert(COOKIE, value);
    }
}

/// The protocols that a request asks to upgrade to, without those that would carry requests past the layer.
fn requested_upgrade<B>(request: &Request<B>) -> Option<HeaderValue> {
    let headers = request.headers();
    if request.version() != Version::HTTP_11 || !headers.contains_key(UPGRADE) {
        return None;
    }
    if !list_items(headers, CONNECTION).any(|name| name.eq_ignore_ascii_case("upgrade")) {
        return None;
    }
    let carries_http = |protocol: &str| {
        let name = protocol.split('/').next().unwrap_or(protocol);
        HTTP_CARRIERS.iter().any(|carrier| name.trim().eq_ignore_ascii_case(carrier))
    };
    let allowed = list_items(headers, UPGRADE).filter(|name| !name.is_empty() && !carries_http(name));
    let allowed: Vec<_> = allowed.collect();
    HeaderValue::try_from(allowed.join(", ")).ok().filter(|value| !value.is_empty())
}

/// The items of a comma-separated header.
fn list_items(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_upload_that_makes_progress_does_not_time_out() {
        let (progress, started) = (Progress::default(), Instant::now());
        let upload = async {
            for _ in 0..5 {
                tokio::time::sleep(RESPONSE_TIMEOUT * 2 / 3).await;
                progress.note();
            }
        };
        let uploaded = timeout_without_progress(RESPONSE_TIMEOUT, Some(progress.clone()), pin!(upload)).await;
        assert_eq!((uploaded, started.elapsed().as_secs()), (Ok(()), (RESPONSE_TIMEOUT * 10 / 3).as_secs()));
        for progress in [None, Some(Progress::default())] {
            let started = Instant::now();
            let silence = std::future::pending::<()>();
            assert_eq!(
                timeout_without_progress(RESPONSE_TIMEOUT, progress, pin!(silence)).await,
                Err(Elapsed)
            );
            assert!(started.elapsed() < RESPONSE_TIMEOUT + MARGIN);
        }
    }

    fn upgrade_to(upgrade: &[&str]) -> Option<String> {
        let mut request = Request::get("/").header(CONNECTION, "keep-alive, Upgrade");
        for line in upgrade {
            request = request.header(UPGRADE, *line);
        }
        requested_upgrade(&request.body(()).unwrap()).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_protocol_that_carries_requests_is_not_upgraded_to() {
        for upgrade in [&["h2c"][..], &["H2C, h2"], &["HTTP/2.0"], &["TLS/1.2", "http/1.1"], &[""], &[]] {
            assert_eq!(upgrade_to(upgrade), None, "{upgrade:?}");
        }
        assert_eq!(upgrade_to(&["WebSocket"]).as_deref(), Some("WebSocket"));
        assert_eq!(upgrade_to(&["h2c, websocket", "echo/1"]).as_deref(), Some("websocket, echo/1"));
    }

    #[test]
    fn the_response_timeout_exceeds_the_timeout_of_every_route() {
        let with_timeout =
            |seconds| Route { timeout: Some(Duration::from_secs(seconds)), ..Route::default() };
        assert_eq!(response_timeout(&[with_timeout(30), Route::default()]), RESPONSE_TIMEOUT);
        for longest in [300, 3600] {
            assert!(
                response_timeout(&[with_timeout(30), with_timeout(longest), with_timeout(1)])
                    > Duration::from_secs(longest)
            );
        }
    }
}
