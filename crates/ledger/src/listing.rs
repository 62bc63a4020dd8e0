//! Listing: how operators see claims and marks.

use ichido_core::mark;
use ichido_core::{Holder, Metadata, Outcome, Phase, Record, Seen, Timestamp};
use serde::{Deserialize, Serialize};

/// Which claims to list.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Only claims in this state.
    pub state: Option<StateName>,
    /// Only claims whose key starts with this text.
    pub prefix: Option<String>,
    /// At most this many. A shorter page may still have a cursor.
    pub limit: usize,
    /// The cursor of the previous page.
    pub cursor: Option<String>,
}

impl Query {
    /// Whether a claim matches the query.
    pub fn wants(&self, summary: &Summary) -> bool {
        self.state.is_none_or(|state| state == summary.state)
            && self.prefix.as_ref().is_none_or(|prefix| summary.key.starts_with(prefix.as_str()))
    }
}

/// A page of claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The claims.
    pub claims: Vec<Summary>,
    /// The cursor of the next page, if there may be one.
    pub cursor: Option<String>,
    /// The ledger is unreachable: these are only the claims that this process granted during the outage.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub degraded: bool,
}

/// The state of a claim, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateName {
    /// Its lease is valid.
    Running,
    /// The effect may or may not have happened.
    InDoubt,
    /// Completed.
    Done,
}

impl StateName {
    /// The name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            StateName::Running => "running",
            StateName::InDoubt => "in-doubt",
            StateName::Done => "done",
        }
    }
}

/// A claim as operators see it: everything but its token and its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The caller's key.
    pub key: String,
    /// The tenant of its scope.
    pub tenant: String,
    /// The route of its scope.
    pub route: String,
    /// The hash that identifies the key in a store.
    pub index: String,
    /// Its state.
    pub state: StateName,
    /// Names this state of the claim: a newer grant and a renewed lease have another version.
    #[serde(default)]
    pub version: String,
    /// How often it was granted.
    pub attempt: u32,
    /// Who renews the lease.
    pub holder: Holder,
    /// When it was granted, in milliseconds since the epoch.
    pub claimed_at: Timestamp,
    /// When the lease was last renewed.
    pub renewed_at: Timestamp,
    /// When the lease ends or ended, for open claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<Timestamp>,
    /// When it became in doubt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt_since: Option<Timestamp>,
    /// Why it is in doubt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt_reason: Option<String>,
    /// When it was completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// When the record expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The size of the outcome; `None` for a tombstone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome_bytes: Option<usize>,
    /// The caller's metadata.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
    /// Granted by this process during an outage, and not handed over yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub local: bool,
}

impl Summary {
    /// The summary of a record. `None` if its retention is over.
    pub fn of(record: &Record, now: Timestamp) -> Option<Self> {
        let state = match record.phase(now) {
            Phase::Running { .. } => StateName::Running,
            Phase::InDoubt(_) => StateName::InDoubt,
            Phase::Done(_) => StateName::Done,
            Phase::Expired { .. } => return None,
        };
        let mut summary = Self {
            key: record.key.text().to_owned(),
            tenant: record.key.scope().tenant.clone(),
            route: record.key.scope().route.clone(),
            index: record.key.index().to_string(),
            state,
            version: Seen::of(record).version(),
            attempt: record.attempt,
            holder: record.holder,
            claimed_at: record.claimed_at,
            renewed_at: record.renewed_at,
            lease_until: None,
            doubt_since: None,
            doubt_reason: None,
            completed_at: None,
            expires_at: None,
            outcome_bytes: None,
            metadata: record.metadata.clone(),
            local: false,
        };
        match record.phase(now) {
            Phase::Running { .. } => summary.lease_until = Some(record.lease_until()),
            Phase::InDoubt(doubt) => {
                summary.doubt_since = Some(doubt.since);
                summary.doubt_reason = Some(doubt.reason.to_string());
                summary.expires_at = Some(record.expires_at());
            }
            Phase::Done(done) => {
                summary.completed_at = Some(done.completed_at);
                summary.expires_at = Some(record.expires_at());
                summary.outcome_bytes = match &done.outcome {
                    Outcome::Kept(bytes) => Some(bytes.len()),
                    Outcome::Tombstone(_) => None,
                };
            }
            Phase::Expired { .. } => return None,
        }
        Some(summary)
    }
}

/// Which marks to list.
#[derive(Clone, Debug, Default)]
pub struct MarkQuery {
    /// Only marks whose key starts with this text.
    pub prefix: Option<String>,
    /// At most this many. A shorter page may still have a cursor.
    pub limit: usize,
    /// The cursor of the previous page.
    pub cursor: Option<String>,
}

impl MarkQuery {
    /// The mark as it is listed, if it matches the query and has not expired.
    pub fn select(&self, record: &mark::Record, now: Timestamp) -> Option<MarkSummary> {
        let is_wanted =
            self.prefix.as_ref().is_none_or(|prefix| record.key.text().starts_with(prefix.as_str()));
        (is_wanted && now < record.expires_at).then(|| MarkSummary::of(record))
    }
}

/// A page of marks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkPage {
    /// The marks.
    #[serde(rename = "events")]
    pub marks: Vec<MarkSummary>,
    /// The cursor of the next page, if there may be one.
    pub cursor: Option<String>,
    /// The ledger is unreachable: these are only the events that this process marked during the outage.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub degraded: bool,
}

/// A mark as operators see it: everything but its nonce.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkSummary {
    /// The event.
    pub key: String,
    /// The hash that identifies the key in a store, and in the log.
    pub index: String,
    /// When the event was first seen, in milliseconds since the epoch. Zero if another program wrote the mark without
    /// a time.
    pub first_seen: Timestamp,
    /// When the mark expires. `None` if another program wrote it without an expiry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The metadata of the first caller.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
    /// Marked by this process during an outage, and not handed over yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub local: bool,
}

impl MarkSummary {
    /// The summary of a mark.
    pub fn of(record: &mark::Record) -> Self {
        Self {
            key: record.key.text().to_owned(),
            index: record.key.index().to_string(),
            first_seen: record.marked_at,
            expires_at: Some(record.expires_at).filter(|at| *at < Timestamp(u64::MAX)),
            metadata: record.metadata.clone(),
            local: false,
        }
    }
}
