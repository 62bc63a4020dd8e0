//! Presets: how known senders of events name them, sign them and repeat them.
//!
//! An event is handled when the service has answered with success. An answer that refuses the request as it is (400,
//! 404, 405, 413, 415, 422, and 401 or 503 as everywhere) releases the claim: a wrong secret at the service must not
//! block the sender's retries after it was corrected. After any other answer the claim is in doubt, and neither run
//! again nor forgotten, until someone knows. Events carry no credentials that name a tenant, and the ids of a sender are
//! its own.

use std::time::Duration;

use crate::events::Note;
use crate::key_source::KeySource;
use crate::options::{Outage, Preset, ServerErrors};
use crate::pointer::Pointer;
use crate::rules::{FingerprintRule, InFlight, Match, Route};
use crate::signature::Scheme;
use crate::tenant::Tenant;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Slack hangs up after three seconds: a repeat that waits is answered before that.
const SLACK_WAIT: Duration = Duration::from_millis(2500);
const WAIT: Duration = Duration::from_secs(5);

impl Preset {
    /// A route for events of this sender: `POST` on every path, unless it is told otherwise.
    pub fn route(self) -> Route {
        let route = Route {
            matches: Match::posts(),
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
            // Commands, clicks and the challenge come to the same address and have no id.
            Self::SlackEvents => Route {
                required: false,
                in_flight: InFlight::Wait(SLACK_WAIT),
                unclaimed: Some((Pointer::known("/type"), "url_verification".to_owned())),
                metadata: slack_notes(),
                ..route
            },
            Self::GitHub | Self::StripeEvents | Self::CloudEvents => route,
        }
    }

    /// How this sender signs its requests, if it does.
    pub fn scheme(self) -> Option<Scheme> {
        match self {
            Self::SlackEvents => Some(Scheme::Slack),
            Self::GitHub => Some(Scheme::GitHub),
            Self::StripeEvents => Some(Scheme::Stripe),
            Self::CloudEvents => None,
        }
    }

    fn keys(self) -> Vec<KeySource> {
        let texts: &[&str] = match self {
            Self::SlackEvents => &["json:/event_id", "template:{/event/files/0/id}_{/event/ts}"],
            Self::GitHub => &["header:X-GitHub-Delivery"],
            Self::StripeEvents => &["json:/id"],
            Self::CloudEvents => &["cloudevents"],
        };
        texts.iter().filter_map(|text| text.parse().ok()).collect()
    }

    /// Longer than the sender may repeat an event.
    fn retention(self) -> Duration {
        match self {
            // Three retries within six minutes; an hour later, where delayed events are switched on.
            Self::SlackEvents => 6 * HOUR,
            // Redelivered on request for three days; sent again by itself for three days.
            Self::GitHub | Self::StripeEvents => 4 * DAY,
            // The specification does not say.
            Self::CloudEvents => DAY,
        }
    }
}

/// The names are those of the DynamoDB table that consumers share.
fn slack_notes() -> Vec<(String, Note)> {
    let place = |name: &str, places: &[&'static str]| {
        (name.to_owned(), Note::Place(places.iter().map(|place| Pointer::known(place)).collect()))
    };
    vec![
        place("file_id", &["/event/files/0/id", "/event/file_id", "/event/file/id"]),
        place("channel_id", &["/event/channel", "/event/channel_id"]),
        place("user_id", &["/event/user", "/event/user_id"]),
        ("lambda_instance_id".to_owned(), Note::Instance),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(preset: Preset) -> Vec<String> {
        preset.route().keys.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_preset_knows_where_the_key_stands() {
        assert_eq!(keys(Preset::SlackEvents), ["json:/event_id", "template:{/event/files/0/id}_{/event/ts}"]);
        assert_eq!(keys(Preset::GitHub), ["header:x-github-delivery"]);
        assert_eq!(keys(Preset::StripeEvents), ["json:/id"]);
        assert_eq!(keys(Preset::CloudEvents), ["cloudevents"]);
    }

    #[test]
    fn an_unknown_preset_is_answered_with_the_known_ones() {
        let message = "slack".parse::<Preset>().unwrap_err().to_string();
        assert_eq!(message, "\"slack\" is not one of: slack-events, github, stripe-events, cloudevents");
    }
}
