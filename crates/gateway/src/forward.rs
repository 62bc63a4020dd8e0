//! The way to the service behind: what is changed in a request before it goes there, and in its answer.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use http::header::{CONNECTION, COOKIE, EXPECT, HOST, HeaderName, HeaderValue, UPGRADE};
use http::uri::PathAndQuery;
use http::{HeaderMap, Request, Response, StatusCode, Uri, Version};
use ichido_http::{Failure, Progress, Route, strip_hop_by_hop};
use ichido_ledger::{Elapsed, lazy_timeout};
use metrics::{Histogram, histogram};
use tower_service::Service;

use super::forwarded_headers::Peer;
use super::pool::{Answer, Body, Pool, is_small};
use super::tunnel::Tunnels;
use crate::settings::Upstream;
use ichido_serve::Failure as StartFailure;

/// How long a request waits at least for the head of its answer, once nothing more is taken of its body.
const PATIENCE: Duration = Duration::from_secs(300);
/// A keyed request is given up by the layer, whose limit is the route's: this one comes later.
const MARGIN: Duration = Duration::from_secs(5);
/// Protocols that carry requests. What is sent through such a tunnel would be seen by nobody here.
const CARRIERS: [&str; 4] = ["h2c", "h2", "http", "tls"];

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
    tunnels: Tunnels,
}

impl Forward {
    /// At most so many connections to the service are open at once.
    pub(crate) fn new(
        upstream: &Upstream,
        routes: &[Route],
        connections_max: usize,
    ) -> Result<Self, StartFailure> {
        let wrong = |error: http::Error| StartFailure::usage(format!("gateway.upstream: {error}"));
        let shared = Shared {
            pool: Arc::new(
                Pool::new(upstream, routes.iter().filter_map(|route| route.timeout), connections_max)
                    .map_err(wrong)?,
            ),
            host: HeaderValue::try_from(upstream.host()).map_err(|error| wrong(error.into()))?,
            prefix: upstream.prefix.clone(),
            patience: patience(routes),
            seconds: histogram!("ichido_upstream_seconds"),
            tunnels: Tunnels::default(),
        };
        Ok(Self { shared: Arc::new(shared), peer: None })
    }

    /// The same, for the requests of one caller.
    pub(super) fn of(&self, peer: Peer) -> Self {
        Self { shared: self.shared.clone(), peer: Some(peer) }
    }

    /// The connections that changed protocols.
    pub(super) fn tunnels(&self) -> Tunnels {
        self.shared.tunnels.clone()
    }

    fn prepare(&self, request: &mut Request<Body>, upgrade: Option<HeaderValue>) -> Result<(), Failure> {
        let host = host_of(request);
        let headers = request.headers_mut();
        strip_hop_by_hop(headers);
        // Whoever reads the body tells the client to go on; the service behind is not asked.
        headers.remove(EXPECT);
        join_cookies(headers);
        if let Some(protocol) = upgrade {
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(UPGRADE, protocol);
        }
        if let Some(peer) = &self.peer {
            peer.describe(headers, host.as_ref());
        }
        headers.insert(HOST, host.unwrap_or_else(|| self.shared.host.clone()));
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
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let client_side = client_side.ok_or_else(Failure::unrequested_upgrade)?;
            let service_side = hyper::upgrade::on(&mut response);
            response.body_mut().let_go();
            self.shared.tunnels.join(client_side, service_side);
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
    type Future = Pin<Box<dyn Future<Output = Result<Response<Answer>, Failure>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let forward = self.clone();
        Box::pin(async move {
            let patience = forward.shared.patience;
            let progress = if is_small(request.body()) { None } else { request.body_mut().progress() };
            // In its place from the beginning: it is too large to be moved about.
            let sending = pin!(forward.send(request));
            let answered = while_it_moves(patience, progress, sending).await;
            answered.unwrap_or_else(|_| Err(Failure::TimedOut("the service timed out".into())))
        })
    }
}

/// Waits for an answer, and anew each time that some of the body was taken meanwhile: an upload may take its time.
async fn while_it_moves<F: Future>(
    patience: Duration,
    progress: Option<Progress>,
    mut sending: Pin<&mut F>,
) -> Result<F::Output, Elapsed> {
    loop {
        match lazy_timeout(patience, sending.as_mut()).await {
            Err(Elapsed) if progress.as_ref().is_some_and(Progress::moved) => {}
            answered @ (Ok(_) | Err(Elapsed)) => return answered,
        }
    }
}

fn patience(routes: &[Route]) -> Duration {
    let longest = routes.iter().filter_map(|route| route.timeout).max();
    longest.map_or(PATIENCE, |longest| PATIENCE.max(longest.saturating_add(MARGIN)))
}

/// A target that names a host goes before the field (RFC 9112, 3.2.2), as it does in HTTP/2.
fn host_of<B>(request: &Request<B>) -> Option<HeaderValue> {
    match request.uri().authority() {
        Some(authority) => HeaderValue::try_from(authority.as_str()).ok(),
        None => request.headers().get(HOST).cloned(),
    }
}

/// HTTP/2 may send cookies one by one; HTTP/1 has one field for all of them (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
    let (Some(first), Some(second)) = (lines.next(), lines.next()) else { return };
    let all: Vec<_> = [first, second].into_iter().chain(lines).collect();
    if let Ok(value) = HeaderValue::from_bytes(&all.join(&b"; "[..])) {
        headers.insert(COOKIE, value);
    }
}

/// The protocols that a request wants to change to, without those that would carry requests past us.
fn upgrade_of<B>(request: &Request<B>) -> Option<HeaderValue> {
    let headers = request.headers();
    if request.version() != Version::HTTP_11 || !headers.contains_key(UPGRADE) {
        return None;
    }
    if !words(headers, CONNECTION).any(|name| name.eq_ignore_ascii_case("upgrade")) {
        return None;
    }
    let carries = |protocol: &str| {
        let name = protocol.split('/').next().unwrap_or(protocol);
        CARRIERS.iter().any(|carrier| name.trim().eq_ignore_ascii_case(carrier))
    };
    let others: Vec<_> = words(headers, UPGRADE).filter(|word| !word.is_empty() && !carries(word)).collect();
    HeaderValue::try_from(others.join(", ")).ok().filter(|value| !value.is_empty())
}

fn words(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_upload_may_take_its_time_as_long_as_it_moves() {
        let (progress, started) = (Progress::default(), Instant::now());
        let upload = async {
            for _ in 0..5 {
                tokio::time::sleep(PATIENCE * 2 / 3).await;
                progress.note();
            }
        };
        let answered = while_it_moves(PATIENCE, Some(progress.clone()), pin!(upload)).await;
        assert_eq!((answered, started.elapsed().as_secs()), (Ok(()), (PATIENCE * 10 / 3).as_secs()));
        for progress in [None, Some(Progress::default())] {
            let started = Instant::now();
            let silence = std::future::pending::<()>();
            assert_eq!(while_it_moves(PATIENCE, progress, pin!(silence)).await, Err(Elapsed));
            assert!(started.elapsed() < PATIENCE + MARGIN);
        }
    }

    fn asking(upgrade: &[&str]) -> Option<String> {
        let mut request = Request::get("/").header(CONNECTION, "keep-alive, Upgrade");
        for line in upgrade {
            request = request.header(UPGRADE, *line);
        }
        upgrade_of(&request.body(()).unwrap()).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn no_protocol_that_carries_requests_is_changed_to() {
        for upgrade in [&["h2c"][..], &["H2C, h2"], &["HTTP/2.0"], &["TLS/1.2", "http/1.1"], &[""], &[]] {
            assert_eq!(asking(upgrade), None, "{upgrade:?}");
        }
        assert_eq!(asking(&["WebSocket"]).as_deref(), Some("WebSocket"));
        assert_eq!(asking(&["h2c, websocket", "echo/1"]).as_deref(), Some("websocket, echo/1"));
    }

    #[test]
    fn no_route_is_more_patient_than_the_way_to_the_service() {
        let taking = |seconds| Route { timeout: Some(Duration::from_secs(seconds)), ..Route::default() };
        assert_eq!(patience(&[taking(30), Route::default()]), PATIENCE);
        for longest in [300, 3600] {
            assert!(patience(&[taking(30), taking(longest), taking(1)]) > Duration::from_secs(longest));
        }
    }
}
