//! Serves one connection.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::request_counter::{Counted, RequestCounts};
use super::{Admission, Limits, Protocol};

/// The longest request head. It may have 100 fields, which is hyper's default: with any other number hyper allocates
/// memory for the fields of each request.
const HEAD_BYTES_MAX: u32 = 64 * 1024;
/// Streams that a client may reset before they reach the service; then its connection is closed.
const PENDING_RESETS_MAX: usize = 20;
/// Streams that we may reset because of what a client sends; then its connection is closed.
const LOCAL_RESETS_MAX: usize = 128;
/// How long a client that cancels most of its requests may take to close its connection.
const ABUSE_CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves connections with the limits of a listener.
pub(super) struct Server {
    builder: Builder<TokioExecutor>,
    head_timeout: Duration,
}

impl Server {
    pub(super) fn new(limits: &Limits, admission: Admission) -> Self {
        let mut builder = Builder::new(TokioExecutor::new());
        // Most responses are small: copying the body behind its head is cheaper than writing two buffers.
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head_timeout)
            .max_buf_size(HEAD_BYTES_MAX as usize)
            .keep_alive(admission == Admission::Any)
            .writev(false);
        match limits.protocol {
            Protocol::Http1 => builder = builder.http1_only(),
            Protocol::Auto { streams_max } => {
                builder
                    .http2()
                    .timer(TokioTimer::new())
                    .max_concurrent_streams(streams_max)
                    .max_header_list_size(HEAD_BYTES_MAX)
                    .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
                    .max_local_error_reset_streams(LOCAL_RESETS_MAX)
                    .keep_alive_interval(limits.head_timeout);
            }
        }
        Self { builder, head_timeout: limits.head_timeout }
    }

    /// Serves one connection until it is closed. After `stop`, only requests in progress are finished.
    pub(super) async fn serve<I, S, B>(&self, io: I, service: S, stop: CancellationToken)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
        B: http_body::Body<Data: Send, Error: Into<Box<dyn StdError + Send + Sync>>> + Send + 'static,
    {
        let counts = Arc::new(RequestCounts::default());
        let service = Counted { service, counts: counts.clone() };
        let mut connection =
            pin!(self.builder.serve_connection_with_upgrades(TokioIo::new(io), service).into_owned());
        let mut stopped = pin!(stop.cancelled());
        // hyper's own timeout for a head starts only when the version of HTTP is known.
        let mut timeout = Some(Box::pin(tokio::time::sleep(self.head_timeout)));
        let (mut is_closing, mut is_abuse) = (false, false);
        let finished = poll_fn(|cx| {
            loop {
                if let Poll::Ready(finished) = connection.as_mut().poll(cx) {
                    return Poll::Ready(Some(finished));
                }
                if is_closing || !(counts.is_abuse() || stopped.as_mut().poll(cx).is_ready()) {
                    break;
                }
                is_closing = true;
                is_abuse = counts.is_abuse();
                if is_abuse {
                    timeout = Some(Box::pin(tokio::time::sleep(ABUSE_CLOSE_TIMEOUT)));
                }
                connection.as_mut().graceful_shutdown();
            }
            match &mut timeout {
                None => Poll::Pending,
                Some(_) if !is_abuse && counts.has_started() => {
                    timeout = None;
                    Poll::Pending
                }
                Some(timeout) => timeout.as_mut().poll(cx).map(|()| None),
            }
        });
        match finished.await {
            Some(Ok(())) => {}
            Some(Err(error)) => tracing::debug!(%error, "connection failed"),
            None => tracing::debug!(
                "connection closed: no request arrived in time, or the client did not close it"
            ),
        }
        if is_abuse {
            let cancelled = counts.cancelled();
            tracing::warn!(cancelled, "closed a connection whose client cancelled most of its requests");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use bytes::Bytes;
    use http_body_util::Full;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::super::request_counter::CANCELLED_MAX;
    use super::*;

    const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

    fn server(protocol: Protocol) -> Server {
        let limits = Limits { protocol, head_timeout: HEAD_TIMEOUT, ..Limits::default() };
        Server::new(&limits, Admission::Any)
    }

    const BOTH: [Protocol; 2] = [Protocol::Http1, Protocol::Auto { streams_max: 10 }];

    /// Sends `bytes` and returns what arrives until the connection is closed, and how long that takes.
    async fn send(protocol: Protocol, bytes: &[u8]) -> (String, Duration) {
        let (mut ours, theirs) = tokio::io::duplex(4096);
        let service = hyper::service::service_fn(|_: Request<Incoming>| async {
            tokio::time::sleep(HEAD_TIMEOUT * 3).await;
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"hello"))))
        });
        tokio::spawn(async move { server(protocol).serve(theirs, service, CancellationToken::new()).await });
        let started = Instant::now();
        ours.write_all(bytes).await.unwrap();
        let mut received = Vec::new();
        ours.read_to_end(&mut received).await.unwrap();
        (String::from_utf8_lossy(&received).into_owned(), started.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_request_is_closed() {
        for protocol in BOTH {
            for bytes in ["", "P", "PRI * HTTP/2.0\r\n\r\nSM", "GET / HTT"] {
                let (received, took) = send(protocol, bytes.as_bytes()).await;
                assert!(took < HEAD_TIMEOUT * 2, "{bytes:?}: {took:?}");
                assert!(!received.contains("hello"), "{bytes:?}: {received}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_may_take_longer_than_its_head() {
        for protocol in BOTH {
            let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            let (received, took) = send(protocol, request).await;
            assert!(received.ends_with("hello") && took >= HEAD_TIMEOUT * 3, "{took:?}: {received}");
        }
    }

    #[tokio::test]
    async fn a_client_that_cancels_most_of_its_requests_is_disconnected() {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let started = Arc::new(AtomicU64::new(0));
        let counted = started.clone();
        let service = hyper::service::service_fn(move |_: Request<Incoming>| {
            counted.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>()
        });
        let server = server(Protocol::Auto { streams_max: 10 });
        tokio::spawn(async move { server.serve(theirs, service, CancellationToken::new()).await });
        let (mut sender, connection) = h2::client::handshake(ours).await.unwrap();
        let connection = tokio::spawn(connection);
        let mut sent = 0;
        while let Ok(ready) = sender.clone().ready().await {
            sender = ready;
            let request = Request::get("http://x/").body(()).unwrap();
            let Ok((_, mut stream)) = sender.send_request(request, true) else { break };
            sent += 1;
            assert!(sent <= 2 * CANCELLED_MAX, "the client is never disconnected");
            // Only a request that reached the service counts as cancelled.
            while started.load(Ordering::Relaxed) < sent && !connection.is_finished() {
                tokio::task::yield_now().await;
            }
            stream.send_reset(h2::Reason::CANCEL);
        }
        drop(sender);
        connection.await.unwrap().unwrap();
        assert!(sent >= CANCELLED_MAX, "disconnected after {sent} requests");
    }
}
