//! Requests to the collector.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ichido_core::error_chain;
use ichido_serve::tls;
use ichido_settings::Invalid;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;

use crate::settings::Otlp;

/// The most that is read of a response.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;
/// Many servers close idle connections after five seconds.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3);

/// What is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Traces,
    Metrics,
}

impl Signal {
    fn path(self) -> &'static str {
        match self {
            Self::Traces => "v1/traces",
            Self::Metrics => "v1/metrics",
        }
    }

    /// How many spans or values the collector did not accept.
    fn rejected(self, response: Bytes) -> u64 {
        let rejected = match self {
            Self::Traces => ExportTraceServiceResponse::decode(response)
                .ok()
                .and_then(|response| response.partial_success)
                .map(|partial| partial.rejected_spans),
            Self::Metrics => ExportMetricsServiceResponse::decode(response)
                .ok()
                .and_then(|response| response.partial_success)
                .map(|partial| partial.rejected_data_points),
        };
        rejected.and_then(|rejected| u64::try_from(rejected).ok()).unwrap_or(0)
    }
}

/// Why an export failed.
#[derive(Debug)]
pub(super) enum ExportError {
    Refused(StatusCode),
    Unreachable(String),
    TimedOut(Duration),
}

impl ExportError {
    /// Whether the same request may succeed later.
    pub(super) fn is_temporary(&self) -> bool {
        match self {
            // As the protocol says.
            Self::Refused(status) => matches!(status.as_u16(), 429 | 502 | 503 | 504),
            Self::Unreachable(_) | Self::TimedOut(_) => true,
        }
    }
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(status) => write!(f, "the collector responded with {status}"),
            Self::Unreachable(cause) => f.write_str(cause),
            Self::TimedOut(limit) => write!(f, "no response within {} ms", limit.as_millis()),
        }
    }
}

/// An HTTP client for one collector.
#[derive(Debug)]
pub(super) struct Client {
    client: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    endpoint: Uri,
    headers: HeaderMap,
    timeout: Duration,
}

impl Client {
    pub(super) fn new(otlp: Otlp) -> Result<Self, Invalid> {
        let Otlp { endpoint, mut headers, timeout, .. } = otlp;
        let is_https = endpoint.scheme_str() == Some("https");
        let tls = tls::client_config("telemetry.otlp_endpoint", is_https, None)?;
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(Arc::unwrap_or_clone(tls))
            .https_or_http()
            .enable_http1()
            .build();
        let client =
            legacy::Client::builder(TokioExecutor::new()).pool_idle_timeout(IDLE_TIMEOUT).build(connector);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let agent = HeaderValue::from_static(concat!("ichido/", env!("CARGO_PKG_VERSION")));
        headers.insert(USER_AGENT, agent);
        Ok(Self { client, endpoint, headers, timeout })
    }

    pub(super) fn endpoint(&self) -> &Uri {
        &self.endpoint
    }

    /// Sends a message. Returns how much of it the collector did not accept.
    pub(super) async fn send(&self, signal: Signal, message: &impl Message) -> Result<u64, ExportError> {
        let exchange = self.exchange(signal, message.encode_to_vec());
        let ended = tokio::time::timeout(self.timeout, exchange).await;
        ended.unwrap_or(Err(ExportError::TimedOut(self.timeout)))
    }

    async fn exchange(&self, signal: Signal, body: Vec<u8>) -> Result<u64, ExportError> {
        let base = self.endpoint.to_string();
        let url = format!("{}/{}", base.trim_end_matches('/'), signal.path());
        let mut request = Request::post(url)
            .body(Full::from(body))
            .map_err(|error| ExportError::Unreachable(error_chain(&error)))?;
        *request.headers_mut() = self.headers.clone();
        let response = self
            .client
            .request(request)
            .await
            .map_err(|error| ExportError::Unreachable(error_chain(&error)))?;
        let status = response.status();
        // Read in either case, so that the connection can be used again.
        let body = Limited::new(response.into_body(), RESPONSE_BYTES_MAX).collect().await;
        match (status.is_success(), body) {
            (true, Ok(body)) => Ok(signal.rejected(body.to_bytes())),
            (true, Err(error)) => Err(ExportError::Unreachable(error.to_string())),
            (false, _) => Err(ExportError::Refused(status)),
        }
    }
}
