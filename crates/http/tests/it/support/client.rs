//! Requests, and responses that have been received.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use serde_json::Value;

use super::upstream::{AnyBody, body};

/// A response that has been received completely.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Received {
    /// Reads a response. Fails if its body is cut off.
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

    /// The problem code, if this is a problem response of the layer.
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

    /// Asserts that this is a problem response of the layer.
    #[track_caller]
    pub(crate) fn assert_problem(&self, status: u16, code: &str) {
        assert_eq!((self.status.as_u16(), self.problem().as_deref()), (status, Some(code)), "{self:?}");
        let has_retry_after = self.headers.contains_key("retry-after");
        match code {
            "in-flight" | "ledger-unavailable" | "overloaded" => assert!(has_retry_after, "{self:?}"),
            "in-doubt" => {
                let should_retry = self.header("stripe-should-retry");
                assert_eq!(should_retry, Some(if has_retry_after { "true" } else { "false" }), "{self:?}");
            }
            _ => assert!(!has_retry_after, "{self:?}"),
        }
    }

    /// Asserts that this is the response of a run, not a replay.
    #[track_caller]
    pub(crate) fn assert_first(&self, status: u16, text: &str) {
        assert_eq!((self.status.as_u16(), self.text(), self.is_replay()), (status, text, false), "{self:?}");
    }

    /// Asserts that this is a replay.
    #[track_caller]
    pub(crate) fn assert_replay(&self, status: u16, text: &str) {
        assert_eq!((self.status.as_u16(), self.text(), self.is_replay()), (status, text, true), "{self:?}");
    }
}

/// A keyed POST.
pub(crate) fn post(path: &str, key: &str, content: impl Into<Bytes>) -> Request<AnyBody> {
    Request::post(path).header("idempotency-key", format!("\"{key}\"")).body(body(content)).unwrap()
}

/// An order, the same each time.
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
