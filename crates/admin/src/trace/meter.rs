//! Looks for an id in what the meter counted: records, and receipts of batches.

use ichido_core::{Timestamp, error_chain};
use ichido_delivery::time::parse_iso;
use ichido_meter::report::{CountedRecord, FoundRecord};
use ichido_meter::store::{Receipt, ReceiptEntry};
use serde_json::Value;

use super::{Event, KEYS_MAX, Place, Search};
use crate::state::UsageSource;

impl Search {
    pub(super) async fn meter(&mut self, meter: &Result<UsageSource, String>) {
        let usage = match meter {
            Ok(usage) => usage,
            Err(why) => return self.not_looked(Place::Meter, why.clone()),
        };
        // PostgreSQL stores no such text.
        if self.id.contains('\0') {
            return self.looked(Place::Meter, "no record has an id with a NUL", Vec::new());
        }
        let mut events = Vec::new();
        for tenant in &usage.tenants {
            let record = match usage.store.find(tenant, &self.id).await {
                Ok(record) => record,
                Err(error) => return self.not_looked(Place::Meter, error_chain(&error)),
            };
            if let Some(FoundRecord { batch: Some(batch), .. }) = &record {
                self.batches.insert(batch.clone());
            }
            events.extend(record.map(|record| counted(&record, tenant)));
            let others = self.batches.iter().filter(|batch| **batch != self.id);
            for batch in std::iter::once(&self.id).chain(others).take(KEYS_MAX) {
                match usage.store.receipt(tenant, batch).await {
                    Ok(receipt) => {
                        events.extend(receipt.iter().flat_map(|receipt| received(receipt, tenant)))
                    }
                    Err(error) => return self.not_looked(Place::Meter, error_chain(&error)),
                }
            }
        }
        let what = format!("records and receipts of {} tenants", usage.tenants.len());
        self.looked(Place::Meter, what, events);
    }
}

fn counted(found: &FoundRecord, tenant: &str) -> Event {
    let at = Timestamp(u64::try_from(found.received_at).unwrap_or_default());
    let CountedRecord { usage_date, provider, model, total_tokens, cost_actual, currency, .. } =
        &found.record;
    Event::new(at, Place::Meter, "counted")
        .key(&found.record.source_event_id)
        .with("tenant", Value::from(tenant))
        .with("batch", found.batch.clone().map(Value::from))
        .with("usage_date", Value::from(usage_date.clone()))
        .with("model", Value::from(format!("{provider}/{model}")))
        .with("total_tokens", Value::from(*total_tokens))
        .with("cost", Value::from(format!("{cost_actual} {currency}")))
}

/// The first response to a batch, and the last one, if there were several.
fn received(receipt: &Receipt, tenant: &str) -> Vec<Event> {
    let event = |entry: &ReceiptEntry, event: &str| {
        let answer: Value = serde_json::from_str(entry.answer.get()).unwrap_or_default();
        let field = |name: &str| answer.get(name).cloned();
        Event::new(parse_iso(&entry.at).unwrap_or_default(), Place::Meter, event)
            .key(&receipt.batch)
            .with("tenant", Value::from(tenant))
            .with("status", field("status"))
            .with("inserted", field("inserted"))
            .with("duplicates", field("duplicates"))
            .with("invalid", field("invalid"))
    };
    let mut events = vec![event(&receipt.first, "received")];
    if receipt.times > 1 {
        events.push(event(&receipt.last, "received-again").with("times", Value::from(receipt.times)));
    }
    events
}
