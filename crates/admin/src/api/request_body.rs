//! Reads request bodies within their limits, and names the field that is invalid.

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Deserialize;
use serde_json::error::Category;
use tokio::sync::OwnedSemaphorePermit;

use crate::json_object::Object;
use crate::limits::BODY_TIMEOUT;
use crate::state::ClaimApi;
use ichido_serve::Problem;

/// The largest body.
pub(super) const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Larger bodies need a permit.
const LARGE_BODY_BYTES: u64 = 1024 * 1024;
/// A body that has arrived. It holds its permit, if it needed one, until it is dropped.
pub(super) struct RequestBody {
    pub(super) bytes: Bytes,
    _permit: Option<OwnedSemaphorePermit>,
}

impl RequestBody {
    /// Parses the body.
    pub(super) fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Problem> {
        let read = serde_json::from_slice(&self.bytes).map(|Object(read)| read);
        read.map_err(|error| match error.classify() {
            Category::Data => self.locate_error::<T>(&error),
            Category::Syntax | Category::Eof | Category::Io => {
                invalid(format!("The body is not valid JSON: {error}."))
            }
        })
    }

    /// Parses once more, slowly, to find the invalid field.
    fn locate_error<'a, T: Deserialize<'a>>(&'a self, first: &serde_json::Error) -> Problem {
        let mut reader = serde_json::Deserializer::from_slice(&self.bytes);
        match serde_path_to_error::deserialize::<_, Object<T>>(&mut reader) {
            Ok(_) => invalid(format!("{first}.")),
            Err(error) => {
                let path = error.path().to_string();
                field_problem(&path, &error.into_inner().to_string())
            }
        }
    }
}

/// Names the field and what is wrong with it.
fn field_problem(path: &str, message: &str) -> Problem {
    let message = message.split(" at line ").next().unwrap_or_default();
    let path = if path == "." { "" } else { path };
    for (prefix, what) in [("missing field `", "is missing"), ("duplicate field `", "is given twice")] {
        if let Some(name) = message.strip_prefix(prefix).and_then(|rest| rest.strip_suffix('`')) {
            let dot = if path.is_empty() { "" } else { "." };
            return invalid_field(&format!("{path}{dot}{name}"), what);
        }
    }
    match path {
        "" => invalid(format!("The body: {message}.")),
        path => invalid_field(path, &format!(": {message}")),
    }
}

pub(super) async fn read_body(api: &ClaimApi, request: Request<Body>) -> Result<RequestBody, Problem> {
    if !is_json(request.headers()) {
        let wrong = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(Problem::new(wrong, "invalid", "The Content-Type must be application/json"));
    }
    let body = request.into_body();
    let size = body.size_hint();
    if size.lower() > BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    let permit = match size.upper() {
        Some(upper) if upper <= LARGE_BODY_BYTES => None,
        // The semaphore is never closed.
        Some(_) | None => api.large_bodies.clone().acquire_owned().await.ok(),
    };
    match tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, BODY_BYTES_MAX).collect()).await {
        Ok(Ok(body)) => Ok(RequestBody { bytes: body.to_bytes(), _permit: permit }),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Problem::new(StatusCode::BAD_REQUEST, "body-broken", "The body is incomplete")),
        Err(_) => Err(Problem::body_timeout()),
    }
}

/// A foreign page cannot send this content type without a preflight request, which we refuse.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes()).unwrap_or_default();
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    kind.eq_ignore_ascii_case(b"application/json")
}

fn too_large() -> Problem {
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", "The body is too large")
        .detail(format!("The body is larger than {BODY_BYTES_MAX} bytes."))
}

/// The problem for an invalid request.
pub(super) fn invalid(detail: String) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "invalid", "The request is invalid").detail(detail)
}

/// The problem for an invalid field. `what` follows its name: `is missing`, or `: …`.
pub(super) fn invalid_field(field: &str, what: &str) -> Problem {
    let space = if what.starts_with(':') { "" } else { " " };
    invalid(format!("{field}{space}{what}.")).field(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_content_type_is_accepted() {
        let of = |kind: &str| HeaderMap::from_iter([(header::CONTENT_TYPE, kind.parse().unwrap())]);
        for good in ["application/json", "Application/JSON; charset=utf-8", "application/json ;x=y"] {
            assert!(is_json(&of(good)), "{good}");
        }
        for bad in ["text/plain", "application/jsonp", "application/x-www-form-urlencoded", ""] {
            assert!(!is_json(&of(bad)), "{bad}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }
}
