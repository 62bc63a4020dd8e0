//! The gateway's server: requests go through the idempotency layer to the upstream.
//!
//! A connection may outlive a reload. So each request looks up the generation of settings in force, and keeps it until its
//! response is sent.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::{CONTENT_TYPE, HOST, HeaderValue, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Request, Response};
use hyper::body::Incoming;
use ichido_http::{Failure, IdempotencyLayer, Idempotent, Problem, ProblemKind};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower_layer::Layer;
use tower_service::Service;

use super::cors::{Cors, CorsHeaders};
use super::forward::Forward;
use super::forwarded_headers::Peer;
use super::pool::UpstreamBody;
use crate::settings::Upstream;
use ichido_serve::TrustedProxies;
use ichido_serve::listener::Listener;
use ichido_serve::metrics::count_error;

/// A gRPC call needs HTTP/2 from end to end, and ends with trailers that HTTP/1.1 would lose.
const NO_GRPC: &str = "this gateway does not support gRPC: it uses HTTP/1.1 to the service";

type ResponseBody = ichido_http::ResponseBody<UpstreamBody>;

/// The gateway's listener, and the settings that its connections follow.
pub(super) struct Server {
    pub(super) listener: Listener,
    pub(super) generations: watch::Receiver<Arc<Generation>>,
}

/// Everything that decides how a request is handled. A reload replaces all of it at once.
#[derive(Debug)]
pub(super) struct Generation {
    pub(super) layer: IdempotencyLayer,
    pub(super) forward: Forward,
    pub(super) upstream: Upstream,
    pub(super) policy_path: String,
    pub(super) cors: Option<Cors>,
    pub(super) trusted_proxies: TrustedProxies,
}

impl Server {
    /// Serves until `stop`, then lets connections finish their requests for at most `drain_timeout`. Returns the deadline.
    pub(super) async fn serve(self, stop: CancellationToken, drain_timeout: Duration) -> Instant {
        let Self { listener, generations } = self;
        let is_tls = listener.tls.is_some();
        let service_for =
            move |address, _| ConnectionService::new(Client { address, is_tls }, generations.clone());
        listener.serve(service_for, stop, drain_timeout).await
    }
}

/// The service of one connection.
struct ConnectionService {
    client: Client,
    in_force: Mutex<InForce>,
}

/// The other end of a connection.
#[derive(Clone, Copy)]
struct Client {
    address: SocketAddr,
    is_tls: bool,
}

/// The generation that the last request of a connection followed.
struct InForce {
    generations: watch::Receiver<Arc<Generation>>,
    handler: Handler,
}

/// Handles the requests of one connection according to one generation.
struct Handler {
    generation: Arc<Generation>,
    layer: IdempotencyLayer,
    service: Idempotent<Forward>,
}

impl Handler {
    fn new(client: Client, generation: Arc<Generation>, layer: IdempotencyLayer) -> Self {
        let peer = Peer::new(client.address, client.is_tls, &generation.trusted_proxies);
        let service = layer.layer(generation.forward.for_peer(peer));
        Self { generation, layer, service }
    }
}

impl ConnectionService {
    fn new(client: Client, mut generations: watch::Receiver<Arc<Generation>>) -> Self {
        let generation = generations.borrow_and_update().clone();
        let layer = generation.layer.for_connection();
        let handler = Handler::new(client, generation, layer);
        Self { client, in_force: Mutex::new(InForce { generations, handler }) }
    }

    /// The generation that a request follows that has just arrived, and its service.
    fn in_force(&self) -> (Arc<Generation>, Idempotent<Forward>) {
        let mut in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        // An error means that no reload can come any more.
        if in_force.generations.has_changed().unwrap_or(false) {
            let generation = in_force.generations.borrow_and_update().clone();
            let layer = generation.layer.for_connection_of(&in_force.handler.layer);
            in_force.handler = Handler::new(self.client, generation, layer);
        }
        (in_force.handler.generation.clone(), in_force.handler.service.clone())
    }
}

impl hyper::service::Service<Request<Incoming>> for ConnectionService {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn call(&self, request: Request<Incoming>) -> ResponseFuture {
        let (generation, mut service) = self.in_force();
        let cors_headers = generation.cors.as_ref().and_then(|cors| cors.headers_for(&request));
        let response = match refusal(&request) {
            Some(problem) => Err(Some(Box::new(refuse(&service, &request, problem)))),
            None => Ok(service.call(request)),
        };
        ResponseFuture { response, generation, cors_headers }
    }
}

fn refuse<B>(
    service: &Idempotent<Forward>,
    request: &Request<B>,
    problem: Problem,
) -> Response<ResponseBody> {
    let mut response = service.refuse(request.method(), problem);
    if is_grpc(request.headers()) {
        // What a gRPC client shows its user: 12 is UNIMPLEMENTED.
        response.headers_mut().insert("grpc-status", HeaderValue::from_static("12"));
        response.headers_mut().insert("grpc-message", HeaderValue::from_static(NO_GRPC));
    }
    response
}

/// The response to a refused request, until it is taken.
type Refused = Option<Box<Response<ResponseBody>>>;

/// A response in progress. It cannot fail: failures become problems.
struct ResponseFuture {
    response: Result<<Idempotent<Forward> as Service<Request<Incoming>>>::Future, Refused>,
    generation: Arc<Generation>,
    cors_headers: Option<CorsHeaders>,
}

impl Future for ResponseFuture {
    type Output = Result<Response<ResponseBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let response = match &mut this.response {
            Ok(response) => ready!(Pin::new(response).poll(cx)),
            Err(refused) => match refused.take() {
                Some(response) => Ok(*response),
                None => return Poll::Pending,
            },
        };
        let mut response = response.unwrap_or_else(|failure| failed(&failure, &this.generation.policy_path));
        if let Some(cors_headers) = this.cors_headers.take() {
            cors_headers.apply(response.headers_mut());
        }
        count_error("gateway", response.status());
        Poll::Ready(Ok(response))
    }
}

/// Refuses tunnels, which cannot be protected, an ambiguous host, transfer codings that would be lost, and gRPC.
///
/// A request with both `Content-Length` and `Transfer-Encoding` is safe: hyper reads its chunks and then closes the
/// connection, and the request to the upstream gets a framing of our own.
fn refusal<B>(request: &Request<B>) -> Option<Problem> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, authority) = (hosts.next(), request.uri().authority());
    let named = [host.map(HeaderValue::as_bytes), authority.map(|authority| authority.as_str().as_bytes())];
    let why = if request.method() == Method::CONNECT {
        "CONNECT is not supported"
    } else if hosts.next().is_some() {
        "the request has more than one Host header"
    } else if named.into_iter().flatten().any(|host| host.contains(&b'@')) {
        "the host contains a user name or password"
    } else if !has_plain_framing(request.headers()) {
        "the only supported transfer coding is chunked"
    } else if is_grpc(request.headers()) {
        NO_GRPC
    } else {
        return None;
    };
    Some(Problem::new(ProblemKind::RequestRefused, why))
}

/// Whether the body is framed by its length or by chunks, without another coding such as `Transfer-Encoding: gzip,
/// chunked`. hyper removes the chunks, and the upstream would not know how the rest is coded.
fn has_plain_framing(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    codings.next().is_none_or(is_chunked) && codings.next().is_none()
}

/// Whether the request is a gRPC call. gRPC-Web is not: it works over HTTP/1.1.
fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.as_bytes().split_at_checked(16));
    kind.is_some_and(|(kind, rest)| {
        kind.eq_ignore_ascii_case(b"application/grpc")
            && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
    })
}

/// The response to an unkeyed request that got none from the upstream.
fn failed(failure: &Failure, policy_path: &str) -> Response<ResponseBody> {
    tracing::warn!(%failure, "no response from the upstream to an unkeyed request");
    let (kind, detail) = match failure {
        Failure::NotSent(_) => (ProblemKind::UpstreamUnreachable, "the service could not be reached"),
        Failure::TimedOut(_) => (ProblemKind::UpstreamTimeout, "the service did not respond in time"),
        Failure::Lost(_) => (ProblemKind::AnswerLost, "the response of the service was lost"),
    };
    Problem::new(kind, detail).into_response::<ResponseBody>(policy_path)
}
