//! Parameters and responses of the operators' part of the event API, for its OpenAPI document.
//!
//! The responses themselves are types of the ledger. Nothing constructs these types.

#![expect(dead_code, reason = "only their schemas are used")]

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListParameters {
    /// Only keys that start with this text.
    #[param(required = false)]
    prefix: String,
    /// The most events on one page.
    #[param(required = false, minimum = 1, maximum = 1_000, default = 100)]
    limit: u64,
    /// The cursor of the page before.
    #[param(required = false)]
    cursor: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EventParameters {
    #[param(min_length = 1, max_length = 1024)]
    key: String,
}

#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EventPage {
    events: Vec<MarkedEvent>,
    /// The cursor of the next page, if there may be one.
    #[schema(required = true)]
    cursor: Option<String>,
    /// The ledger is unreachable: these are only the events that this process marked during the outage. Left out if
    /// false.
    #[schema(required = false)]
    degraded: bool,
}

/// An event that is marked.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MarkedEvent {
    key: String,
    /// The hash that identifies the key in a store, and in the log.
    index: String,
    /// Milliseconds since the Unix epoch; 0 if another program wrote the mark without a time.
    first_seen: u64,
    /// Milliseconds since the Unix epoch. Left out if another program wrote the mark without an expiry.
    #[schema(required = false)]
    expires_at: u64,
    /// The metadata of the first request.
    #[schema(required = false)]
    metadata: BTreeMap<String, String>,
    /// Marked by this process during an outage, and not handed over to the ledger yet. Left out if false.
    #[schema(required = false)]
    local: bool,
    /// How often the event was repeated, as far as the history tells; null if it does not. Left out in lists.
    #[schema(required = false)]
    repeats: Option<EventRepeats>,
}

/// How often an event was repeated, as the histories of this process tell.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EventRepeats {
    /// Repeats that were recorded.
    count: u64,
    /// Whether the history reaches back to the first delivery. Otherwise there may have been more.
    is_complete: bool,
}
