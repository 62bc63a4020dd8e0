//! Sends requests to the console: rate-limited, retried if that may help, in a session that is renewed when it
//! expires.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Method, StatusCode};
use reqwest::redirect;
use secrecy::ExposeSecret;
use serde::de::DeserializeOwned;
use url::Url;

use super::options::{Auth, Options};
use super::session::Session;
use crate::dify::error::{Error, Kind};

const API_PATH: &str = "/console/api";
const LOGIN_PATH: &str = "/login";
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Pauses before each retry.
const PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
/// The longest pause that the console may ask for, in seconds.
const PAUSE_MAX_SECONDS: u64 = 60;
/// The most bytes that are read of a response.
const RESPONSE_MAX_BYTES: usize = 64 << 20;

pub(super) struct Client {
    http: reqwest::Client,
    base: Url,
    auth: Auth,
    workspace: Option<String>,
    limiter: DefaultDirectRateLimiter,
    session: Option<Session>,
    /// A login was refused. No other is tried.
    login_refused: bool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("session", &self.session).finish_non_exhaustive()
    }
}

struct Response {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Client {
    pub(super) fn new(options: Options, workspace: Option<String>) -> Result<Self, Error> {
        let Options { mut base, auth, rate_per_second, tls } = options;
        let path = base.path().trim_end_matches('/').to_owned();
        let path = if path.ends_with(API_PATH) { path } else { format!("{path}{API_PATH}") };
        base.set_path(&path);
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT)
            .user_agent(concat!("ichido/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| {
                Error::new(Kind::Settings, format!("cannot create the HTTP client: {}", error.without_url()))
            })?;
        let limiter = RateLimiter::direct(Quota::per_second(rate_per_second));
        Ok(Self { http, base, auth, workspace, limiter, session: None, login_refused: false })
    }

    /// Sends a GET request and parses the response.
    pub(super) async fn get<T: DeserializeOwned>(
        &mut self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, Error> {
        // A first 401 means that the session has expired; right after a login it means something else.
        for renewal in [Renewal::Refresh, Renewal::Login, Renewal::None] {
            self.sign_in().await?;
            let response = self.send_with_retries(Method::GET, path, query, None).await?;
            match response.status {
                StatusCode::OK => {
                    return serde_json::from_slice(&response.body).map_err(|error| {
                        let position = format!("line {}, column {}", error.line(), error.column());
                        Error::new(
                            Kind::Incompatible,
                            format!("Dify's console: {path} returned an unexpected response ({position})"),
                        )
                    });
                }
                StatusCode::UNAUTHORIZED => self.renew(renewal).await?,
                status => return Err(unexpected_status(path, status)),
            }
        }
        Err(Error::new(Kind::Login, format!("Dify's console: {path} returned 401 right after a login")))
    }

    async fn sign_in(&mut self) -> Result<(), Error> {
        if self.session.is_some() {
            return Ok(());
        }
        if self.login_refused {
            return Err(Error::new(
                Kind::Login,
                "Dify's console refused a login before; it is not retried, because five failed logins lock the account",
            ));
        }
        let (email, password) = match &self.auth {
            Auth::AdminKey(key) => {
                self.session = Some(Session::AdminKey(key.clone()));
                return Ok(());
            }
            Auth::Login { email, password, base64: true } => {
                (email.clone(), BASE64.encode(password.expose_secret()))
            }
            Auth::Login { email, password, base64: false } => {
                (email.clone(), password.expose_secret().to_owned())
            }
        };
        let body =
            serde_json::json!({ "email": email, "password": password, "remember_me": true }).to_string();
        // Any response to a login is final. Without a response, the login may be retried.
        let response = self.send_with_retries(Method::POST, LOGIN_PATH, &[], Some(body)).await?;
        let session = response
            .status
            .is_success()
            .then(|| Session::from_response(&response.headers, &response.body))
            .flatten();
        self.login_refused = session.is_none();
        self.session = session;
        match self.session {
            Some(_) => Ok(()),
            None => Err(Error::new(
                Kind::Login,
                format!(
                    "Dify's console refuses the login ({}): check DIFY_EMAIL, DIFY_PASSWORD and dify_version; it is not \
                     retried",
                    response.status.as_u16()
                ),
            )),
        }
    }

    /// Reacts to a 401.
    async fn renew(&mut self, renewal: Renewal) -> Result<(), Error> {
        let Some(session) = self.session.take() else { return Ok(()) };
        if let Session::AdminKey(_) = session {
            self.login_refused = true;
            return Err(Error::new(
                Kind::Login,
                "Dify's console refuses the admin key: check DIFY_ADMIN_KEY and export.dify.workspace",
            ));
        }
        let (Renewal::Refresh, Some(body)) = (renewal, session.refresh_body()) else { return Ok(()) };
        self.session = Some(session);
        tracing::info!("session with Dify's console expired; refreshing it");
        let response = self.send_with_retries(Method::POST, "/refresh-token", &[], Some(body)).await?;
        let new = response
            .status
            .is_success()
            .then(|| Session::from_response(&response.headers, &response.body))
            .flatten();
        // If the session cannot be refreshed, one login follows.
        self.session = self.session.take().zip(new).map(|(old, new)| old.merge(new));
        Ok(())
    }

    /// Sends a request, and retries it if there is no response or a temporary error.
    async fn send_with_retries(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<String>,
    ) -> Result<Response, Error> {
        let mut pauses = PAUSES.iter();
        loop {
            self.limiter.until_ready().await;
            let response = self.request(method.clone(), path, query, body.clone()).await;
            let (why, retry_after) = match response {
                // A login that got 429 or 500 may have been counted as a failed one.
                Ok(response)
                    if !is_temporary(response.status)
                        || (path == LOGIN_PATH && !is_from_proxy(response.status)) =>
                {
                    return Ok(response);
                }
                Ok(response) => (response.status.to_string(), parse_retry_after(&response.headers)),
                Err(error) => (ichido_core::error_chain(&error.without_url()), None),
            };
            let Some(pause) = pauses.next() else {
                return Err(Error::new(Kind::Unavailable, format!("Dify's console: {path}: {why}")));
            };
            let pause = retry_after.unwrap_or(*pause);
            tracing::warn!(
                path,
                why,
                pause_ms = pause.as_millis(),
                "request to Dify's console failed; retrying"
            );
            tokio::time::sleep(pause).await;
        }
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<String>,
    ) -> Result<Response, reqwest::Error> {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path()));
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut request = self.http.request(method, url);
        if let Some(session) = &self.session {
            request = request.headers(session.headers());
            if let (Session::AdminKey(_), Some(workspace)) = (session, &self.workspace) {
                request = request.header("X-WORKSPACE-ID", workspace);
            }
        }
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        let mut response = request.send().await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            body.extend_from_slice(&chunk);
            if body.len() > RESPONSE_MAX_BYTES {
                break;
            }
        }
        Ok(Response { status, headers, body })
    }
}

/// What to do about a 401.
#[derive(Clone, Copy)]
enum Renewal {
    Refresh,
    Login,
    None,
}

fn is_temporary(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 425 | 429 | 500 | 502..=504)
}

/// Whether a proxy responded in place of the console.
fn is_from_proxy(status: StatusCode) -> bool {
    matches!(status.as_u16(), 502..=504)
}

fn parse_retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds.min(PAUSE_MAX_SECONDS)))
}

fn unexpected_status(path: &str, status: StatusCode) -> Error {
    let kind = match status.as_u16() {
        403 => Kind::Settings,
        _ => Kind::Incompatible,
    };
    Error::new(kind, format!("Dify's console: {path} returned {status}"))
}
