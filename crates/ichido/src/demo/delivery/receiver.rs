//! What the receiver does: it appends a line to a log for each record, loses some responses after it has counted the
//! batch, and rejects invalid records.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use ichido_testkit::receiver::{ReceivedBatch, Receiver, Reply};
use serde_json::{Value, json};

use ichido_serve::Failure;

/// The receiver loses the response to every fifth request, if it counted that request's batch.
pub(super) const LOSE_EVERY: usize = 5;
/// Why the receiver rejects an invalid record.
pub(in crate::demo) const REJECTION: &str = "total_tokens must not be negative";

pub(in crate::demo) fn start(log: &Path) -> Result<Receiver, Failure> {
    let mut log = File::options().create(true).append(true).open(log).map_err(failure)?;
    let receiver = Receiver::start().map_err(failure)?;
    let mut requests = 0;
    receiver.on_batch(move |batch| {
        requests += 1;
        if has_invalid_record(batch) {
            return Reply::Status(422, json!({ "error": REJECTION }).to_string());
        }
        let lines = batch.ids.iter().map(|id| format!("{id}\n")).collect::<String>();
        if !batch.is_known && log.write_all(lines.as_bytes()).is_err() {
            return Reply::Disconnect;
        }
        match loses_response(requests, batch) {
            true => Reply::AcceptAndDisconnect,
            false => Reply::Accept,
        }
    });
    Ok(receiver)
}

pub(in crate::demo) fn failure(error: io::Error) -> Failure {
    Failure::internal(format!("receiver: {error}"))
}

/// How many responses the receiver has lost, provided that it rejected no batch.
pub(super) fn responses_lost(receiver: &Receiver) -> usize {
    let numbered = (1..).zip(receiver.batches());
    numbered.filter(|(number, batch)| loses_response(*number, batch)).count()
}

fn loses_response(number: usize, batch: &ReceivedBatch) -> bool {
    !batch.is_known && number.is_multiple_of(LOSE_EVERY)
}

fn has_invalid_record(batch: &ReceivedBatch) -> bool {
    let body: Value = serde_json::from_slice(&batch.bytes).unwrap_or_default();
    let is_invalid = |record: &Value| record["total_tokens"].as_i64().is_some_and(|tokens| tokens < 0);
    body["records"].as_array().is_some_and(|records| records.iter().any(is_invalid))
}
