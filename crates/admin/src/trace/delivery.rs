//! Looks for an id in receipts, and in the batches that are being sent, in the spool and in failed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use ichido_core::{Timestamp, error_chain};
use ichido_delivery::disk;
use ichido_delivery::receipt::Disposition;
use ichido_delivery::receipt::read::{Matches, Receipt, ReceiptFiles, is_key_prefix};
use ichido_delivery::store::{BatchDir, FileName, Layout, StoredBatch, read_in_flight};
use ichido_delivery::time::{iso, parse_iso};
use serde_json::Value;

use super::{DeliverySource, Event, Place, Search, Sources};

/// The most files of a directory whose records are searched. Batches that receipts lead to are found by name.
const FILES_MAX: usize = 2_000;

/// What was found in one place.
#[derive(Debug, Default)]
struct Part {
    what: String,
    events: Vec<Event>,
    problems: Vec<String>,
}

impl Search {
    /// Looks into everything that delivery has on disk.
    pub(super) async fn batches<O>(&mut self, sources: &Sources<'_, O>, now: Timestamp) {
        const PLACES: [Place; 4] = [Place::Receipts, Place::InFlight, Place::Spool, Place::Failed];
        let source = match &sources.delivery {
            Ok(source) => source.clone(),
            Err(why) => return PLACES.into_iter().for_each(|place| self.not_looked(place, why.clone())),
        };
        let id = self.id.clone();
        let searched = tokio::task::spawn_blocking(move || search(&source, &id, now)).await;
        match searched {
            Ok((batches, parts)) => {
                self.batches = batches;
                for (place, part) in PLACES.into_iter().zip(parts) {
                    self.looked(place, part.what, part.events);
                    part.problems.into_iter().for_each(|why| self.not_looked(place, why));
                }
            }
            Err(error) => PLACES.into_iter().for_each(|place| self.not_looked(place, error_chain(&error))),
        }
    }
}

fn search(source: &DeliverySource, id: &str, now: Timestamp) -> (BTreeSet<String>, [Part; 4]) {
    let (receipts, mut batches) = receipts(source, id, now);
    let layout = &source.layout;
    let (in_flight, found) = in_flight(layout, &Wanted { id, batches: &batches });
    batches.extend(found);
    let (spool, found) = directory(layout, BatchDir::Spool, &Wanted { id, batches: &batches });
    batches.extend(found);
    let (failed, found) = directory(layout, BatchDir::Failed, &Wanted { id, batches: &batches });
    batches.extend(found);
    let mut parts = [receipts, in_flight, spool, failed];
    put_last(&mut parts);
    (batches, parts)
}

/// A batch is where it is since its last pass ended: what its file says about now comes after its receipts.
fn put_last(parts: &mut [Part; 4]) {
    let [receipts, others @ ..] = parts;
    for event in others.iter_mut().flat_map(|part| &mut part.events) {
        let of_batch = receipts.events.iter().filter(|receipt| receipt.key == event.key);
        if let Some(last) = of_batch.max_by_key(|receipt| receipt.at_ms)
            && last.at_ms > event.at_ms
        {
            event.at.clone_from(&last.at);
            event.at_ms = last.at_ms;
        }
    }
}

/// Searches the receipts. Returns the keys of the batches they are about as well.
fn receipts(source: &DeliverySource, id: &str, now: Timestamp) -> (Part, BTreeSet<String>) {
    let files = match ReceiptFiles::list(source.layout.root()) {
        Ok(files) => files,
        Err(error) => {
            let why = format!("cannot read {}: {error}", source.layout.root().join("receipts").display());
            return (Part { problems: vec![why], ..Part::default() }, BTreeSet::new());
        }
    };
    let found = files.search(id);
    let batches = found.batches().into_iter().map(ToOwned::to_owned).collect();
    let Matches { receipts, is_truncated, unreadable } = found;
    let mut problems = unreadable;
    if is_truncated {
        problems.push(format!("only the first {} receipts are shown", receipts.len()));
    }
    let days = source.receipt_retention.as_secs() / 86_400;
    let oldest = Timestamp(
        now.0.saturating_sub(u64::try_from(source.receipt_retention.as_millis()).unwrap_or(u64::MAX)),
    );
    problems.push(format!(
        "receipts from before {} have expired (RECEIPT_RETENTION_DAYS = {days})",
        &iso(oldest)[..10]
    ));
    let what = format!("{} files in {}", files.count(), files.dir().display());
    (Part { what, events: receipt_events(&receipts, id), problems }, batches)
}

/// The events of receipts: when each batch was first tried, its requests, and how each pass ended.
fn receipt_events(receipts: &[Receipt], id: &str) -> Vec<Event> {
    let mut events = Vec::new();
    let mut first: BTreeMap<&str, (Timestamp, &Receipt)> = BTreeMap::new();
    for receipt in receipts {
        let key = &*receipt.batch_idempotency_key;
        if let Some(at) = receipt.first_attempt {
            first.entry(key).or_insert((at, receipt));
        }
        for (number, attempt) in (1u64..).zip(&receipt.attempts) {
            events.push(
                Event::new(attempt.at, Place::Receipts, "request")
                    .key(key)
                    .with("attempt", Value::from(number))
                    .with("origin", receipt.origin.map(|origin| Value::from(origin.as_str())))
                    .with("status", attempt.status.map(Value::from))
                    .with("error", attempt.error.clone().map(Value::from))
                    .with("latency_ms", Value::from(attempt.latency_ms)),
            );
        }
        let is_accepted = receipt.accepted.iter().any(|record| record == id);
        let event = match receipt.disposition {
            Disposition::Delivered => "delivered",
            Disposition::Spooled => "spooled",
            Disposition::Failed => "failed",
            // The batch was split because of other records.
            Disposition::Split if is_accepted => "delivered",
            Disposition::Split => "split",
            Disposition::Accepted => "accepted",
        };
        events.push(
            Event::new(receipt.at, Place::Receipts, event)
                .key(key)
                .with("duplicate", receipt.duplicate.clone().map(Value::from))
                .with("split", is_accepted.then_some(Value::from(true))),
        );
    }
    let batched = first.into_iter().map(|(key, (at, receipt))| {
        Event::new(at, Place::Receipts, "batched")
            .key(key)
            .with("records", Value::from(receipt.records.len()))
            .with("part_of", receipt.part_of.clone().map(Value::from))
    });
    // A batch is formed before its first request, which may have the same time.
    batched.collect::<Vec<_>>().into_iter().chain(events).collect()
}

/// What is looked for in batch files.
struct Wanted<'a> {
    id: &'a str,
    /// The keys of batches that receipts lead to.
    batches: &'a BTreeSet<String>,
}

impl Wanted<'_> {
    fn is(&self, stored: &StoredBatch) -> bool {
        let key = stored.batch.key();
        self.batches.contains(key)
            || key == self.id
            || (is_key_prefix(self.id) && key.starts_with(self.id))
            || stored.part_of.as_deref() == Some(self.id)
            || stored.batch.records().iter().any(|record| record.key() == self.id)
    }

    /// Whether the name of a file may be that of a batch whose key is known.
    fn is_named(&self, name: &FileName) -> bool {
        let is_start = |key: &str| key.starts_with(&*name.key);
        self.batches.iter().any(|key| is_start(key)) || is_start(self.id)
    }
}

type Found = (Part, Vec<String>);

/// The batches that processes are sending. There are few.
fn in_flight(layout: &Layout, wanted: &Wanted<'_>) -> Found {
    let (mut part, mut keys, mut files) = (Part::default(), Vec::new(), 0);
    let inflight = layout.inflight();
    let processes = names(&inflight, &mut part.problems);
    for process in &processes {
        let dir = inflight.join(process);
        if !dir.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
            continue;
        }
        for file in names(&dir, &mut part.problems) {
            let Some(read) = read_in_flight(&dir, &file) else { continue };
            files += 1;
            match read {
                Err(why) => part.problems.push(why),
                Ok(stored) => {
                    for stored in stored.iter().filter(|stored| wanted.is(stored)) {
                        keys.push(stored.batch.key().to_owned());
                        let event = state_event(Place::InFlight, "in-flight", stored, stored.first_attempt);
                        part.events.push(event.with("process", Value::from(process.clone())));
                    }
                }
            }
        }
    }
    part.what = format!("{files} files in {}", inflight.display());
    (part, keys)
}

fn names(dir: &Path, problems: &mut Vec<String>) -> Vec<String> {
    disk::file_names(dir).unwrap_or_else(|error| {
        problems.push(format!("cannot read {}: {error}", dir.display()));
        Vec::new()
    })
}

/// The spool or failed: batches whose names fit, and the oldest others.
fn directory(layout: &Layout, batch_dir: BatchDir, wanted: &Wanted<'_>) -> Found {
    let (mut part, mut keys) = (Part::default(), Vec::new());
    let (count, mut listed) = match layout.survey(batch_dir, None, FILES_MAX) {
        Ok(survey) => survey,
        Err(error) => return (Part { problems: vec![error_chain(&error)], ..part }, keys),
    };
    if count > listed.len() as u64 {
        part.problems.push(format!(
            "{count} files: only the oldest {FILES_MAX} and those with a matching name were searched for records"
        ));
        let named = layout.select(batch_dir, |listed| wanted.is_named(&listed.name), FILES_MAX);
        match named {
            Ok(named) => listed.extend(named),
            Err(error) => part.problems.push(error_chain(&error)),
        }
        listed.sort_unstable();
        listed.dedup();
    }
    let read = layout.read_each(batch_dir, &listed, |listed, read| match read {
        Ok(Ok(stored)) if wanted.is(&stored) => Ok(Some((listed.clone(), stored))),
        Ok(Ok(_)) => Ok(None),
        Ok(Err(corrupt)) => Err(format!("cannot read {}: {corrupt}", listed.file)),
        // Another process has taken it.
        Err(ichido_delivery::store::Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(None)
        }
        Err(error) => Err(error_chain(&error)),
    });
    for read in read {
        match read {
            Ok(None) => {}
            Ok(Some((listed, stored))) => {
                let (place, event, at) = match batch_dir {
                    BatchDir::Spool => (Place::Spool, "waiting-in-spool", last_attempt(&stored)),
                    BatchDir::Failed => {
                        (Place::Failed, "waiting-in-failed", listed.at().max(last_attempt(&stored)))
                    }
                };
                keys.push(stored.batch.key().to_owned());
                let event = state_event(place, event, &stored, at);
                part.events.push(event.with("file", Value::from(listed.file)));
            }
            Err(why) => part.problems.push(why),
        }
    }
    part.what = format!("{count} files in {}", layout.dir(batch_dir).display());
    (part, keys)
}

fn last_attempt(stored: &StoredBatch) -> Timestamp {
    let last = stored.attempts.last().and_then(|attempt| parse_iso(&attempt.at));
    last.unwrap_or(stored.first_attempt)
}

fn state_event(place: Place, event: &str, stored: &StoredBatch, at: Timestamp) -> Event {
    Event::new(at, place, event)
        .key(stored.batch.key())
        .with("first_attempt", Value::from(iso(stored.first_attempt)))
        .with("records", Value::from(stored.batch.records().len()))
        .with("retry_count", Value::from(stored.retry_count))
        .with("not_before", stored.not_before.map(|at| Value::from(iso(at))))
        .with("last_error", stored.last_error.clone().map(Value::from))
}
