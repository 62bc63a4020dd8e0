//! `ichido failed`: batches that were not delivered and need an operator.

use ichido_admin::audit_log::{Action, Actor, Outcome};
use ichido_admin::operator::Refusal;
use ichido_core::{Clock, SystemClock};
use ichido_delivery::receipt::{Disposition, Entry};
use ichido_delivery::sender::Selection;
use ichido_delivery::store::{BatchDir, Layout, ListedFile, Options, Store, StoredBatch};
use serde::Serialize;

use super::batch_files;
use super::spool::resend;
use crate::args::{FailedArgs, FailedVerb};
use crate::output;
use crate::settings::Settings;
use ichido_export::superseded;
use ichido_serve::Failure;

pub(super) async fn run(args: &FailedArgs) -> Result<(), Failure> {
    let settings = Settings::load(args.delivery.config.as_deref(), &args.delivery.flags.flags())?;
    let layout = || settings.existing_data_dir().map(|dir| Layout::new(&dir));
    match &args.verb {
        FailedVerb::List(list) => batch_files::list(&layout()?, BatchDir::Failed, list, args.json),
        FailedVerb::Show(batch) => batch_files::show(&layout()?, BatchDir::Failed, &batch.key),
        // Without keys, every batch is selected, with or without --all.
        FailedVerb::Resend { keys, by_record, .. } => {
            let selection =
                Selection { by_record: *by_record, ..Selection::new(BatchDir::Failed, keys.clone(), true) };
            let _no_export_meanwhile =
                superseded::check(&Layout::new(&settings.raw_delivery()?.data_dir()), &selection)?;
            resend(&settings, &selection, args.json).await
        }
        FailedVerb::Accept { keys } => accept(&settings, keys, args.json),
    }
}

#[derive(Debug, Serialize)]
struct Accepted {
    batch_idempotency_key: String,
    records: usize,
}

/// Removes batches that, as an operator knows, have arrived. Receipts are on disk before the files are removed.
fn accept(settings: &Settings, keys: &[String], json: bool) -> Result<(), Failure> {
    let dir = settings.existing_data_dir()?;
    let receipt_retention = settings.raw_delivery()?.receipt_retention();
    let layout = Layout::new(&dir);
    let mut found: Vec<(ListedFile, StoredBatch)> = Vec::new();
    for key in keys {
        let (listed, stored) = batch_files::find(&layout, BatchDir::Failed, key)?;
        if stored.is_invalid_input {
            return Err(Failure::usage(format!(
                "{} contains input that is not a record, and cannot be accepted",
                listed.file
            )));
        }
        if !found.iter().any(|(other, _)| *other == listed) {
            found.push((listed, stored));
        }
    }
    let clock = SystemClock::default();
    let options = Options { receipt_retention, ..Options::default() };
    let store = Store::open(&dir, options, clock.now()).map_err(Failure::usage_from)?;
    let (audit, mut accepted) = (settings.audit()?, Vec::new());
    for (listed, stored) in &found {
        let key = stored.batch.key();
        let place = BatchDir::Failed.as_str().to_owned();
        let action = Action {
            place: Some(place.clone()),
            before: Some(place),
            batches: vec![key.to_owned()],
            ..Action::named("accept")
        };
        let pending = audit.begin(Actor::command_line(), action);
        let pending = pending.map_err(|error| Refusal::not_begun(error).into_failure(""))?;
        let result = accept_batch(&store, &clock, listed, stored);
        let outcome = match &result {
            Ok(()) => Outcome { after: Some("accepted".to_owned()), ..Outcome::of("applied") },
            Err(_) => Outcome::of("failed"),
        };
        let recorded = pending.finish(outcome);
        result?;
        recorded.map_err(|error| Refusal::not_recorded(&error).into_failure(""))?;
        let records = stored.batch.records().len();
        tracing::warn!(batchIdempotencyKey = key, records, "batch accepted as delivered by an operator");
        accepted.push(Accepted { batch_idempotency_key: key.to_owned(), records });
    }
    if json {
        return output::json(&serde_json::json!({ "accepted": accepted }));
    }
    for batch in &accepted {
        let records = output::count(batch.records as u64, "record", "records");
        outln!("accepted {} ({records}); it will not be sent again", batch.batch_idempotency_key);
    }
    Ok(())
}

/// Writes the receipt of a batch, then removes its file.
fn accept_batch(
    store: &Store,
    clock: &SystemClock,
    listed: &ListedFile,
    stored: &StoredBatch,
) -> Result<(), Failure> {
    let Some(mut owned) = store.take(BatchDir::Failed, listed).map_err(Failure::usage_from)? else {
        return Err(Failure::usage(format!("{} is being sent by another process", listed.file)));
    };
    let part_of = stored.part_of.as_deref();
    let entry = Entry { part_of, ..Entry::new(&stored.batch, Disposition::Accepted, stored.first_attempt) };
    let written = store.receipts().write(&entry, clock.now()).and_then(|()| store.receipts().sync());
    if let Err(error) = written {
        store.fail(&mut owned, stored.batch.key(), clock.now()).map_err(Failure::usage_from)?;
        return Err(Failure::internal(format!("cannot write a receipt: {error}; the batch stays in failed")));
    }
    store.remove(&owned).map_err(Failure::usage_from)
}
