//! Requests, and answers that arrived whole.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use serde_json::Value;

use super::upstream::{AnyBody, body};

/// An answer that arrived whole.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Got {
    /// Reads an answer; an error if its body was cut.
    pub(crate) async fn read<B>(response: http::Response<B>) -> Result<Self, B::Error>
    where
        B: Body<Data = Bytes>,
    {
        let (head, body) = response.into_parts();
        let body = body.collect().await?;
        let trailers = body.trailers().cloned();
        Ok(Self { status: head.status, headers: head.headers, body: body.to_bytes(), trailers })
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotency-replayed") == Some("true")
    }

    /// The last segment of the problem's type, if this is an answer of the layer's own.
    pub(crate) fn problem(&self) -> Option<String> {
        if self.header("content-type") != Some("application/problem+json") {
            return None;
        }
        let problem: Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(problem["status"], self.status.as_u16());
        assert!(problem["title"].is_string() && problem["detail"].is_string(), "{problem}");
        assert_eq!(self.header("link"), Some("</.well-known/idempotency>; rel=\"describedby\""));
        let kind = problem["type"].as_str().unwrap().strip_prefix("/.well-known/idempotency/").unwrap();
        assert_eq!(
            (&problem["error"]["code"], &problem["error"]["message"]),
            (&kind.into(), &problem["detail"])
        );
        Some(kind.to_owned())
    }

    /// Asserts that this is the layer's own answer.
    #[track_caller]
    pub(crate) fn is_problem(&self, status: u16, word: &str) {
        assert_eq!((self.status.as_u16(), self.problem().as_deref()), (status, Some(word)), "{self:?}");
        let says_when = self.headers.contains_key("retry-after");
        match word {
            "in-flight" | "ledger-unavailable" | "overloaded" => assert!(says_when, "{self:?}"),
            "in-doubt" => {
                let told = self.header("stripe-should-retry");
                assert_eq!(told, Some(if says_when { "true" } else { "false" }), "{self:?}");
            }
            _ => assert!(!says_when, "{self:?}"),
        }
    }

    /// Asserts that this is the service's answer, for the first time.
    #[track_caller]
    pub(crate) fn is_first(&self, status: u16, text: &str) {
        assert_eq!((self.status.as_u16(), self.text(), self.is_replay()), (status, text, false), "{self:?}");
    }

    /// Asserts that this is the service's answer again.
    #[track_caller]
    pub(crate) fn is_again(&self, status: u16, text: &str) {
        assert_eq!((self.status.as_u16(), self.text(), self.is_replay()), (status, text, true), "{self:?}");
    }
}

/// A keyed POST.
pub(crate) fn post(path: &str, key: &str, content: impl Into<Bytes>) -> Request<AnyBody> {
    Request::post(path).header("idempotency-key", format!("\"{key}\"")).body(body(content)).unwrap()
}

/// The same order each time.
pub(crate) fn order(key: &str) -> Request<AnyBody> {
    post("/orders", key, "{\"item\":1}")
}

pub(crate) fn patch(path: &str, key: &str, content: &'static str) -> Request<AnyBody> {
    let mut request = post(path, key, content);
    *request.method_mut() = Method::PATCH;
    request
}

pub(crate) fn get(path: &str) -> Request<AnyBody> {
    Request::get(path).body(body("")).unwrap()
}
