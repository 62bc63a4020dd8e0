//! Settings that are one word of several.

use std::str::FromStr;

use crate::parse_error::SourceError;

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// As it is written in settings.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl FromStr for $name {
            type Err = SourceError;
            fn from_str(text: &str) -> Result<Self, SourceError> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(SourceError::new(format!("{text:?} is not one of: {}", [$($word),+].join(", ")))),
                }
            }
        }
    };
}

words! {
    /// Whether the rules of a route bind.
    Mode {
        /// They do.
        Enforce = "enforce",
        /// They are counted, and everything passes.
        Observe = "observe",
    }
}

words! {
    /// What a claim in doubt means for a repeat.
    InDoubt {
        /// 409 until someone knows.
        Reject = "reject",
        /// Run again.
        Retry = "retry",
    }
}

words! {
    /// What to do while the ledger is out.
    Outage {
        /// Refuse.
        Closed = "closed",
        /// Go on with a local ledger.
        Fallback = "fallback",
        /// Run unprotected.
        Open = "open",
    }
}

words! {
    /// What an answer of 5xx means.
    ServerErrors {
        /// An answer like any other.
        Store = "store",
        /// The route's word that nothing happened.
        Release = "release",
        /// Nobody knows.
        Doubt = "doubt",
    }
}

words! {
    /// What an answer of 4xx means, but for those that refuse (401, 403, 408, 425 and 429).
    ClientErrors {
        /// An answer like any other.
        Store = "store",
        /// The route's word that nothing happened.
        Release = "release",
        /// Nobody knows.
        Doubt = "doubt",
    }
}

words! {
    /// What `Cache-Control: no-store` in an answer means.
    NoStore {
        /// Nothing: that is about caches.
        Keep = "keep",
        /// The answer is not kept; the key is.
        Tombstone = "tombstone",
    }
}

words! {
    /// Whether a repeat gets the cookies of the first answer.
    SetCookie {
        /// It does not.
        Drop = "drop",
        /// It does.
        Keep = "keep",
    }
}

words! {
    /// Senders of events whose ways are known.
    Preset {
        /// Slack's Events API.
        SlackEvents = "slack-events",
        /// Webhooks of GitHub.
        GitHub = "github",
        /// Webhooks of Stripe.
        StripeEvents = "stripe-events",
        /// CloudEvents over HTTP, whoever sends them.
        CloudEvents = "cloudevents",
    }
}
