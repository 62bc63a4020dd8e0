//! The gateway's server: requests go through the idempotency layer to the upstream.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::{CONTENT_TYPE, HOST, HeaderValue, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Request, Response};
use hyper::body::Incoming;
use ichido_http::{Failure, IdempotencyLayer, Idempotent, Problem, ProblemKind};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower_layer::Layer;
use tower_service::Service;

use super::cors::{Cors, CorsHeaders};
use super::forward::Forward;
use super::forwarded_headers::Peer;
use super::pool::UpstreamBody;
use crate::settings::TrustedProxies;
use ichido_serve::listener::Listener;
use ichido_serve::metrics::count_error;

/// A gRPC call needs HTTP/2 from end to end, and ends with trailers that HTTP/1.1 would lose.
const NO_GRPC: &str = "this gateway does not support gRPC: it uses HTTP/1.1 to the service";

type ResponseBody = ichido_http::ResponseBody<UpstreamBody>;

/// The gateway's listener and the services of its connections.
pub(super) struct Server {
    pub(super) listener: Listener,
    pub(super) forward: Forward,
    pub(super) layer: IdempotencyLayer,
    pub(super) policy_path: Arc<str>,
    pub(super) cors: Option<Arc<Cors>>,
    pub(super) trusted_proxies: TrustedProxies,
}

impl Server {
    /// Serves until `stop`, then lets connections finish their requests for at most `drain_timeout`. Returns the deadline.
    pub(super) async fn serve(self, stop: CancellationToken, drain_timeout: Duration) -> Instant {
        let Self { listener, forward, layer, policy_path, cors, trusted_proxies } = self;
        let is_tls = listener.tls.is_some();
        let service_for = move |address, _| ConnectionService {
            service: layer.for_connection().layer(forward.for_peer(Peer::new(
                address,
                is_tls,
                &trusted_proxies,
            ))),
            policy_path: policy_path.clone(),
            cors: cors.clone(),
        };
        listener.serve(service_for, stop, drain_timeout).await
    }
}

/// The service of one connection.
#[derive(Clone)]
struct ConnectionService {
    service: Idempotent<Forward>,
    policy_path: Arc<str>,
    cors: Option<Arc<Cors>>,
}

impl hyper::service::Service<Request<Incoming>> for ConnectionService {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn call(&self, request: Request<Incoming>) -> ResponseFuture {
        let cors_headers = self.cors.as_ref().and_then(|cors| cors.headers_for(&request));
        let response = match refusal(&request) {
            Some(problem) => Err(Some(Box::new(self.refuse(&request, problem)))),
            None => Ok(self.service.clone().call(request)),
        };
        ResponseFuture { response, policy_path: self.policy_path.clone(), cors_headers }
    }
}

impl ConnectionService {
    fn refuse<B>(&self, request: &Request<B>, problem: Problem) -> Response<ResponseBody> {
        let mut response = self.service.refuse(request.method(), problem);
        if is_grpc(request.headers()) {
            // What a gRPC client shows its user: 12 is UNIMPLEMENTED.
            response.headers_mut().insert("grpc-status", HeaderValue::from_static("12"));
            response.headers_mut().insert("grpc-message", HeaderValue::from_static(NO_GRPC));
        }
        response
    }
}

/// The response to a refused request, until it is taken.
type Refused = Option<Box<Response<ResponseBody>>>;

/// A response in progress. It cannot fail: failures become problems.
struct ResponseFuture {
    response: Result<<Idempotent<Forward> as Service<Request<Incoming>>>::Future, Refused>,
    policy_path: Arc<str>,
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
        let mut response = response.unwrap_or_else(|failure| failed(&failure, &this.policy_path));
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
