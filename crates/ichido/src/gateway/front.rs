//! The gateway's front door: requests go through the layer to the service behind.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::{HOST, HeaderValue};
use http::{Method, Request, Response};
use hyper::body::Incoming;
use ichido_http::{AnswerBody, Failure, Idempotent, Problem, ProblemKind};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::forward::{Forward, Peer};
use super::pool::Answer;
use crate::front::Limits;

/// The gateway's listener.
pub(super) struct Front {
    pub(super) listener: TcpListener,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) forward: Forward,
    pub(super) layer: ichido_http::IdempotencyLayer,
    pub(super) policy_path: Arc<str>,
    pub(super) limits: Limits,
}

impl Front {
    /// Serves until told to stop, then lets every connection end its request, for at most `grace`.
    pub(super) async fn serve(self, stop: CancellationToken, grace: Duration) {
        let Self { listener, tls, forward, layer, policy_path, limits } = self;
        let is_tls = tls.is_some();
        let welcome = move |address| Door {
            service: tower_layer::Layer::layer(
                &layer.for_connection(),
                forward.of(Peer::new(address, is_tls)),
            ),
            policy_path: policy_path.clone(),
        };
        crate::front::Front { listener, tls, limits }.serve(welcome, stop, grace).await;
    }
}

/// One connection's service.
#[derive(Clone)]
struct Door {
    service: Idempotent<Forward>,
    policy_path: Arc<str>,
}

impl hyper::service::Service<Request<Incoming>> for Door {
    type Response = Response<AnswerBody<Answer>>;
    type Error = Infallible;
    type Future = Answered;

    fn call(&self, request: Request<Incoming>) -> Answered {
        let answering = match refusal(&request) {
            Some(problem) => Err(Some(problem)),
            None => Ok(self.service.clone().call(request)),
        };
        Answered { answering, policy_path: self.policy_path.clone() }
    }
}

/// The future of an answer that does not fail: what goes wrong is told to the client.
struct Answered {
    answering: Result<<Idempotent<Forward> as Service<Request<Incoming>>>::Future, Option<Problem>>,
    policy_path: Arc<str>,
}

impl Future for Answered {
    type Output = Result<Response<AnswerBody<Answer>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let answer = match &mut this.answering {
            Ok(answering) => ready!(Pin::new(answering).poll(cx)),
            Err(refusal) => match refusal.take() {
                Some(problem) => Ok(problem.into_response(&this.policy_path)),
                None => return Poll::Pending,
            },
        };
        Poll::Ready(Ok(answer.unwrap_or_else(|failure| unanswered(&failure, &this.policy_path))))
    }
}

/// A tunnel is nothing that could be protected, and a host that can be read in two ways is none. (A request with two
/// framings is read by its chunks, and its connection ends with it: hyper sees to that, and what goes on to the service
/// has a framing of our own.)
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
    } else {
        return None;
    };
    Some(Problem::new(ProblemKind::RequestRefused, why))
}

/// A request that passed unkeyed and got no answer.
fn unanswered(failure: &Failure, policy_path: &str) -> Response<AnswerBody<Answer>> {
    tracing::warn!(%failure, "the service gave no answer to an unkeyed request");
    let (kind, detail) = match failure {
        Failure::NotSent(_) => (ProblemKind::UpstreamUnreachable, "the service could not be reached"),
        Failure::TimedOut(_) => (ProblemKind::UpstreamTimeout, "the service did not answer in time"),
        Failure::Lost(_) => (ProblemKind::AnswerLost, "the answer of the service was lost"),
    };
    Problem::new(kind, detail).into_response::<AnswerBody<Answer>>(policy_path)
}
