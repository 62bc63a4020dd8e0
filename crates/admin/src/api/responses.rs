//! Responses of the claim API.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use ichido_core::{CurrentState, Doubt, Grant, Outcome, Timestamp};
use ichido_http::{ErrorMember, set_should_retry};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

/// The longest `Retry-After` in seconds for a claim that is running.
const RETRY_AFTER_MAX: u64 = 5;

/// A JSON response with this body.
pub(super) fn json(status: StatusCode, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Appends a value as JSON. Strings, numbers and maps of strings cannot fail.
pub(super) fn push_json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let _ = serde_json::to_writer(out, value);
}

/// RFC 3339 with milliseconds.
pub(super) fn time(at: Timestamp) -> String {
    let ms = i64::try_from(at.0).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX).to_string()
}

/// A successful response about a claim.
#[derive(Default, Serialize)]
pub(super) struct ClaimResponse {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_ms: Option<u64>,
    /// Only if it is less than the lease: the request is a retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome_not_kept: Option<String>,
    /// Only if the fallback answered.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    degraded: bool,
}

impl ClaimResponse {
    pub(super) fn of(state: &'static str) -> Self {
        Self { state, ..Self::default() }
    }

    pub(super) fn renewed(lease_ms: u64) -> Self {
        Self { lease_ms: Some(lease_ms), ..Self::of("running") }
    }

    pub(super) fn granted(grant: &Grant, degraded: bool) -> Self {
        Self {
            token: Some(grant.token.to_string()),
            attempt: Some(grant.attempt),
            lease_ms: Some(grant.lease_ms),
            left_ms: Some(grant.left_ms).filter(|left| *left < grant.lease_ms),
            degraded,
            ..Self::of("granted")
        }
    }

    pub(super) fn done(outcome: Outcome, degraded: bool) -> Self {
        let (outcome, outcome_not_kept) = outcome_json(outcome);
        Self { outcome: Some(outcome), outcome_not_kept, degraded, ..Self::of("done") }
    }

    pub(super) fn response(&self, status: StatusCode) -> Response {
        let mut body = Vec::with_capacity(160);
        push_json(&mut body, self);
        json(status, body)
    }
}

/// The outcome as JSON, exactly as written. An operator's outcome that is not JSON becomes a string.
fn outcome_json(outcome: Outcome) -> (Box<RawValue>, Option<String>) {
    let bytes = match outcome {
        Outcome::Tombstone(reason) => return (RawValue::NULL.to_owned(), Some(reason)),
        Outcome::Kept(bytes) => bytes,
    };
    let raw = serde_json::from_slice(&bytes).or_else(|_| to_raw_value(&String::from_utf8_lossy(&bytes)));
    (raw.unwrap_or_else(|_| RawValue::NULL.to_owned()), None)
}

/// Why a claim is not granted, or why a token is not accepted.
#[derive(Serialize)]
pub(super) struct Conflict {
    #[serde(rename = "type")]
    kind: String,
    #[serde(skip)]
    code: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    doubt_since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    doubt_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome_not_kept: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    degraded: bool,
}

impl Conflict {
    fn new(status: StatusCode, code: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("/problems/{code}"),
            code,
            title,
            status: status.as_u16(),
            detail: detail.into(),
            state: None,
            retry_after_ms: None,
            doubt_since: None,
            doubt_reason: None,
            outcome: None,
            outcome_not_kept: None,
            degraded: false,
        }
    }

    pub(super) fn in_flight(retry_after_ms: u64, degraded: bool) -> Self {
        let detail = format!("Another caller holds the claim; its lease ends in {retry_after_ms} ms.");
        let conflict = Self::new(StatusCode::CONFLICT, "in-flight", "The claim is running", detail);
        Self { state: Some("running"), retry_after_ms: Some(retry_after_ms), degraded, ..conflict }
    }

    pub(super) fn in_doubt(doubt: &Doubt, degraded: bool) -> Self {
        let reason = doubt.reason.to_string();
        let detail = format!(
            "Nobody knows whether the effect happened: {reason}. The holder can still complete the claim, or an operator can resolve it."
        );
        let conflict = Self::new(StatusCode::CONFLICT, "in-doubt", "The claim is in doubt", detail);
        Self {
            state: Some("in-doubt"),
            doubt_since: Some(time(doubt.since)),
            doubt_reason: Some(reason),
            degraded,
            ..conflict
        }
    }

    pub(super) fn key_reused(degraded: bool) -> Self {
        let detail = "The key was used with another fingerprint.";
        let reused = StatusCode::UNPROCESSABLE_ENTITY;
        Self { degraded, ..Self::new(reused, "key-reused", "The key was used for another request", detail) }
    }

    /// Reports the current state: after a takeover, the outcome of the new holder counts.
    pub(super) fn stale(now: CurrentState) -> Self {
        let (state, detail) = match &now {
            CurrentState::Absent => ("absent", "There is no such claim."),
            CurrentState::Running => ("running", "The claim is held with another token."),
            CurrentState::InDoubt => ("in-doubt", "The claim is in doubt, under another token."),
            CurrentState::Done(_) => ("done", "The claim is done, and its outcome does not change."),
        };
        let conflict = Self::new(StatusCode::CONFLICT, "stale-token", "The token is not current", detail);
        let (outcome, outcome_not_kept) = match now {
            CurrentState::Done(outcome) => {
                let (outcome, not_kept) = outcome_json(outcome);
                (Some(outcome), not_kept)
            }
            CurrentState::Absent | CurrentState::Running | CurrentState::InDoubt => (None, None),
        };
        Self { state: Some(state), outcome, outcome_not_kept, ..conflict }
    }
}

impl IntoResponse for Conflict {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct WithError<'a> {
            #[serde(flatten)]
            conflict: &'a Conflict,
            error: ErrorMember<'a>,
        }
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::CONFLICT);
        let mut body = Vec::with_capacity(256);
        let error = ErrorMember::new(status, self.code, &self.detail);
        push_json(&mut body, &WithError { conflict: &self, error });
        let mut response = json(status, body);
        let headers = response.headers_mut();
        set_should_retry(headers, self.retry_after_ms.is_some());
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(ms) = self.retry_after_ms {
            // The effect may finish long before the lease ends.
            headers
                .insert(header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000).clamp(1, RETRY_AFTER_MAX)));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn as_told(bytes: &'static [u8]) -> String {
        outcome_json(Outcome::kept(bytes)).0.get().to_owned()
    }

    #[test]
    fn outcome_is_returned_as_written() {
        assert_eq!(
            as_told(br#"{"b": 12345678901234567890123, "a": 1.0}"#),
            r#"{"b": 12345678901234567890123, "a": 1.0}"#
        );
        assert_eq!(as_told(b"null"), "null");
        assert_eq!(as_told(b"by hand"), r#""by hand""#);
        assert_eq!(as_told(&[0xff]), "\"\u{fffd}\"");
        let (outcome, reason) = outcome_json(Outcome::Tombstone("too large".to_owned()));
        assert_eq!((outcome.get(), reason.as_deref()), ("null", Some("too large")));
    }

    #[test]
    fn every_timestamp_can_be_formatted() {
        assert_eq!(time(Timestamp(0)), "1970-01-01T00:00:00Z");
        assert!(time(Timestamp(u64::MAX)).starts_with("9999-"));
    }
}
