//! The gateway's front door: requests go through the layer to the service behind.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::{CONTENT_TYPE, HOST, HeaderValue, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Request, Response};
use hyper::body::Incoming;
use ichido_http::{Failure, Idempotent, Problem, ProblemKind, ResponseBody};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::cors::{Cors, CrossOrigin};
use super::forward::Forward;
use super::forwarded_headers::Peer;
use super::pool::Answer;
use crate::settings::TrustedProxies;
use ichido_serve::listener::{Limits, Listener};
use ichido_serve::metrics::count_error;

/// A gRPC call needs HTTP/2 from end to end, and ends with trailers that HTTP/1.1 would lose.
const NO_GRPC: &str = "this gateway does not pass gRPC on: it speaks HTTP/1.1 to the service";

/// The gateway's listener.
pub(super) struct Front {
    pub(super) listener: TcpListener,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) forward: Forward,
    pub(super) layer: ichido_http::IdempotencyLayer,
    pub(super) policy_path: Arc<str>,
    pub(super) cors: Option<Arc<Cors>>,
    pub(super) trusted_proxies: TrustedProxies,
    pub(super) limits: Limits,
}

impl Front {
    /// Serves until `stop`, then lets connections finish their requests for at most `drain_timeout`. Returns the deadline.
    pub(super) async fn serve(self, stop: CancellationToken, drain_timeout: Duration) -> Instant {
        let Self { listener, tls, forward, layer, policy_path, cors, trusted_proxies, limits } = self;
        let is_tls = tls.is_some();
        let service_for = move |address, _| Door {
            service: tower_layer::Layer::layer(
                &layer.for_connection(),
                forward.of(Peer::new(address, is_tls, &trusted_proxies)),
            ),
            policy_path: policy_path.clone(),
            cors: cors.clone(),
        };
        let listener = Listener { name: "gateway", socket: listener, tls, limits };
        listener.serve(service_for, stop, drain_timeout).await
    }
}

/// One connection's service.
#[derive(Clone)]
struct Door {
    service: Idempotent<Forward>,
    policy_path: Arc<str>,
    cors: Option<Arc<Cors>>,
}

impl hyper::service::Service<Request<Incoming>> for Door {
    type Response = Response<ResponseBody<Answer>>;
    type Error = Infallible;
    type Future = Answered;

    fn call(&self, request: Request<Incoming>) -> Answered {
        let cross_origin = self.cors.as_ref().and_then(|cors| cors.of(&request));
        let answering = match refusal(&request) {
            Some(problem) => Err(Some(Box::new(self.refuse(&request, problem)))),
            None => Ok(self.service.clone().call(request)),
        };
        Answered { answering, policy_path: self.policy_path.clone(), cross_origin }
    }
}

impl Door {
    fn refuse<B>(&self, request: &Request<B>, problem: Problem) -> Response<ResponseBody<Answer>> {
        let mut response = self.service.refuse(request.method(), problem);
        if is_grpc(request.headers()) {
            // What a gRPC client shows its user: 12 is UNIMPLEMENTED.
            response.headers_mut().insert("grpc-status", HeaderValue::from_static("12"));
            response.headers_mut().insert("grpc-message", HeaderValue::from_static(NO_GRPC));
        }
        response
    }
}

/// Taken when it is given.
type Refusal = Option<Box<Response<ResponseBody<Answer>>>>;

/// The future of an answer that does not fail: what goes wrong is told to the client.
struct Answered {
    answering: Result<<Idempotent<Forward> as Service<Request<Incoming>>>::Future, Refusal>,
    policy_path: Arc<str>,
    cross_origin: Option<CrossOrigin>,
}

impl Future for Answered {
    type Output = Result<Response<ResponseBody<Answer>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let answer = match &mut this.answering {
            Ok(answering) => ready!(Pin::new(answering).poll(cx)),
            Err(refusal) => match refusal.take() {
                Some(response) => Ok(*response),
                None => return Poll::Pending,
            },
        };
        let mut answer = answer.unwrap_or_else(|failure| unanswered(&failure, &this.policy_path));
        if let Some(cross_origin) = this.cross_origin.take() {
            cross_origin.apply(answer.headers_mut());
        }
        count_error("gateway", answer.status());
        Poll::Ready(Ok(answer))
    }
}

/// Refuses tunnels, which cannot be protected, a host that can be read in two ways, and transfer codings that would be lost
/// on the way. (A request with two framings is read by its chunks, and its connection ends with it: hyper sees to that, and
/// what goes on to the service has a framing of our own.)
fn refusal<B>(request: &Request<B>) -> Option<Problem> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, authority) = (hosts.next(), request.uri().authority());
    let named = [host.map(HeaderValue::as_bytes), authority.map(|authority| authority.as_str().as_bytes())];
    let why = if request.method() == Method::CONNECT {
        "CONNECT is not offered here"
    } else if hosts.next().is_some() {
        "the request has more than one Host field"
    } else if named.into_iter().flatten().any(|host| host.contains(&b'@')) {
        "the host holds a user name or password"
    } else if !is_plain(request.headers()) {
        "the only transfer coding that this gateway takes is chunked"
    } else if is_grpc(request.headers()) {
        NO_GRPC
    } else {
        return None;
    };
    Some(Problem::new(ProblemKind::RequestRefused, why))
}

/// Whether a body is framed by its length or by chunks, and not coded further (`Transfer-Encoding: gzip, chunked`): hyper
/// takes the chunks off, and nobody would know what is left.
fn is_plain(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    codings.next().is_none_or(is_chunked) && codings.next().is_none()
}

/// Whether a request is a gRPC call. gRPC-Web is not: it works over HTTP/1.1.
fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.as_bytes().split_at_checked(16));
    kind.is_some_and(|(kind, rest)| {
        kind.eq_ignore_ascii_case(b"application/grpc")
            && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
    })
}

/// A request that passed unkeyed and got no answer.
fn unanswered(failure: &Failure, policy_path: &str) -> Response<ResponseBody<Answer>> {
    tracing::warn!(%failure, "the service gave no answer to an unkeyed request");
    let (kind, detail) = match failure {
        Failure::NotSent(_) => (ProblemKind::UpstreamUnreachable, "the service could not be reached"),
        Failure::TimedOut(_) => (ProblemKind::UpstreamTimeout, "the service did not answer in time"),
        Failure::Lost(_) => (ProblemKind::AnswerLost, "the answer of the service was lost"),
    };
    Problem::new(kind, detail).into_response::<ResponseBody<Answer>>(policy_path)
}
