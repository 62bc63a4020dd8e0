//! Sends the records of a period, in batches like those of `ichido send`, and records them as sent.

use std::collections::{HashMap, HashSet};

use ichido_delivery::sender::{Error, Selection, Sender};
use ichido_delivery::{Batch, Batcher, Record as Wire};
use ichido_usage::{Profile, Record};

use super::calendar::PeriodRange;
use super::collect::Collected;
use super::pending;
use super::plan::{Plan, plan};
use super::report::PeriodReport;
use super::state::{SentRecords, State};
use ichido_core::{batch_key, error_chain};
use ichido_serve::Failure;

/// The largest batch, unless a single record is larger.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Batches that are written to disk together.
const BATCHES_AT_ONCE: usize = 8;

/// Sends the records of a plan. When this returns, each record was delivered or is in the spool or in failed.
async fn deliver(
    sender: &mut Sender,
    plan: &Plan,
    profile: Profile,
    batch_size: usize,
) -> Result<(), Failure> {
    let mut batcher = Batcher::new(batch_size, BATCH_BYTES_MAX);
    let hashes: HashMap<&str, &str> = match profile.upserts() {
        true => plan.outgoing().map(|outgoing| (outgoing.id(), outgoing.content.hash.as_str())).collect(),
        false => HashMap::new(),
    };
    let mut batches = Vec::new();
    for outgoing in plan.outgoing() {
        if let Some(batch) = batcher.push(wire(&outgoing.record)?) {
            batches.push(with_key(batch, profile, &hashes));
            if batches.len() == BATCHES_AT_ONCE {
                send(sender, std::mem::take(&mut batches)).await?;
            }
        }
    }
    batches.extend(batcher.finish().map(|batch| with_key(batch, profile, &hashes)));
    send(sender, batches).await
}

/// Gives a batch its key. If the first record of an id wins, the key depends on the ids alone. If a later record replaces
/// it, the key also depends on the content: otherwise a receiver could take a changed batch for a duplicate.
fn with_key(batch: Batch, profile: Profile, hashes: &HashMap<&str, &str>) -> Batch {
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
        .map_err(|error| Failure::internal(format!("cannot write a record: {error}")))?;
    Wire::parse(&text).map_err(|error| Failure::internal(error.to_string()))
}

async fn send(sender: &mut Sender, batches: Vec<Batch>) -> Result<(), Failure> {
    sender.send(batches).await.map_err(|error| match error {
        Error::Stopped => stopped(),
        error @ (Error::Store(_) | Error::Lost(_)) => {
            Failure::internal(format!("{}; the next export continues here", error_chain(&error)))
        }
    })
}

/// The failure of an export that was stopped.
pub(crate) fn stopped() -> Failure {
    Failure::internal("stopped before the end: export again, nothing is counted twice")
}

/// Resends spooled batches first, as every command that sends does.
pub(crate) async fn resend(sender: &mut Sender) -> Result<(), Failure> {
    match sender.resend(&Selection::due()).await {
        Ok(_) => Ok(()),
        Err(Error::Stopped) => Err(stopped()),
        Err(error @ (Error::Store(_) | Error::Lost(_))) => Err(Failure::internal(error_chain(&error))),
    }
}

/// The ids that must not be sent now, because an older total is undelivered.
pub(crate) async fn pending_ids(sender: &mut Sender, profile: Profile) -> Result<HashSet<String>, Failure> {
    if !profile.upserts() {
        return Ok(HashSet::new());
    }
    sender.finish().await;
    pending::ids(sender.layout())
}

/// Sends the new and changed records of a period, and records them as sent.
pub(crate) async fn export_period(
    state: &State,
    range: &PeriodRange,
    collected: Collected,
    sender: &mut Sender,
    profile: Profile,
    pending: &HashSet<String>,
    batch_size: usize,
) -> Result<(PeriodReport, Plan), Failure> {
    let name = range.name();
    let sent = state.sent(&name)?;
    let refused = collected.refused.len();
    let (rows, debugger) = (collected.rows.rows, collected.rows.debugger);
    let plan = plan(collected.records, &sent, profile, pending);
    deliver(sender, &plan, profile, batch_size).await?;
    let mut known = plan.applied_to(sent.clone());
    for row in &collected.refused {
        if known.refused.insert(row.hash()) {
            sender
                .reject_input(&row.text, &row.reason)
                .map_err(|error| Failure::internal(error_chain(&error)))?;
        }
    }
    if known != sent || sent == SentRecords::default() {
        state.set_sent(&name, &known)?;
    }
    Ok((PeriodReport::new(range, rows, debugger, refused, &plan), plan))
}
