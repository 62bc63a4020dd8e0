//! The question with which a service is asked whether an effect in doubt happened.
//!
//! A question names one operation: its key, and whatever else tells it from other operations with the same key. What the
//! template lacks of that makes the claim one that cannot be asked about ([`NotAsked`]), because the answer could be
//! about another operation.
//!
//! Only two statuses are answers. Everything else (a redirect, an error, a response that is too large) decides nothing. The
//! caller's credentials are not stored, so a question carries none of them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::response::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use ichido_core::{Key, Limits, Outcome, Scope};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::hop_by_hop::strip_hop_by_hop;
use crate::options::{AnswerKept, Automatic};
use crate::parse_error::ParseError;
use crate::stored_response::pack;

/// How a service is asked whether an effect happened.
#[derive(Clone, Debug)]
pub struct Question {
    /// What is requested with `GET`.
    pub get: QuestionPath,
    /// Headers to send.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The status that says that the effect happened.
    pub done: StatusCode,
    /// The status that says that it did not.
    pub absent: Option<StatusCode>,
    /// What retries get after `done`.
    pub answer: AnswerKept,
    /// How long to wait for the answer.
    pub timeout: Duration,
    /// When it is asked and believed without an operator.
    pub schedule: Schedule,
}

/// When a question is asked and believed without an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Which answers are believed.
    pub automatic: Automatic,
    /// How long a claim is in doubt before the first question, and the first pause between two questions.
    pub after: Duration,
    /// How long after the doubt began the effect may still happen. Until then, `absent` means nothing.
    pub settle: Duration,
}

/// What a service said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The status of its response, if there was one.
    pub status: Option<StatusCode>,
    /// What it means.
    pub answer: Answer,
}

/// What a response to a question means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The effect happened. Retries get this outcome.
    Done(Outcome),
    /// It did not happen, as far as the service can see now.
    Absent,
    /// Neither, for this reason.
    Undecided(String),
}

impl Answer {
    /// Its name in metrics, logs and JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Answer::Done(_) => "done",
            Answer::Absent => "absent",
            Answer::Undecided(_) => "undecided",
        }
    }
}

impl Asked {
    /// Nothing was learned.
    pub fn undecided(why: impl Into<String>) -> Self {
        Self { status: None, answer: Answer::Undecided(why.into()) }
    }
}

/// Why a service cannot be asked about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAsked {
    /// No route says how.
    #[error("no route of the gateway says how to ask about it (gateway.routes[].resolve)")]
    NoQuestion,
    /// Only the hash of its query is stored.
    #[error("its request had a query, of which only the hash is stored")]
    Query,
    /// Only the hash of its path is stored, or the path is ambiguous.
    #[error("its path is not stored, or contains segments such as ..")]
    Path,
    /// The question does not name the tenant, and another one may use the same key.
    #[error("its key belongs to a tenant, whom resolve.get does not name")]
    Tenant,
    /// The path and query of the question are too long.
    #[error("the path of the question would be too long")]
    TooLong,
}

/// Asks a service about effects.
pub trait AskService: Send + Sync + fmt::Debug {
    /// When and how answers about this claim are believed, or why the service cannot be asked about it.
    fn schedule(&self, scope: &Scope) -> Result<Schedule, NotAsked>;

    /// Whether any claim is asked about without an operator.
    fn is_automatic(&self) -> bool;

    /// Asks once. The request changes nothing, so asking twice does no harm, nor does dropping the future.
    fn ask<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Asked, NotAsked>>;
}

impl Question {
    /// The path and query to request.
    pub fn path(&self, key: &Key) -> Result<PathAndQuery, NotAsked> {
        let path = key.scope().route.split_once(' ').map_or("", |(_, path)| path);
        let text = self.get.fill(key.text(), key.scope().tenant.as_str(), path);
        text.parse().map_err(|_| NotAsked::TooLong)
    }

    /// What a complete response means.
    pub fn judge(&self, mut head: Parts, body: &Bytes) -> Asked {
        let status = head.status;
        let answer = if status == self.done {
            strip_hop_by_hop(&mut head.headers);
            Answer::Done(self.outcome(&head, body))
        } else if Some(status) == self.absent {
            Answer::Absent
        } else {
            Answer::Undecided(format!("{} is no answer", status.as_u16()))
        };
        Asked { status: Some(status), answer }
    }

    fn outcome(&self, head: &Parts, body: &Bytes) -> Outcome {
        let not_kept = |why: &str| Outcome::Tombstone(format!("the service confirmed the effect; {why}"));
        match self.answer {
            AnswerKept::None => not_kept("its first response was lost"),
            AnswerKept::Response => {
                let packed = pack(head, &HeaderMap::new(), false, std::slice::from_ref(body));
                match packed.filter(|packed| packed.len() <= Limits::STANDARD.outcome_bytes) {
                    Some(packed) => Outcome::Kept(packed),
                    None => not_kept("its answer was too large to store"),
                }
            }
        }
    }

    /// Whether it tells a claim on this route from all others with the same key.
    pub(crate) fn check(&self, scope: &Scope, target: &str) -> Result<(), NotAsked> {
        match target.split_once('?') {
            Some(_) => Err(NotAsked::Query),
            None if !scope.tenant.is_empty() && !self.get.names(Placeholder::Tenant) => Err(NotAsked::Tenant),
            None if self.get.names(Placeholder::Path) && !is_plain(target) => Err(NotAsked::Path),
            None => Ok(()),
        }
    }
}

/// Whether a path says where it leads: the question may carry credentials that its author does not have.
fn is_plain(path: &str) -> bool {
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    let is_dots = |segment: &str| segment == "." || segment == "..";
    path.starts_with('/') && !decoded.contains(['\\', '?', '#']) && !decoded.split('/').any(is_dots)
}

/// The path and query of a question, such as `/orders?key={key}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionPath(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Value(Placeholder),
}

/// What a question can contain of its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placeholder {
    /// The key, percent-encoded.
    Key,
    /// The tenant, percent-encoded.
    Tenant,
    /// The path of the request.
    Path,
}

impl QuestionPath {
    /// Whether the path contains this.
    pub fn names(&self, placeholder: Placeholder) -> bool {
        self.0.contains(&Part::Value(placeholder))
    }

    fn fill(&self, key: &str, tenant: &str, path: &str) -> String {
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        // A tenant is stored with the name of the token's claim in front.
        let tenant = tenant.split_once(':').map_or(tenant, |(_, value)| value);
        let parts = self.0.iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            Part::Value(Placeholder::Key) => encode(key),
            Part::Value(Placeholder::Tenant) => encode(tenant),
            Part::Value(Placeholder::Path) => path.to_owned(),
        });
        parts.collect()
    }
}

impl FromStr for QuestionPath {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let invalid = |why: &str| {
            ParseError::new(format!("{text:?} {why}; expected something like \"/orders?key={{key}}\""))
        };
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) =
                after.split_once('}').ok_or_else(|| invalid("has a { without a matching }"))?;
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            parts.push(Part::Value(match name {
                "key" => Placeholder::Key,
                "tenant" => Placeholder::Tenant,
                "path" => Placeholder::Path,
                _ => return Err(invalid("has a placeholder other than {key}, {tenant} and {path}")),
            }));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        let path = Self(parts);
        if !path.names(Placeholder::Key) {
            return Err(invalid("does not contain {key}"));
        }
        let is_path = path.fill("k", "t", "/p");
        if !is_path.starts_with('/') || is_path.contains('#') || is_path.parse::<PathAndQuery>().is_err() {
            return Err(invalid("is not a path"));
        }
        Ok(path)
    }
}

/// Whether a status can be an answer. Those that say nothing about an effect cannot: redirects, missing permission, timeouts,
/// errors of the server.
pub fn is_answer(status: StatusCode) -> bool {
    let code = status.as_u16();
    (200..300).contains(&code)
        || (400..500).contains(&code) && ![401, 403, 407, 408, 421, 425, 429].contains(&code)
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;
    use crate::stored_response::StoredResponse;

    fn question(get: &str, answer: AnswerKept) -> Question {
        let schedule = Schedule {
            automatic: Automatic::Done,
            after: Duration::from_secs(60),
            settle: Duration::from_secs(300),
        };
        Question {
            get: get.parse().unwrap(),
            headers: Vec::new(),
            done: StatusCode::OK,
            absent: Some(StatusCode::NOT_FOUND),
            answer,
            timeout: Duration::from_secs(5),
            schedule,
        }
    }

    fn path(get: &str, tenant: &str, target: &str, key: &str) -> Result<String, NotAsked> {
        let key = Key::new(Scope::new(tenant, format!("POST {target}")), key).unwrap();
        let question = question(get, AnswerKept::None);
        question.check(key.scope(), target)?;
        question.path(&key).map(|path| path.to_string())
    }

    #[test]
    fn a_question_contains_the_encoded_key() {
        let asked = path("/orders?key={key}&all=1", "", "/orders", "a b&all=0#/../é");
        assert_eq!(asked.unwrap(), "/orders?key=a%20b%26all%3D0%23%2F%2E%2E%2F%C3%A9&all=1");
    }

    #[test]
    fn a_claim_is_asked_about_only_if_the_question_tells_it_from_all_others() {
        let one = "/orders?key={key}";
        assert_eq!(path(one, "", "/orders?5e884898da28", "k"), Err(NotAsked::Query));
        assert_eq!(path(one, "sub:alice", "/orders", "k"), Err(NotAsked::Tenant));
        let of_tenant = path("/{tenant}/orders?key={key}", "sub:al/ice", "/orders", "k");
        assert_eq!(of_tenant.unwrap(), "/al%2Fice/orders?key=k");
        let below = "{path}/{key}";
        assert_eq!(path(below, "", "/shops/7/orders", "k").unwrap(), "/shops/7/orders/k");
        for evasive in ["/shops/../orders", "/shops/%2e%2E/orders", "/shops/%5c/orders", "sha256:00"] {
            assert_eq!(path(below, "", evasive, "k"), Err(NotAsked::Path), "{evasive}");
        }
    }

    #[test]
    fn only_two_statuses_are_answers() {
        let question = question("/orders?key={key}", AnswerKept::None);
        let judge = |status: u16| {
            let response = Response::builder().status(status).body(()).unwrap();
            question.judge(response.into_parts().0, &Bytes::from_static(b"{}")).answer
        };
        assert!(matches!(judge(200), Answer::Done(Outcome::Tombstone(_))));
        assert_eq!(judge(404), Answer::Absent);
        for status in [201, 204, 301, 302, 304, 400, 401, 403, 410, 429, 500, 502, 503, 504] {
            assert!(matches!(judge(status), Answer::Undecided(_)), "{status}");
        }
    }

    #[test]
    fn the_answer_can_be_kept_for_retries() {
        let question = question("/orders?key={key}", AnswerKept::Response);
        let response = Response::builder().header("content-type", "application/json");
        let response = response.header("set-cookie", "admin=1").header("connection", "close");
        let head = response.body(()).unwrap().into_parts().0;
        let Answer::Done(Outcome::Kept(kept)) =
            question.judge(head, &Bytes::from_static(b"{\"id\":17}")).answer
        else {
            panic!("nothing was kept")
        };
        let stored = StoredResponse::read(&kept).unwrap();
        assert_eq!((stored.status, &stored.body[..]), (StatusCode::OK, &b"{\"id\":17}"[..]));
        assert_eq!(stored.headers.keys().collect::<Vec<_>>(), ["content-type"]);
    }

    #[test]
    fn a_path_without_the_key_is_refused() {
        for (text, why) in [
            ("/orders", "does not contain {key}"),
            ("orders?key={key}", "is not a path"),
            ("https://h/{key}", "is not a path"),
            ("/orders?key={key}#x", "is not a path"),
            ("/orders?key={key", "without a matching }"),
            ("/orders?key={key}&b={body}", "placeholder other than"),
        ] {
            let error = text.parse::<QuestionPath>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn statuses_that_say_nothing_about_an_effect_are_no_answers() {
        let of = |code: u16| is_answer(StatusCode::from_u16(code).unwrap());
        assert!([200, 204, 404, 409, 410, 422].into_iter().all(of));
        assert!(![100, 301, 304, 401, 403, 429, 500, 503].into_iter().any(of));
    }
}
