//! The result of one request to the receiver.

use std::fmt;
use std::time::Duration;

use ichido_core::Timestamp;

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// The receiver sent a response.
    Responded(Response),
    /// No response arrived.
    Failed(TransportError),
}

/// The relevant parts of a response.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The `Retry-After` header, as it was sent.
    pub retry_after: Option<String>,
    /// The start of the body.
    pub body: Vec<u8>,
    /// Whether the body was longer than what was read.
    pub cut: bool,
}

/// Prints no content: a receiver may echo what it was sent.
impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Response({}, {} bytes)", self.status, self.body.len())
    }
}

/// Why no response arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportError {
    /// The kind of error.
    pub kind: TransportErrorKind,
    /// What happened. Contains no secret.
    pub message: String,
    /// How much of the request body was sent.
    pub sent: BodySent,
}

/// How much of a request body was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodySent {
    /// Not all of it: the receiver cannot have processed the request.
    Partial,
    /// All of it was passed to the connection: the receiver may have processed the request.
    Complete,
}

/// The kinds of transport errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportErrorKind {
    /// No connection could be established, or it broke.
    Network,
    /// The request timed out.
    Timeout,
    /// The server's certificate was not accepted, or the TLS handshake failed.
    Tls,
}

impl Exchange {
    /// The result as one short text, without the response body: `HTTP 503 Service Unavailable`, or the error message.
    pub fn short(&self) -> String {
        match self {
            Exchange::Responded(response) => {
                let reason =
                    http::StatusCode::from_u16(response.status).ok().and_then(|code| code.canonical_reason());
                format!("HTTP {} {}", response.status, reason.unwrap_or_default()).trim_end().to_owned()
            }
            Exchange::Failed(transport_error) => transport_error.message.clone(),
        }
    }

    /// The HTTP status, if there was a response.
    pub fn status(&self) -> Option<u16> {
        match self {
            Exchange::Responded(response) => Some(response.status),
            Exchange::Failed(_) => None,
        }
    }

    /// The value of `errorKind` in log lines.
    pub fn error_kind(&self) -> &'static str {
        match self {
            Exchange::Responded(_) => "http",
            Exchange::Failed(transport_error) => match transport_error.kind {
                TransportErrorKind::Network => "network",
                TransportErrorKind::Timeout => "timeout",
                TransportErrorKind::Tls => "tls",
            },
        }
    }
}

/// The time that a `Retry-After` header names, in seconds or as a date. Anything else is ignored.
pub fn retry_after(text: &str, now: Timestamp) -> Option<Timestamp> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that overflows means a very long time.
        let seconds: u64 = text.parse().unwrap_or(u64::MAX);
        return Some(now + seconds.saturating_mul(1000));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    let since = date.duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Some(Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000);

    fn responded(status: u16, body: &str) -> Exchange {
        Exchange::Responded(Response { status, body: body.as_bytes().to_vec(), ..Response::default() })
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        assert_eq!(retry_after("7", NOW), Some(NOW + 7_000));
        assert_eq!(retry_after(" 0 ", NOW), Some(NOW));
        assert_eq!(retry_after("Tue, 14 Nov 2023 22:13:27 GMT", NOW), Some(NOW + 7_000));
        assert_eq!(retry_after("99999999999999999999999", NOW), Some(Timestamp(u64::MAX)));
        for text in ["", "-1", "1.5", "soon", "7 s", "Tue, 99 Nov 2023 22:13:27 GMT"] {
            assert_eq!(retry_after(text, NOW), None, "{text}");
        }
    }

    #[test]
    fn exchange_is_described_by_status_and_reason() {
        assert_eq!(responded(503, "x").short(), "HTTP 503 Service Unavailable");
        assert_eq!(responded(599, "x").short(), "HTTP 599");
    }
}
