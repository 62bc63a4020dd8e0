//! Looks for what operators did to an id: to its claims and events, and to its batches.

use ichido_core::{Timestamp, error_chain};
use ichido_delivery::time::parse_iso;
use serde_json::Value;

use super::{Event, Place, Search};
use crate::audit_log::{AuditLog, Entry, Snapshot, Step};

/// The fewest characters of a hash that identify a key: as many as the log prints.
const HASH_CHARS: usize = 16;

impl Search {
    pub(super) async fn audit(&mut self, audit: &AuditLog) {
        let Some(dir) = audit.dir().map(|dir| dir.display().to_string()) else {
            return self.not_looked(Place::Audit, "admin.audit_dir is off");
        };
        let (log, wanted) = (audit.clone(), Wanted::of(self));
        let read = tokio::task::spawn_blocking(move || match log.snapshot() {
            Ok(Some(snapshot)) => entries(&snapshot, &wanted).map_err(|error| error.to_string()),
            Ok(None) => Ok((Vec::new(), 0)),
            Err(error) => Err(error_chain(&error)),
        });
        match read.await {
            Ok(Ok((events, unreadable))) => {
                self.looked(Place::Audit, dir, events);
                if unreadable > 0 {
                    let why = format!("{unreadable} lines cannot be read; run `ichido audit verify`");
                    self.not_looked(Place::Audit, why);
                }
            }
            Ok(Err(why)) => self.not_looked(Place::Audit, why),
            Err(error) => self.not_looked(Place::Audit, error_chain(&error)),
        }
    }
}

/// What entries must be about.
struct Wanted {
    id: String,
    indexes: Vec<String>,
    batches: Vec<String>,
    /// Where batches of this id were from when on: actions on a whole directory included them.
    moves: Vec<Move>,
}

/// A batch moved to a directory, or was delivered.
struct Move {
    batch: String,
    at_ms: u64,
    to: Option<&'static str>,
}

impl Wanted {
    fn of(search: &Search) -> Self {
        let to = |event: &Event| match &*event.event {
            "spooled" | "waiting-in-spool" => Some(Some("spool")),
            "failed" | "waiting-in-failed" => Some(Some("failed")),
            "delivered" | "accepted" | "split" => Some(None),
            _ => None,
        };
        let moved =
            |event: &Event| Some(Move { batch: event.key.clone()?, at_ms: event.at_ms, to: to(event)? });
        let mut moves: Vec<Move> = search.events.iter().filter_map(moved).collect();
        moves.sort_by_key(|moved| moved.at_ms);
        Self {
            id: search.id.clone(),
            indexes: search.indexes.iter().cloned().collect(),
            batches: search.batches.iter().cloned().collect(),
            moves,
        }
    }

    fn is(&self, entry: &Entry) -> bool {
        let action = &entry.action;
        let is_hash =
            |text: &str| text.len() >= HASH_CHARS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let starts = |long: &str, short: &str| is_hash(short) && long.starts_with(short);
        let is_index = |index: &String| {
            self.indexes.iter().any(|known| starts(known, index) || starts(index, known))
                || starts(index, &self.id)
        };
        // Operators name batches by the start of their keys.
        let is_batch = |named: &String| {
            !named.is_empty()
                && (self.batches.iter().any(|batch| batch.starts_with(named)) || *named == self.id)
        };
        action.index.as_ref().is_some_and(is_index)
            || action.batches.iter().any(is_batch)
            || self.is_about_directory(entry)
    }

    /// Whether the action was on all batches of a directory that a batch of this id was in.
    fn is_about_directory(&self, entry: &Entry) -> bool {
        let Some(place) = entry.action.place.as_deref().filter(|_| entry.action.batches.is_empty()) else {
            return false;
        };
        let at_ms = time(entry).0;
        let last = |batch: &String| {
            self.moves.iter().rev().find(|moved| moved.batch == *batch && moved.at_ms <= at_ms)
        };
        self.batches.iter().filter_map(last).any(|moved| moved.to == Some(place))
    }
}

fn entries(snapshot: &Snapshot, wanted: &Wanted) -> std::io::Result<(Vec<Event>, u64)> {
    let mut events: Vec<(u64, Event)> = Vec::new();
    let unreadable = snapshot.each(|entry, _| {
        // A result repeats its intent.
        let intent = entry.intent.and_then(|intent| events.iter().position(|(seq, _)| *seq == intent));
        if intent.is_none() && !wanted.is(&entry) {
            return;
        }
        if let Some(at) = intent {
            events.remove(at);
        }
        events.push((entry.seq, event(&entry)));
    })?;
    Ok((events.into_iter().map(|(_, event)| event).collect(), unreadable))
}

fn time(entry: &Entry) -> Timestamp {
    parse_iso(&entry.time).unwrap_or_default()
}

fn event(entry: &Entry) -> Event {
    let Entry { actor, action, outcome, .. } = entry;
    let result = match entry.step {
        Step::Intent => Some("no result recorded".to_owned()),
        Step::Result | Step::Event => outcome.result.clone(),
    };
    let text = |text: &Option<String>| text.clone().map(Value::from);
    let key = action.batches.first().or(action.index.as_ref());
    let event = Event::new(time(entry), Place::Audit, &action.action)
        .with("who", Value::from(actor.who.clone()))
        .with("from", Value::from(actor.from.clone()))
        .with("place", text(&action.place))
        .with("before", text(&action.before))
        .with("after", text(&outcome.after))
        .with("result", text(&result))
        .with("reason", text(&action.reason))
        .with("audit_seq", Value::from(entry.seq));
    match key {
        Some(key) => event.key(key),
        None => event,
    }
}
