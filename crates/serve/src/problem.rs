//! Answers that say no: `application/problem+json`, told apart by the last segment of their `type`.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, Uri, header};
use ichido_http::{ErrorMember, set_should_retry};
use serde::{Deserialize, Serialize};

/// An answer that says no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    status: StatusCode,
    word: &'static str,
    title: &'static str,
    detail: Option<String>,
    facts: Box<Facts>,
}

/// What a program needs to know besides the word.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// How many claims were meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// The state in which the claim was left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The field of the request that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

/// A problem on its way.
#[derive(Debug, Serialize, Deserialize)]
pub struct Body {
    #[serde(rename = "type")]
    kind: String,
    title: String,
    status: u16,
    detail: String,
    #[serde(flatten)]
    pub facts: Facts,
}

/// The body as it is sent: with the member that SDKs look for.
#[derive(Serialize)]
struct Sent<'a> {
    #[serde(flatten)]
    body: &'a Body,
    error: ErrorMember<'a>,
}

impl Body {
    /// The word that tells it apart.
    pub fn word(&self) -> &str {
        self.kind.rsplit('/').next().unwrap_or_default()
    }

    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl Problem {
    pub fn new(status: StatusCode, word: &'static str, title: &'static str) -> Self {
        Self { status, word, title, detail: None, facts: Box::default() }
    }

    /// The answer to a body that was waited for in vain.
    pub fn body_late() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "body-late", "The body took too long to arrive")
    }

    /// The same, with words on this case; without them the title is repeated.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// The same, with one more sentence.
    #[must_use]
    pub fn add(mut self, sentence: &str) -> Self {
        let detail = self.detail.take().unwrap_or_else(|| self.title.to_owned());
        self.detail = Some(format!("{}. {sentence}", detail.trim_end_matches('.')));
        self
    }

    #[must_use]
    pub fn facts(mut self, facts: Facts) -> Self {
        self.facts = Box::new(facts);
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = Body {
            kind: format!("/problems/{}", self.word),
            title: self.title.to_owned(),
            status: self.status.as_u16(),
            detail: self.detail.unwrap_or_else(|| format!("{}.", self.title)),
            facts: *self.facts,
        };
        let error = ErrorMember::new(self.status, self.word, &body.detail);
        let mut response = respond(self.status, &Sent { body: &body, error });
        let passing = [StatusCode::REQUEST_TIMEOUT, StatusCode::SERVICE_UNAVAILABLE];
        set_should_retry(response.headers_mut(), passing.contains(&self.status));
        response
    }
}

/// The body of a problem as an answer, with the fields that its status demands.
fn respond(status: StatusCode, body: &impl Serialize) -> Response {
    let mut response = (status, serde_json::to_vec(body).unwrap_or_default()).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

pub async fn no_such_page(uri: Uri) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "no-such-page", "There is nothing here")
        .detail(format!("There is nothing at {}.", uri.path()))
}

pub async fn no_such_method() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "no-such-method", "This path has other methods")
}
