//! Presets: how known senders of events identify, sign and retry them.
//!
//! An event is handled when the service has responded with success. A response that rejects the request as it is (400,
//! 404, 405, 413, 415, 422, and 401 or 503 as on every route) releases the claim: a wrong secret at the service must not
//! block the sender's retries once it has been corrected. Any other response leaves the claim in doubt: the event is
//! neither run again nor forgotten until someone resolves the claim. Events carry no credentials that identify a tenant,
//! and every sender has its own ids.

use std::time::Duration;

use crate::key_source::KeySource;
use crate::metadata::MetadataSource;
use crate::options::{Outage, Preset, ServerErrors};
use crate::pointer::Pointer;
use crate::rules::{ContentRule, FingerprintRule, InFlight, Match, Route};
use crate::signature::Scheme;
use crate::tenant::Tenant;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Slack disconnects after three seconds, so a retry that waits gets its response before that.
const SLACK_WAIT: Duration = Duration::from_millis(2500);
const WAIT: Duration = Duration::from_secs(5);

impl Preset {
    /// A route for the events of this sender: `POST` on every path. Change the fields that differ.
    pub fn route(self) -> Route {
        let route = Route {
            matches: Match::any_post(),
            preset: Some(self),
            tenant: Some(Tenant::None),
            keys: self.keys(),
            in_flight: InFlight::Wait(WAIT),
            outage: Outage::Fallback,
            server_errors: Some(ServerErrors::Doubt),
            retention: self.retention(),
            fingerprint: FingerprintRule::None,
            ..Route::default()
        };
        match self {
            // Slash commands, interactions and the URL challenge arrive at the same path and have no id.
            Self::SlackEvents => Route {
                required: false,
                in_flight: InFlight::Wait(SLACK_WAIT),
                unclaimed: Some((Pointer::known("/type"), "url_verification".to_owned())),
                metadata: slack_metadata(),
                content: vec![slack_file()],
                ..route
            },
            Self::GitHub | Self::StripeEvents | Self::StandardWebhooks | Self::CloudEvents => route,
        }
    }

    /// How this sender signs its requests, if it does.
    pub fn scheme(self) -> Option<Scheme> {
        match self {
            Self::SlackEvents => Some(Scheme::Slack),
            Self::GitHub => Some(Scheme::GitHub),
            Self::StripeEvents => Some(Scheme::Stripe),
            Self::StandardWebhooks => Some(Scheme::StandardWebhooks),
            Self::CloudEvents => None,
        }
    }

    fn keys(self) -> Vec<KeySource> {
        let texts: &[&str] = match self {
            Self::SlackEvents => &["json:/event_id", "template:{/event/files/0/id}_{/event/ts}"],
            Self::GitHub => &["header:X-GitHub-Delivery"],
            Self::StripeEvents => &["json:/id"],
            Self::StandardWebhooks => &["header:webhook-id"],
            Self::CloudEvents => &["cloudevents"],
        };
        texts.iter().filter_map(|text| text.parse().ok()).collect()
    }

    /// Longer than the sender may retry an event.
    fn retention(self) -> Duration {
        match self {
            // Three retries within six minutes, and an hour later if delayed events are enabled.
            Self::SlackEvents => 6 * HOUR,
            // GitHub redelivers on request, and Stripe and OpenAI retry by themselves, for three days.
            Self::GitHub | Self::StripeEvents | Self::StandardWebhooks => 4 * DAY,
            // The specification sets no limit.
            Self::CloudEvents => DAY,
        }
    }
}

/// Where the events of Slack have the id of a file.
const SLACK_FILE_IDS: [&str; 3] = ["/event/files/0/id", "/event/file_id", "/event/file/id"];

/// A shared file is announced by two events, `message` and `file_shared`, each with an id of its own.
fn slack_file() -> ContentRule {
    let sources = SLACK_FILE_IDS.map(|pointer| KeySource::Json(Pointer::known(pointer)));
    ContentRule { name: "file".to_owned(), sources: sources.to_vec() }
}

/// The names are the attribute names of the DynamoDB table that other consumers share.
fn slack_metadata() -> Vec<(String, MetadataSource)> {
    let body = |name: &str, pointers: &[&'static str]| {
        let pointers = pointers.iter().map(|pointer| Pointer::known(pointer)).collect();
        (name.to_owned(), MetadataSource::Body(pointers))
    };
    vec![
        body("file_id", &SLACK_FILE_IDS),
        body("channel_id", &["/event/channel", "/event/channel_id"]),
        body("user_id", &["/event/user", "/event/user_id"]),
        ("lambda_instance_id".to_owned(), MetadataSource::Instance),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Document;
    use crate::metadata;

    fn keys(preset: Preset) -> Vec<String> {
        preset.route().keys.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_preset_knows_its_key_sources() {
        assert_eq!(keys(Preset::SlackEvents), ["json:/event_id", "template:{/event/files/0/id}_{/event/ts}"]);
        assert_eq!(keys(Preset::GitHub), ["header:x-github-delivery"]);
        assert_eq!(keys(Preset::StripeEvents), ["json:/id"]);
        assert_eq!(keys(Preset::StandardWebhooks), ["header:webhook-id"]);
        assert_eq!(keys(Preset::CloudEvents), ["cloudevents"]);
    }

    #[test]
    fn the_error_for_an_unknown_preset_lists_the_known_ones() {
        let message = "slack".parse::<Preset>().unwrap_err().to_string();
        let known = "slack-events, github, stripe-events, standard-webhooks, cloudevents";
        assert_eq!(message, format!("\"slack\" is not one of: {known}"));
    }

    fn slack_event(body: &str) -> Vec<(String, String)> {
        let route = Preset::SlackEvents.route();
        let pointers: Vec<_> = route.metadata.iter().flat_map(|(_, source)| source.pointers()).collect();
        let document = Document::read(body.as_bytes(), true, &pointers);
        let metadata = metadata::of_request(&route.metadata, &document, "me", []);
        metadata.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_metadata_of_slack_events_is_that_of_the_shared_table() {
        let share = r#"{"event":{"channel":"C1","user":"U1","files":[{"id":"F1"},{"id":"F2"}]}}"#;
        let all = [("channel_id", "C1"), ("file_id", "F1"), ("lambda_instance_id", "me"), ("user_id", "U1")];
        assert_eq!(slack_event(share), pairs(&all));
        let shared = r#"{"event":{"channel_id":"C1","user_id":"U1","file_id":"F1","file":{"id":"F1"}}}"#;
        assert_eq!(slack_event(shared), pairs(&all));
        let instance_only = pairs(&[("lambda_instance_id", "me")]);
        assert_eq!(slack_event("{\"event\":{\"channel\":{\"id\":\"C1\"}}}"), instance_only);
        let long = format!("{{\"event\":{{\"user\":\"{}\"}}}}", "U".repeat(10_000));
        assert_eq!(slack_event(&long), instance_only);
        assert_eq!(slack_event("no json"), instance_only);
    }
}
