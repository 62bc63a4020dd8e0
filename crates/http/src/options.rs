//! Settings with a fixed set of values.

use std::str::FromStr;

use crate::parse_error::ParseError;

macro_rules! options {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// The value as written in settings.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl FromStr for $name {
            type Err = ParseError;
            fn from_str(text: &str) -> Result<Self, ParseError> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    _ => Err(ParseError::new(format!("{text:?} is not one of: {}", [$($text),+].join(", ")))),
                }
            }
        }
    };
}

pub(crate) use options;

options! {
    /// Whether the rules of a route are enforced.
    Mode {
        /// Requests are claimed, replayed and refused.
        Enforce = "enforce",
        /// Every request passes; what enforcement would have done is counted and logged.
        Observe = "observe",
    }
}

options! {
    /// What happens to a retry of a request in doubt.
    InDoubt {
        /// It gets a 409 until the claim is resolved.
        Reject = "reject",
        /// It runs again.
        Retry = "retry",
    }
}

options! {
    /// Which answers of a service settle a claim in doubt without an operator.
    Automatic {
        /// None: the service is asked only when an operator wants it.
        Off = "off",
        /// The effect happened.
        Done = "done",
        /// The effect happened, or it did not.
        Both = "both",
    }
}

options! {
    /// What retries get once the service has confirmed an effect in doubt.
    AnswerKept {
        /// They learn that the response was not kept.
        None = "none",
        /// The answer of the service.
        Response = "response",
    }
}

options! {
    /// What happens to keyed requests while the ledger is unavailable.
    Outage {
        /// They are refused.
        Closed = "closed",
        /// They are claimed in a local ledger.
        Fallback = "fallback",
        /// They run without a claim.
        Open = "open",
    }
}

options! {
    /// What a 5xx response means.
    ServerErrors {
        /// It is stored and replayed like any other response.
        Store = "store",
        /// Nothing happened: the key is free again.
        Release = "release",
        /// The effect may have happened: the claim is in doubt.
        Doubt = "doubt",
    }
}

options! {
    /// What a 4xx response means, except for 401, 403, 408, 425 and 429, which always release the key.
    ClientErrors {
        /// It is stored and replayed like any other response.
        Store = "store",
        /// Nothing happened: the key is free again.
        Release = "release",
        /// The effect may have happened: the claim is in doubt.
        Doubt = "doubt",
    }
}

options! {
    /// What `Cache-Control: no-store` in a response means.
    NoStore {
        /// The response is stored: the directive is about caches.
        Keep = "keep",
        /// Only the key is stored, not the response.
        Tombstone = "tombstone",
    }
}

options! {
    /// Whether a replay includes the cookies of the first response.
    SetCookie {
        /// `Set-Cookie` is not stored.
        Drop = "drop",
        /// `Set-Cookie` is stored and replayed.
        Keep = "keep",
    }
}

options! {
    /// A known sender of events.
    Preset {
        /// Slack's Events API.
        SlackEvents = "slack-events",
        /// GitHub webhooks.
        GitHub = "github",
        /// Stripe webhooks.
        StripeEvents = "stripe-events",
        /// Standard Webhooks, from any sender.
        StandardWebhooks = "standard-webhooks",
        /// CloudEvents over HTTP, from any sender.
        CloudEvents = "cloudevents",
    }
}
