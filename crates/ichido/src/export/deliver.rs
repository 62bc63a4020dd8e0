//! The records of a plan, on their way: batches like those of `ichido send`.

use ichido_delivery::sender::{Error, Sender};
use ichido_delivery::{Batch, Cutter, Record as Wire, batch_key};
use ichido_usage::{Profile, Record};

use super::plan::Plan;
use super::state::Content;
use crate::exit::{Failure, one_line};

/// No batch is larger, unless a single record is.
const BATCH_BYTES: usize = 4 << 20;

/// Hands everything over. When this returns, each record has arrived, or lies on disk from where it is sent.
pub(crate) async fn deliver(
    sender: &mut Sender,
    plan: &Plan,
    profile: Profile,
    batch_size: usize,
) -> Result<(), Failure> {
    let mut cutter = Cutter::new(batch_size, BATCH_BYTES);
    for record in plan.new.iter().chain(&plan.replaced) {
        if let Some(batch) = cutter.push(wire(record)?) {
            send(sender, named(batch, profile)?).await?;
        }
    }
    match cutter.finish() {
        Some(batch) => send(sender, named(batch, profile)?).await,
        None => Ok(()),
    }
}

/// A batch under the key that it is sent with. The key is made of ids alone, and so it is where the first record of an id wins. Where a
/// later one replaces it, a receiver could take a changed batch for the one that it knows: there the key knows the content as well.
fn named(batch: Batch, profile: Profile) -> Result<Batch, Failure> {
    if !profile.upserts() {
        return Ok(batch);
    }
    let mut parts = Vec::with_capacity(batch.records().len());
    for wire in batch.records() {
        let record: Record = serde_json::from_str(wire.json())
            .map_err(|error| Failure::internal(format!("reading a record: {error}")))?;
        parts.push(format!("{}@{}", wire.key(), Content::of(&record).hash));
    }
    let key = batch_key(parts.iter().map(String::as_str));
    Ok(Batch::stored(key, batch.records().to_vec()))
}

fn wire(record: &Record) -> Result<Wire, Failure> {
    let text = serde_json::to_string(record)
        .map_err(|error| Failure::internal(format!("writing a record: {error}")))?;
    Wire::parse(&text).map_err(|error| Failure::internal(error.to_string()))
}

async fn send(sender: &mut Sender, batch: Batch) -> Result<(), Failure> {
    sender.send(batch).await.map_err(|error| match error {
        Error::Stopped => stopped(),
        error @ (Error::Store(_) | Error::Lost(_)) => {
            Failure::internal(format!("{}; the rest is exported next time", one_line(&error)))
        }
    })
}

pub(crate) fn stopped() -> Failure {
    Failure::internal("stopped before the end: export again, nothing counts twice")
}
