//! Sends one request to the receiver.
//!
//! No redirects, no built-in retries, no proxy, no cookies. One timeout covers connecting, sending and reading. At most
//! 64 KiB of a response are read.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::io;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT};
use http_body::{Body, Frame, SizeHint};
use ichido_settings::Invalid;
use reqwest::{Client, redirect, retry};
use secrecy::ExposeSecret;

use crate::endpoint::Endpoint;
use crate::exchange::{BodySent, Exchange, Response, TransportError, TransportErrorKind};
use crate::invalid::invalid;
use crate::request::Request;
use crate::tls_roots::TlsRoots;
use crate::token::Token;

/// The most that is read of a response body.
const RESPONSE_BYTES_MAX: usize = 64 << 10;
/// The longest that connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Many servers close idle connections after five seconds.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3);
/// How much of a body is passed to the connection at once. What the connection has not asked for was not sent.
const CHUNK_BYTES: usize = 64 << 10;

/// How requests are made.
#[derive(Clone, Debug)]
pub struct Options {
    /// The URL.
    pub endpoint: Endpoint,
    /// The timeout of one request, from connecting to reading the response.
    pub timeout: Duration,
    /// The `User-Agent` header.
    pub user_agent: String,
    /// The most requests at a time. As many idle connections are kept.
    pub concurrency: NonZeroUsize,
}

/// Sends requests to a receiver.
#[async_trait::async_trait]
pub trait Transport: std::fmt::Debug + Send + Sync {
    /// Sends one request.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the request may have been processed.
    async fn post(&self, request: &Request) -> Exchange;

    /// The token, to redact it and to notice when it changes.
    fn token(&self) -> &Token;
}

/// An HTTP client for one destination.
#[derive(Debug)]
pub struct HttpTransport {
    client: Client,
    token: Token,
    options: Options,
}

impl HttpTransport {
    /// Prepares a client without connecting. The error is one line that names the setting.
    pub fn new(options: Options, roots: &TlsRoots, token: Token) -> Result<Self, Invalid> {
        let agent = HeaderValue::from_str(&options.user_agent)
            .map_err(|_| invalid("user_agent", "contains characters that are not allowed in a header"))?;
        let mut tls =
            roots.client().map_err(|error| invalid("ca_file", format!("cannot set up TLS: {error}")))?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .https_only(!options.endpoint.is_plain_http())
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT.min(options.timeout))
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(options.concurrency.get())
            .default_headers([(USER_AGENT, agent)].into_iter().collect())
            .build()
            .map_err(|error| {
                let cause = ichido_core::error_chain(&error.without_url());
                invalid("endpoint", format!("cannot set up the HTTP client: {cause}"))
            })?;
        Ok(Self { client, token, options })
    }

    async fn exchange(
        &self,
        request: &Request,
        handed_over: &Arc<AtomicBool>,
    ) -> Result<Response, reqwest::Error> {
        let token = self.token.current();
        let mut bearer = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()))
            .unwrap_or(HeaderValue::from_static("Bearer"));
        bearer.set_sensitive(true);
        let mut post = self
            .client
            .post(self.options.endpoint.url().clone())
            .header(CONTENT_TYPE, "application/json")
            .header("Idempotency-Key", request.idempotency_key())
            .header(AUTHORIZATION, bearer)
            .body(reqwest::Body::wrap(TrackedBody {
                rest: request.body.clone(),
                handed_over: handed_over.clone(),
            }));
        if request.gzip {
            post = post.header(CONTENT_ENCODING, "gzip");
        }
        let mut response = post.send().await?;
        let status = response.status().as_u16();
        let retry_after =
            response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (mut body, mut cut) = (Vec::new(), false);
        while let Some(chunk) = response.chunk().await? {
            let room = RESPONSE_BYTES_MAX - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                cut = true;
                break;
            }
        }
        Ok(Response { status, retry_after, body, cut })
    }
}

#[async_trait::async_trait]
impl Transport for HttpTransport {
    async fn post(&self, request: &Request) -> Exchange {
        let handed_over = Arc::new(AtomicBool::new(false));
        let ended = tokio::time::timeout(self.options.timeout, self.exchange(request, &handed_over)).await;
        let sent = if handed_over.load(Relaxed) { BodySent::Complete } else { BodySent::Partial };
        match ended {
            Ok(Ok(response)) => Exchange::Responded(response),
            Ok(Err(error)) => Exchange::Failed(to_transport_error(error, sent)),
            Err(_) => Exchange::Failed(TransportError {
                kind: TransportErrorKind::Timeout,
                message: format!("timeout: no response within {} ms", self.options.timeout.as_millis()),
                sent,
            }),
        }
    }

    fn token(&self) -> &Token {
        &self.token
    }
}

/// A body that records whether all of it was passed to the connection.
///
/// A client cannot know more: what the connection has accepted may still be in a buffer when it breaks.
struct TrackedBody {
    rest: Bytes,
    handed_over: Arc<AtomicBool>,
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.rest.len().min(CHUNK_BYTES);
        let chunk = self.rest.split_to(length);
        if self.rest.is_empty() {
            self.handed_over.store(true, Relaxed);
        }
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

fn to_transport_error(error: reqwest::Error, sent: BodySent) -> TransportError {
    let error = error.without_url();
    let kind = match () {
        () if is_tls(&error) => TransportErrorKind::Tls,
        () if error.is_timeout() => TransportErrorKind::Timeout,
        () => TransportErrorKind::Network,
    };
    let word = match kind {
        TransportErrorKind::Network => "network",
        TransportErrorKind::Timeout => "timeout",
        TransportErrorKind::Tls => "tls",
    };
    TransportError { kind, message: format!("{word}: {}", ichido_core::error_chain(&error)), sent }
}

/// Whether the server is there but could not be trusted or understood.
fn is_tls(error: &(dyn StdError + 'static)) -> bool {
    if error.is::<rustls::Error>() {
        return true;
    }
    if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref)
        && is_tls(inner)
    {
        return true;
    }
    error.source().is_some_and(is_tls)
}
