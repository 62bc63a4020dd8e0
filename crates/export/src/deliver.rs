//! The records of a plan, on their way: batches like those of `ichido send`.

use std::collections::HashMap;

use ichido_delivery::sender::{Error, Sender};
use ichido_delivery::{Batch, Batcher, Record as Wire};
use ichido_usage::{Profile, Record};

use super::plan::Plan;
use ichido_core::{batch_key, error_chain};
use ichido_serve::Failure;

/// No batch is larger, unless a single record is.
const BATCH_BYTES: usize = 4 << 20;

/// Hands everything over. When this returns, each record has arrived, or lies on disk from where it is sent.
pub async fn deliver(
    sender: &mut Sender,
    plan: &Plan,
    profile: Profile,
    batch_size: usize,
) -> Result<(), Failure> {
    let mut batcher = Batcher::new(batch_size, BATCH_BYTES);
    let hashes: HashMap<&str, &str> = match profile.upserts() {
        true => plan.outgoing().map(|outgoing| (outgoing.id(), outgoing.content.hash.as_str())).collect(),
        false => HashMap::new(),
    };
    for outgoing in plan.outgoing() {
        if let Some(batch) = batcher.push(wire(&outgoing.record)?) {
            send(sender, named(batch, profile, &hashes)).await?;
        }
    }
    match batcher.finish() {
        Some(batch) => send(sender, named(batch, profile, &hashes)).await,
        None => Ok(()),
    }
}

/// A batch under the key that it is sent with. The key is made of ids alone, and so it is where the first record of an id wins. Where a
/// later one replaces it, a receiver could take a changed batch for the one that it knows: there the key knows the content as well.
fn named(batch: Batch, profile: Profile, hashes: &HashMap<&str, &str>) -> Batch {
    if !profile.upserts() {
        return batch;
    }
    let part =
        |wire: &Wire| format!("{}@{}", wire.key(), hashes.get(wire.key()).copied().unwrap_or_default());
    let parts: Vec<String> = batch.records().iter().map(part).collect();
    let key = batch_key(parts.iter().map(String::as_str));
    Batch::stored(key, batch.records().to_vec())
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
            Failure::internal(format!("{}; the rest is exported next time", error_chain(&error)))
        }
    })
}

pub fn stopped() -> Failure {
    Failure::internal("stopped before the end: export again, nothing counts twice")
}
