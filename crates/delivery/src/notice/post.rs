//! Sends JSON to a webhook. Its URL is a secret.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use ichido_core::{Clock, error_chain};
use ichido_settings::Invalid;
use secrecy::{ExposeSecret, SecretString};

use super::channel::Failure;
use crate::invalid::invalid;
use crate::redact::Redactor;
use crate::tls_roots::TlsRoots;

const ERROR_BODY_BYTES_MAX: usize = 1_024;
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest that a server may delay a notice.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3_600);

/// A webhook.
#[derive(Debug)]
pub(super) struct Post {
    client: reqwest::Client,
    url: SecretString,
    redactor: Redactor,
    clock: Arc<dyn Clock>,
}

impl Post {
    /// Prepares requests to `url`, which [`super::Settings`] has validated as the value of `setting`.
    pub(super) fn new(
        setting: &'static str,
        url: SecretString,
        roots: &TlsRoots,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Invalid> {
        let client = client(setting, roots, url.expose_secret().starts_with("http:"))?;
        let mut redactor = Redactor::default();
        redactor.add(url.expose_secret());
        if let Ok(parsed) = url::Url::parse(url.expose_secret()) {
            // An error may contain only the path, a segment of it, or the query.
            redactor.add(parsed.path());
            redactor.add(parsed.query().unwrap_or_default());
            parsed
                .path_segments()
                .into_iter()
                .flatten()
                .filter(|part| part.len() >= 8)
                .for_each(|part| redactor.add(part));
        }
        Ok(Self { client, url, redactor, clock })
    }

    /// Also hides this secret in errors.
    pub(super) fn hide(&mut self, secret: &SecretString) {
        self.redactor.add(secret.expose_secret());
    }

    /// Sends a JSON body once. Any 2xx means that it was accepted.
    pub(super) async fn send(&self, body: String, headers: HeaderMap) -> Result<(), Failure> {
        let request = self
            .client
            .post(self.url.expose_secret())
            .headers(headers)
            .header(CONTENT_TYPE, "application/json")
            .timeout(TIMEOUT)
            .body(body);
        let mut response = request.send().await.map_err(|error| self.retryable(error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let retry_after = self.retry_after(&response);
        let mut error_body = Vec::new();
        while let Ok(Some(chunk)) = response.chunk().await {
            error_body.extend_from_slice(&chunk);
            if error_body.len() >= ERROR_BODY_BYTES_MAX {
                error_body.truncate(ERROR_BODY_BYTES_MAX);
                break;
            }
        }
        let reason = format!("HTTP {status} {}", self.redactor.bytes(&error_body)).trim_end().to_owned();
        Err(match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
                Failure::Retryable { reason, retry_after }
            }
            status if status.is_server_error() => Failure::Retryable { reason, retry_after },
            _ => Failure::Refused { reason },
        })
    }

    fn retryable(&self, error: reqwest::Error) -> Failure {
        let error = error.without_url();
        Failure::Retryable { reason: self.redactor.text(&error_chain(&error)), retry_after: None }
    }

    fn retry_after(&self, response: &reqwest::Response) -> Option<Duration> {
        let text = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim();
        if let Ok(seconds) = text.parse() {
            return Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX));
        }
        let date = httpdate::parse_http_date(text).ok()?;
        let now = std::time::UNIX_EPOCH + Duration::from_millis(self.clock.now().0);
        Some(date.duration_since(now).unwrap_or_default().min(RETRY_AFTER_MAX))
    }
}

/// Like the client that sends batches: TLS 1.2 or later, no redirects, no built-in retries.
fn client(setting: &'static str, roots: &TlsRoots, plain: bool) -> Result<reqwest::Client, Invalid> {
    let tls = roots.client().map_err(|_| invalid(setting, "cannot be used: TLS cannot be set up"))?;
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .https_only(!plain)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .no_proxy()
        .build()
        .map_err(|_| invalid(setting, "cannot be used: the HTTP client cannot be set up"))
}
