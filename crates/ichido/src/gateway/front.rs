//! The front door: accepts connections, speaks HTTP/1.1 and HTTP/2, with or without TLS, and closes in good order.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use ichido_http::{AnswerBody, Failure, Idempotent, Problem, ProblemKind};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::forward::{Forward, Peer};

/// How long a client may take for the head of a request, or keep a connection without one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest head of a request, and the most fields in it.
const HEAD_BYTES: usize = 64 * 1024;
const HEAD_FIELDS: usize = 128;
/// After an accept fails for lack of something (files, memory), it is tried again after this.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The gateway's listener.
pub(super) struct Front {
    pub(super) listener: TcpListener,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) forward: Forward,
    pub(super) layer: ichido_http::IdempotencyLayer,
    pub(super) policy_path: Arc<str>,
}

impl Front {
    /// Serves until told to stop, then lets every connection end its request, for at most `grace`.
    pub(super) async fn serve(self, stop: CancellationToken, grace: Duration) {
        let builder = Arc::new(builder());
        let graceful = GracefulShutdown::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, address)) => self.welcome(stream, address, &builder, &graceful),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(self.listener);
        if tokio::time::timeout(grace, graceful.shutdown()).await.is_err() {
            tracing::warn!("some connections did not end in time and are cut");
        }
    }

    fn welcome(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        builder: &Arc<Builder<TokioExecutor>>,
        graceful: &GracefulShutdown,
    ) {
        let _ = stream.set_nodelay(true);
        let peer = Peer::new(address, self.tls.is_some());
        let door = Door {
            service: tower_layer::Layer::layer(&self.layer, self.forward.of(peer)),
            policy_path: self.policy_path.clone(),
        };
        let (builder, watcher) = (builder.clone(), graceful.watcher());
        match self.tls.clone() {
            None => drop(tokio::spawn(converse(stream, door, builder, watcher))),
            Some(acceptor) => drop(tokio::spawn(async move {
                match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => converse(stream, door, builder, watcher).await,
                    Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                    Err(_) => tracing::debug!("a TLS handshake took too long"),
                }
            })),
        }
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEAD_FIELDS)
        .pipeline_flush(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(HEAD_BYTES).unwrap_or(u32::MAX))
        .keep_alive_interval(HEAD_TIMEOUT);
    builder
}

async fn converse<I>(
    io: I,
    door: Door,
    builder: Arc<Builder<TokioExecutor>>,
    watcher: hyper_util::server::graceful::Watcher,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(io), door).into_owned();
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "a connection broke");
    }
}

/// One connection's service.
#[derive(Clone)]
struct Door {
    service: Idempotent<Forward>,
    policy_path: Arc<str>,
}

impl hyper::service::Service<Request<Incoming>> for Door {
    type Response = Response<AnswerBody<Incoming>>;
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
    type Output = Result<Response<AnswerBody<Incoming>>, Infallible>;

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

/// A tunnel is nothing that could be protected. (A request with two framings is read by its chunks, and its connection
/// ends with it: hyper sees to that, and what goes on to the service has a framing of our own.)
fn refusal(request: &Request<Incoming>) -> Option<Problem> {
    (request.method() == Method::CONNECT)
        .then(|| Problem::new(ProblemKind::RequestRefused, "CONNECT is not offered here"))
}

/// A request that passed unkeyed and got no answer.
fn unanswered(failure: &Failure, policy_path: &str) -> Response<AnswerBody<Incoming>> {
    tracing::warn!(%failure, "the service gave no answer to an unkeyed request");
    let (kind, detail) = match failure {
        Failure::NotSent(_) => (ProblemKind::UpstreamUnreachable, "the service could not be reached"),
        Failure::TimedOut(_) => (ProblemKind::UpstreamTimeout, "the service did not answer in time"),
        Failure::Lost(_) => (ProblemKind::AnswerLost, "the answer of the service was lost"),
    };
    Problem::new(kind, detail).into_response::<AnswerBody<Incoming>>(policy_path)
}
