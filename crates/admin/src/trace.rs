//! Follows one id: a record, a batch, a key, an event, a request or the hash of a key, through everything that this machine
//! has recorded about it.
//!
//! The command line and the console both use [`trace`]. Each place is looked into on its own, so a place that cannot be read
//! hides no other one. The result lists the places that were looked into, and those that were not, with the reason: an
//! empty answer must never be taken for evidence that nothing happened.

mod app;
mod audit;
mod claims;
mod delivery;
mod meter;

use std::collections::BTreeSet;
use std::time::Duration;

use ichido_core::{Timestamp, error_chain};
use ichido_delivery::store::Layout;
use ichido_delivery::time::iso;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::audit_log::AuditLog;
use crate::export_state::{ExportSearch, Exported};
use crate::histories::Histories;
use crate::operator::Operator;
use crate::state::UsageSource;

pub use self::app::trace_in;
pub(crate) use self::app::trace_in_meter;

/// The longest id, in characters.
pub const ID_CHARS_MAX: usize = 1024;
/// The most events in a timeline: the oldest ones.
const EVENTS_MAX: usize = 2_000;
/// The most keys and batches that an id leads to.
const KEYS_MAX: usize = 32;

/// Where a trace looks.
#[derive(Debug)]
pub struct Sources<'a, O> {
    /// The batches and receipts, or why there are none.
    pub delivery: Result<DeliverySource, String>,
    /// The claims and events, or why they cannot be read.
    pub ledger: Result<&'a O, String>,
    /// What was decided about keys.
    pub histories: Histories,
    /// What operators did.
    pub audit: AuditLog,
    /// What the meter counted, or why that cannot be read.
    pub meter: Result<UsageSource, String>,
    /// Finds a record in the state of the export, or says why it cannot.
    pub export: Result<ExportSearch, String>,
}

/// Batches and receipts on this machine.
#[derive(Clone, Debug)]
pub struct DeliverySource {
    /// The directories.
    pub layout: Layout,
    /// How long receipts are kept.
    pub receipt_retention: Duration,
}

/// A place that a trace looks into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// The state of the export.
    Export,
    /// The receipts of batches.
    Receipts,
    /// Batches that a process is sending.
    InFlight,
    /// Batches that wait for a resend.
    Spool,
    /// Batches that need an operator.
    Failed,
    /// The database of the meter.
    Meter,
    /// Claims and marks.
    Ledger,
    /// Decisions about keys.
    History,
    /// What operators did.
    Audit,
}

impl Place {
    /// All places, in the order in which a record passes them.
    pub const ALL: [Self; 9] = [
        Self::Export,
        Self::Receipts,
        Self::InFlight,
        Self::Spool,
        Self::Failed,
        Self::Meter,
        Self::Ledger,
        Self::History,
        Self::Audit,
    ];

    /// The name in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Export => "export",
            Self::Receipts => "receipts",
            Self::InFlight => "in-flight",
            Self::Spool => "spool",
            Self::Failed => "failed",
            Self::Meter => "meter",
            Self::Ledger => "ledger",
            Self::History => "history",
            Self::Audit => "audit",
        }
    }
}

/// Something that happened to an id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, as RFC 3339 in UTC.
    pub at: String,
    /// Where that is recorded.
    pub place: Place,
    /// What happened.
    pub event: String,
    /// The key of the batch, the claim or the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What else is known.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub details: Map<String, Value>,
    /// Sorts events of the same second as they happened.
    #[serde(skip)]
    at_ms: u64,
}

impl Event {
    fn new(at: Timestamp, place: Place, event: &str) -> Self {
        Self { at: iso(at), place, event: event.to_owned(), key: None, details: Map::new(), at_ms: at.0 }
    }

    fn key(self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self }
    }

    /// Adds a detail, if there is one.
    fn with(mut self, name: &str, value: impl Into<Option<Value>>) -> Self {
        self.details.extend(value.into().map(|value| (name.to_owned(), value)));
        self
    }

    /// The details as one line: `status=503 latency_ms=12`.
    pub fn details_line(&self) -> String {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        self.details
            .iter()
            .map(|(name, value)| format!("{name}={}", text(value)))
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// A place that was looked into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LookedInto {
    /// The place.
    pub place: Place,
    /// What exactly was searched.
    pub what: String,
    /// The number of events that it had.
    pub found: u64,
}

/// A place that was not looked into, or not completely.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NotLookedInto {
    /// The place.
    pub place: Place,
    /// Why.
    pub why: String,
}

/// What was found about an id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// The id.
    pub id: String,
    /// Whether anything was found.
    pub found: bool,
    /// What happened, oldest first.
    pub timeline: Vec<Event>,
    /// How many later events are left out.
    pub omitted: u64,
    /// The places that were looked into.
    pub looked_into: Vec<LookedInto>,
    /// The places that were not looked into, or not completely.
    pub not_looked_into: Vec<NotLookedInto>,
}

/// Whether a text can be an id.
pub fn is_id(text: &str) -> bool {
    (1..=ID_CHARS_MAX).contains(&text.chars().count())
}

/// Follows an id.
pub async fn trace<O: Operator>(sources: &Sources<'_, O>, id: &str, now: Timestamp) -> Trace {
    let mut search = Search { id: id.to_owned(), ..Search::default() };
    search.export(sources).await;
    search.batches(sources, now).await;
    search.meter(&sources.meter).await;
    search.history(&sources.histories).await;
    search.ledger(&sources.ledger).await;
    search.audit(&sources.audit).await;
    search.finish()
}

/// A search in progress: what was found, and the keys that it leads to.
#[derive(Debug, Default)]
struct Search {
    id: String,
    events: Vec<Event>,
    looked_into: Vec<LookedInto>,
    not_looked_into: Vec<NotLookedInto>,
    /// The keys of batches that contain or are the id.
    batches: BTreeSet<String>,
    /// The keys of claims and events that the id leads to.
    keys: BTreeSet<String>,
    /// The hashes of these keys, as the audit log has them.
    indexes: BTreeSet<String>,
}

impl Search {
    fn looked(&mut self, place: Place, what: impl Into<String>, events: Vec<Event>) {
        let found = events.len() as u64;
        self.looked_into.push(LookedInto { place, what: what.into(), found });
        self.events.extend(events);
    }

    fn not_looked(&mut self, place: Place, why: impl Into<String>) {
        self.not_looked_into.push(NotLookedInto { place, why: why.into() });
    }

    /// The id and what it leads to, as keys of claims and events. Bounded.
    fn possible_keys(&mut self, place: Place) -> Vec<String> {
        let others = self.keys.iter().chain(&self.batches).filter(|key| **key != self.id);
        let mut all: Vec<String> = std::iter::once(&self.id).chain(others).cloned().collect();
        if all.len() > KEYS_MAX {
            let left = all.len() - KEYS_MAX;
            self.not_looked(place, format!("the id leads to {left} more keys, which were not looked up"));
            all.truncate(KEYS_MAX);
        }
        all
    }

    async fn export<O>(&mut self, sources: &Sources<'_, O>) {
        let export = match &sources.export {
            Ok(export) => export.clone(),
            Err(why) => return self.not_looked(Place::Export, why.clone()),
        };
        let id = self.id.clone();
        match tokio::task::spawn_blocking(move || export.find(&id)).await {
            Ok(Exported { sent, searched, problems }) => {
                let event =
                    |(at, details)| Event { details, ..Event::new(at, Place::Export, "recorded-as-sent") };
                let id = self.id.clone();
                let events = sent.into_iter().map(event).map(|event| event.key(&id)).collect();
                self.looked(Place::Export, searched, events);
                problems.into_iter().for_each(|why| self.not_looked(Place::Export, why));
            }
            Err(error) => self.not_looked(Place::Export, error_chain(&error)),
        }
    }

    fn finish(mut self) -> Trace {
        self.events.sort_by_key(|event| event.at_ms);
        let omitted = self.events.len().saturating_sub(EVENTS_MAX);
        self.events.truncate(EVENTS_MAX);
        self.looked_into.sort_by_key(|looked| looked.place);
        self.not_looked_into.sort_by_key(|not_looked| not_looked.place);
        Trace {
            id: self.id,
            found: !self.events.is_empty(),
            timeline: self.events,
            omitted: omitted as u64,
            looked_into: self.looked_into,
            not_looked_into: self.not_looked_into,
        }
    }
}

#[cfg(test)]
mod tests;
