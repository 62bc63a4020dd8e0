//! What the sender of an event says about its retries.

use http::{HeaderMap, HeaderName};

use crate::options::Preset;

const SLACK_RETRY: HeaderName = HeaderName::from_static("x-slack-retry-num");
const SLACK_REASON: HeaderName = HeaderName::from_static("x-slack-retry-reason");
/// The reasons that Slack documents. All others share one metric label, so that callers cannot create labels.
const SLACK_REASONS: [&str; 6] =
    ["http_timeout", "http_error", "connection_failed", "ssl_error", "too_many_redirects", "unknown_error"];

/// A retry of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventRetry {
    pub(crate) number: u32,
    pub(crate) reason: &'static str,
}

impl EventRetry {
    pub(crate) fn of(preset: Option<Preset>, headers: &HeaderMap) -> Option<Self> {
        if preset != Some(Preset::SlackEvents) {
            return None;
        }
        let number = headers.get(SLACK_RETRY)?.to_str().ok()?.parse().ok()?;
        let reason = headers.get(SLACK_REASON).and_then(|reason| reason.to_str().ok()).unwrap_or_default();
        let reason = SLACK_REASONS.into_iter().find(|known| *known == reason).unwrap_or("other");
        Some(Self { number, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_has_a_number_and_a_known_reason() {
        let of = |number: &str, reason: &str| {
            let headers = HeaderMap::from_iter([
                (SLACK_RETRY, number.parse().unwrap()),
                (SLACK_REASON, reason.parse().unwrap()),
            ]);
            EventRetry::of(Some(Preset::SlackEvents), &headers)
        };
        assert_eq!(of("2", "http_timeout"), Some(EventRetry { number: 2, reason: "http_timeout" }));
        assert_eq!(of("1", "anything").unwrap().reason, "other");
        assert_eq!(of("x", "http_timeout"), None);
        assert_eq!(EventRetry::of(Some(Preset::SlackEvents), &HeaderMap::new()), None);
        let headers = HeaderMap::from_iter([(SLACK_RETRY, "1".parse().unwrap())]);
        assert_eq!(EventRetry::of(None, &headers), None);
    }
}
