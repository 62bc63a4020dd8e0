//! What is known of an event beside its key: what is noted for people, and that it was sent before.

use http::{HeaderMap, HeaderName};
use ichido_core::Metadata;

use crate::json::Document;
use crate::options::Preset;
use crate::pointer::Pointer;

const SLACK_RETRY: HeaderName = HeaderName::from_static("x-slack-retry-num");
const SLACK_REASON: HeaderName = HeaderName::from_static("x-slack-retry-reason");
/// The reasons that Slack gives. Others are counted together: a label must not grow with what callers write.
const SLACK_REASONS: [&str; 6] =
    ["http_timeout", "http_error", "connection_failed", "ssl_error", "too_many_redirects", "unknown_error"];
/// A longer value is not noted: it is no id.
const NOTE_BYTES: usize = 256;

/// What is noted beside a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The first text or number that is found at these places of a JSON body.
    Place(Vec<Pointer>),
    /// The instance that took the request.
    Instance,
}

impl Note {
    /// The places of a JSON body that it may come from.
    pub(crate) fn places(&self) -> &[Pointer] {
        match self {
            Self::Place(places) => places,
            Self::Instance => &[],
        }
    }
}

/// The notes on a request.
pub(crate) fn notes(wanted: &[(String, Note)], document: &Document<'_>, instance: &str) -> Metadata {
    let value = |note: &Note| match note {
        Note::Instance => Some(instance.to_owned()),
        Note::Place(places) => {
            let found = places.iter().find_map(|place| document.text(place));
            found.filter(|text| text.len() <= NOTE_BYTES).map(ToOwned::to_owned)
        }
    };
    let pairs = wanted.iter().filter_map(|(name, note)| Some((name.clone(), value(note)?)));
    Metadata::new(pairs).unwrap_or_default()
}

/// What a sender says of an event that it sends again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retry {
    pub(crate) number: u32,
    pub(crate) reason: &'static str,
}

impl Retry {
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

    fn noted(body: &str) -> Vec<(String, String)> {
        let route = Preset::SlackEvents.route();
        let places: Vec<_> = route.metadata.iter().flat_map(|(_, note)| note.places()).collect();
        let notes = notes(&route.metadata, &Document::read(body.as_bytes(), true, &places), "me");
        notes.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn notes_on_slacks_events_are_those_of_the_shared_table() {
        let share = r#"{"event":{"channel":"C1","user":"U1","files":[{"id":"F1"},{"id":"F2"}]}}"#;
        let all = [("channel_id", "C1"), ("file_id", "F1"), ("lambda_instance_id", "me"), ("user_id", "U1")];
        assert_eq!(noted(share), pairs(&all));
        let shared = r#"{"event":{"channel_id":"C1","user_id":"U1","file_id":"F1","file":{"id":"F1"}}}"#;
        assert_eq!(noted(shared), pairs(&all));
        assert_eq!(
            noted("{\"event\":{\"channel\":{\"id\":\"C1\"}}}"),
            pairs(&[("lambda_instance_id", "me")])
        );
        let long = format!("{{\"event\":{{\"user\":\"{}\"}}}}", "U".repeat(10_000));
        assert_eq!(noted(&long), pairs(&[("lambda_instance_id", "me")]));
        assert_eq!(noted("no json"), pairs(&[("lambda_instance_id", "me")]));
    }

    #[test]
    fn a_retry_says_how_often_and_why() {
        let of = |number: &str, reason: &str| {
            let headers = HeaderMap::from_iter([
                (SLACK_RETRY, number.parse().unwrap()),
                (SLACK_REASON, reason.parse().unwrap()),
            ]);
            Retry::of(Some(Preset::SlackEvents), &headers)
        };
        assert_eq!(of("2", "http_timeout"), Some(Retry { number: 2, reason: "http_timeout" }));
        assert_eq!(of("1", "anything").unwrap().reason, "other");
        assert_eq!(of("x", "http_timeout"), None);
        assert_eq!(Retry::of(Some(Preset::SlackEvents), &HeaderMap::new()), None);
        let headers = HeaderMap::from_iter([(SLACK_RETRY, "1".parse().unwrap())]);
        assert_eq!(Retry::of(None, &headers), None);
    }
}
