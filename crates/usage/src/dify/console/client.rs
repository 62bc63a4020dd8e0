//! Requests to the console: limited in number, tried again when that may help, with a session that is kept fresh.

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

const API: &str = "/console/api";
const LOGIN: &str = "/login";
const TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT: Duration = Duration::from_secs(10);
/// Pauses before another try.
const PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
/// The longest pause that the console may ask for.
const LONGEST_PAUSE: u64 = 60;
/// What is read of an answer.
const MOST_BYTES: usize = 64 << 20;

pub(super) struct Client {
    http: reqwest::Client,
    base: Url,
    auth: Auth,
    workspace: Option<String>,
    limiter: DefaultDirectRateLimiter,
    session: Option<Session>,
    /// A login was refused: no other one is tried.
    refused: bool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("session", &self.session).finish_non_exhaustive()
    }
}

struct Answered {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Client {
    pub(super) fn new(options: Options, workspace: Option<String>) -> Result<Self, Error> {
        let Options { mut base, auth, rate_per_second, tls } = options;
        let path = base.path().trim_end_matches('/').to_owned();
        let path = if path.ends_with(API) { path } else { format!("{path}{API}") };
        base.set_path(&path);
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT)
            .timeout(TIMEOUT)
            .user_agent(concat!("ichido/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| {
                Error::new(Kind::Settings, format!("preparing the HTTP client: {}", error.without_url()))
            })?;
        let limiter = RateLimiter::direct(Quota::per_second(rate_per_second));
        Ok(Self { http, base, auth, workspace, limiter, session: None, refused: false })
    }

    /// Asks for something.
    pub(super) async fn get<T: DeserializeOwned>(
        &mut self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, Error> {
        // One answer 401 means that the session is over; after a fresh login it means something else.
        for renewal in [Renewal::Refresh, Renewal::Login, Renewal::None] {
            self.sign_in().await?;
            let answered = self.persist(Method::GET, path, query, None).await?;
            match answered.status {
                StatusCode::OK => {
                    return serde_json::from_slice(&answered.body).map_err(|error| {
                        let place = format!("line {}, column {}", error.line(), error.column());
                        Error::new(
                            Kind::Shape,
                            format!("Dify's console: {path} answers in a form that we do not know ({place})"),
                        )
                    });
                }
                StatusCode::UNAUTHORIZED => self.renew(renewal).await?,
                status => return Err(refusal(path, status)),
            }
        }
        Err(Error::new(Kind::Login, format!("Dify's console: {path} is refused right after a login (401)")))
    }

    async fn sign_in(&mut self) -> Result<(), Error> {
        if self.session.is_some() {
            return Ok(());
        }
        if self.refused {
            return Err(Error::new(
                Kind::Login,
                "Dify's console: a login was refused; no other one is tried, because five bad ones lock the account",
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
        // What is answered counts, and is not asked for again; no answer at all may be tried again.
        let answered = self.persist(Method::POST, LOGIN, &[], Some(body)).await?;
        let session =
            answered.status.is_success().then(|| Session::of(&answered.headers, &answered.body)).flatten();
        self.refused = session.is_none();
        self.session = session;
        match self.session {
            Some(_) => Ok(()),
            None => Err(Error::new(
                Kind::Login,
                format!(
                    "Dify's console refuses the login ({}): check DIFY_EMAIL and DIFY_PASSWORD, and dify_version; it is \
                     not tried again",
                    answered.status.as_u16()
                ),
            )),
        }
    }

    /// After an answer 401.
    async fn renew(&mut self, renewal: Renewal) -> Result<(), Error> {
        let Some(session) = self.session.take() else { return Ok(()) };
        if let Session::AdminKey(_) = session {
            self.refused = true;
            return Err(Error::new(
                Kind::Login,
                "Dify's console refuses the admin key: check DIFY_ADMIN_KEY and export.dify.workspace",
            ));
        }
        let (Renewal::Refresh, Some(body)) = (renewal, session.refresh_body()) else { return Ok(()) };
        self.session = Some(session);
        tracing::info!("the session with Dify's console is over: it is refreshed");
        let answered = self.persist(Method::POST, "/refresh-token", &[], Some(body)).await?;
        let new =
            answered.status.is_success().then(|| Session::of(&answered.headers, &answered.body)).flatten();
        // What cannot be refreshed is followed by one login.
        self.session = self.session.take().zip(new).map(|(old, new)| old.renewed(new));
        Ok(())
    }

    /// Makes a request, and makes it again when there was no answer, or one that says later.
    async fn persist(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<String>,
    ) -> Result<Answered, Error> {
        let mut pauses = PAUSES.iter();
        loop {
            self.limiter.until_ready().await;
            let answered = self.request(method.clone(), path, query, body.clone()).await;
            let (why, asked) = match answered {
                // A login that was answered 429 or 500 may have been counted as a bad one.
                Ok(answered)
                    if !is_passing(answered.status) || (path == LOGIN && !is_out(answered.status)) =>
                {
                    return Ok(answered);
                }
                Ok(answered) => (answered.status.to_string(), retry_after(&answered.headers)),
                Err(error) => (ichido_core::error_chain(&error.without_url()), None),
            };
            let Some(pause) = pauses.next() else {
                return Err(Error::new(Kind::Unavailable, format!("Dify's console: {path}: {why}")));
            };
            let pause = asked.unwrap_or(*pause);
            tracing::warn!(path, why, pause_ms = pause.as_millis(), "Dify's console: asked again");
            tokio::time::sleep(pause).await;
        }
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<String>,
    ) -> Result<Answered, reqwest::Error> {
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
            if body.len() > MOST_BYTES {
                break;
            }
        }
        Ok(Answered { status, headers, body })
    }
}

/// What is done about an answer 401.
#[derive(Clone, Copy)]
enum Renewal {
    Refresh,
    Login,
    None,
}

fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 425 | 429 | 500 | 502..=504)
}

/// Whether what stands before the console answered, and the console did not.
fn is_out(status: StatusCode) -> bool {
    matches!(status.as_u16(), 502..=504)
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds.min(LONGEST_PAUSE)))
}

fn refusal(path: &str, status: StatusCode) -> Error {
    let kind = match status.as_u16() {
        403 => Kind::Settings,
        _ => Kind::Shape,
    };
    Error::new(kind, format!("Dify's console: {path} answers {status}"))
}
