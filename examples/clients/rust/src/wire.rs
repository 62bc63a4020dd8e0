//! Requests and answers. Every request carries a nonce or a token, so asking again after a lost reply is safe.

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

/// How long to ask before giving up, and how long one try may take.
const PATIENCE: Duration = Duration::from_secs(30);
const ONE_TRY: Duration = Duration::from_secs(10);
/// The first and the longest pause between two tries.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

#[derive(Clone, Debug)]
pub(crate) struct Wire {
    client: Client<HttpConnector, Full<Bytes>>,
    url: String,
    token: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) retry_after: Option<Duration>,
}

impl Answer {
    /// The last segment of a problem's type.
    pub(crate) fn word(&self) -> &str {
        self.body["type"].as_str().and_then(|kind| kind.rsplit('/').next()).unwrap_or_default()
    }

    pub(crate) fn refusal(&self) -> Error {
        Error::Refused(self.body["detail"].as_str().unwrap_or("no reason given").to_owned())
    }
}

impl Wire {
    pub(crate) fn new(url: &str, token: Option<&str>) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { client, url: url.to_owned(), token: token.map(str::to_owned) }
    }

    /// Asks until there is an answer.
    pub(crate) async fn ask(&self, path: &str, body: &Value) -> Result<Answer, Error> {
        let deadline = Instant::now() + PATIENCE;
        let mut pause = PAUSES.0;
        loop {
            let answer = self.try_once(path, body).await;
            let asked_to_wait = match answer {
                Some(answer) if !matches!(answer.status, 429 | 503) => return Ok(answer),
                Some(answer) => answer.retry_after.unwrap_or_default(),
                None => Duration::ZERO,
            };
            pause = pause.max(asked_to_wait);
            if Instant::now() + pause > deadline {
                return Err(Error::Unavailable);
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Asks; nothing if no whole answer comes.
    pub(crate) async fn try_once(&self, path: &str, body: &Value) -> Option<Answer> {
        let mut request = Request::builder().method(Method::POST).uri(format!("{}{path}", self.url));
        request = request.header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Full::from(body.to_string())).ok()?;
        timeout(ONE_TRY, async {
            let response = self.client.request(request).await.ok()?;
            let after = response.headers().get(header::RETRY_AFTER);
            let after = after.and_then(|after| after.to_str().ok()?.parse().ok()).map(Duration::from_secs);
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.ok()?.to_bytes();
            Some(Answer { status, body: serde_json::from_slice(&body).ok()?, retry_after: after })
        })
        .await
        .ok()?
    }
}
