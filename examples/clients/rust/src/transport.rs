//! HTTP calls with retries. Every request carries a nonce or a token, so a retry after a lost reply is safe.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use crate::Error;

/// How long to retry before giving up, and how long one attempt may take.
const PATIENCE: Duration = Duration::from_secs(30);
const ONE_ATTEMPT: Duration = Duration::from_secs(10);
/// The first and the longest pause between two attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

#[derive(Clone, Debug)]
pub(crate) struct Transport {
    client: Client<HttpConnector, Full<Bytes>>,
    url: String,
    token: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) retry_after: Option<Duration>,
}

impl Reply {
    /// The last segment of a problem's type.
    pub(crate) fn problem(&self) -> &str {
        self.body["type"].as_str().and_then(|kind| kind.rsplit('/').next()).unwrap_or_default()
    }

    pub(crate) fn refusal(&self) -> Error {
        Error::Refused(self.body["detail"].as_str().unwrap_or("no reason given").to_owned())
    }
}

impl Transport {
    pub(crate) fn new(url: &str, token: Option<&str>) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { client, url: url.to_owned(), token: token.map(str::to_owned) }
    }

    /// Calls until there is a response.
    pub(crate) async fn call(&self, path: &str, body: &Value) -> Result<Reply, Error> {
        let deadline = Instant::now() + PATIENCE;
        let mut pause = PAUSES.0;
        loop {
            let reply = self.try_once(path, body).await;
            let retry_after = match reply {
                Some(reply) if !matches!(reply.status, 429 | 503) => return Ok(reply),
                Some(reply) => reply.retry_after.unwrap_or_default(),
                None => Duration::ZERO,
            };
            pause = pause.max(retry_after);
            if Instant::now() + pause > deadline {
                return Err(Error::Unavailable);
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Calls once; `None` if no complete response arrives.
    pub(crate) async fn try_once(&self, path: &str, body: &Value) -> Option<Reply> {
        let mut request = Request::builder().method(Method::POST).uri(format!("{}{path}", self.url));
        request = request.header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Full::from(body.to_string())).ok()?;
        timeout(ONE_ATTEMPT, async {
            let response = self.client.request(request).await.ok()?;
            let after = response.headers().get(header::RETRY_AFTER);
            let after = after.and_then(|after| after.to_str().ok()?.parse().ok()).map(Duration::from_secs);
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.ok()?.to_bytes();
            Some(Reply { status, body: serde_json::from_slice(&body).ok()?, retry_after: after })
        })
        .await
        .ok()?
    }
}
