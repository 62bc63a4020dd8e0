//! Looks for an id among decisions, claims and events.

use ichido_core::Timestamp;
use ichido_history::{Entry, History, parse_hash};
use ichido_ledger::{Query, StateName, Summary};
use serde_json::Value;

use super::{Event, Place, Search};
use crate::histories::{Histories, Unavailable};
use crate::operator::{Operator, PAGE_MAX, Refusal, instance};

/// The most pages of a search by prefix that are read for one key. A page may be short, and a scan has many.
const PAGES_MAX: usize = 20;
/// The most decisions about one key that are shown: the newest ones.
const DECISIONS_MAX: usize = 500;

impl Search {
    /// Looks into the history, by key, hash and request id. It may lead to keys.
    pub(super) async fn history(&mut self, histories: &Histories) {
        let wanted = self.possible_keys(Place::History);
        let read = move |history: &History| {
            let found: Result<Vec<Vec<Entry>>, _> = wanted.iter().map(|key| history.search(key)).collect();
            found.map(|found| (wanted.len(), found.into_iter().flatten().collect::<Vec<_>>()))
        };
        match histories.read(read).await {
            Ok((keys, mut entries)) => {
                let left_out = entries.len().saturating_sub(DECISIONS_MAX);
                entries.drain(..left_out);
                if left_out > 0 {
                    self.not_looked(Place::History, format!("{left_out} older decisions are left out"));
                }
                for entry in &entries {
                    self.keys.insert(entry.key.clone());
                    self.indexes.insert(entry.hash.clone());
                }
                let what =
                    format!("decisions about {keys} keys, hashes and request ids; older ones were removed");
                self.looked(Place::History, what, entries.iter().map(decision).collect());
            }
            Err(error @ (Unavailable::Off | Unavailable::Failed(_) | Unavailable::Interrupted(_))) => {
                self.not_looked(Place::History, error.to_string());
            }
        }
    }

    /// Looks for claims with these keys in any scope, and for events.
    pub(super) async fn ledger<O: Operator>(&mut self, ledger: &Result<&O, String>) {
        let operator = match ledger {
            Ok(operator) => *operator,
            Err(why) => return self.not_looked(Place::Ledger, why.clone()),
        };
        if self.keys.is_empty() && self.batches.is_empty() && parse_hash(&self.id).is_some() {
            let why = "if the id is the hash of a key: claims are found by key, and the history names no key with this hash";
            self.not_looked(Place::Ledger, why);
        }
        let keys = self.possible_keys(Place::Ledger);
        let mut events = Vec::new();
        for key in &keys {
            let found = self.claims(operator, key).await;
            let found = match found {
                Ok(claims) => claims,
                Err(refusal) => return self.not_looked(Place::Ledger, refusal.into_failure(key).to_string()),
            };
            events.extend(found);
            match operator.show_event(key).await {
                Ok(shown) => {
                    self.indexes.insert(shown.event.index.clone());
                    let event = Event::new(shown.event.first_seen, Place::Ledger, "marked").key(key);
                    events.push(event.with("instance", instance(&shown.event).map(Value::from)));
                }
                Err(Refusal::NoSuchEvent) => {}
                Err(refusal) => self.not_looked(Place::Ledger, refusal.into_failure(key).to_string()),
            }
        }
        self.looked(
            Place::Ledger,
            format!("claims and events with {} keys, in every scope", keys.len()),
            events,
        );
    }

    async fn claims(&mut self, operator: &impl Operator, key: &str) -> Result<Vec<Event>, Refusal> {
        let mut query = Query { state: None, prefix: Some(key.to_owned()), limit: PAGE_MAX, cursor: None };
        let mut events = Vec::new();
        for _ in 0..PAGES_MAX {
            let page = operator.list(&query).await?;
            for claim in page.claims.iter().filter(|claim| claim.key == key) {
                self.indexes.insert(claim.index.clone());
                events.extend(claim_events(claim));
            }
            let Some(cursor) = page.cursor else { return Ok(events) };
            query.cursor = Some(cursor);
        }
        let why = format!("too many claims: the search for the key {key:?} stopped after {PAGES_MAX} pages");
        self.not_looked(Place::Ledger, why);
        Ok(events)
    }
}

fn decision(entry: &Entry) -> Event {
    Event::new(Timestamp(entry.at), Place::History, &entry.result)
        .key(&entry.key)
        .with("route", Value::from(entry.route.clone()))
        .with("source", entry.source.clone().map(Value::from))
        .with("instance", Value::from(entry.instance.clone()))
        .with("request_id", entry.request_id.clone().map(Value::from))
        .with("fallback", entry.degraded.then_some(Value::from(true)))
        .with("detail", entry.detail.clone().map(Value::from))
}

/// When a claim was granted, and what became of it.
fn claim_events(claim: &Summary) -> Vec<Event> {
    let event = |at: Timestamp, event: &str| {
        Event::new(at, Place::Ledger, event)
            .key(&claim.key)
            .with(
                "tenant",
                Some(&claim.tenant).filter(|tenant| !tenant.is_empty()).map(|text| text.clone().into()),
            )
            .with("route", Value::from(claim.route.clone()))
    };
    let mut events = vec![event(claim.claimed_at, "claimed").with("attempt", Value::from(claim.attempt))];
    match claim.state {
        StateName::Running => events.extend(claim.lease_until.map(|until| {
            let until = ichido_delivery::time::iso(until);
            event(claim.renewed_at, "running").with("lease_until", Value::from(until))
        })),
        StateName::InDoubt => events.push(
            event(claim.doubt_since.unwrap_or(claim.renewed_at), "in-doubt")
                .with("reason", claim.doubt_reason.clone().map(Value::from)),
        ),
        StateName::Done => events.push(
            event(claim.completed_at.unwrap_or(claim.renewed_at), "done")
                .with("outcome_bytes", claim.outcome_bytes.map(Value::from)),
        ),
    }
    events
}
