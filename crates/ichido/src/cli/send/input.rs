//! From files to batches, on a thread of its own: reading blocks, and sending must not wait for it to be idle.

use std::path::PathBuf;

use ichido_delivery::input::{self, Input, Item};
use ichido_delivery::{Batch, Batcher, Record};
use tokio::sync::mpsc;

use ichido_serve::Failure;

/// Batches that are read ahead.
const AHEAD: usize = 2;
/// No batch is larger, unless a single record is.
const BATCH_BYTES: usize = 4 << 20;

/// What comes out of the input.
#[derive(Debug)]
pub(super) enum Fed {
    /// The next batch.
    Batch(Batch),
    /// Something that is no record, and where it stood.
    Broken { text: String, reason: String },
    /// The rest of an input cannot be read.
    Trouble(String),
}

/// Reads files, or standard input, and cuts the records into batches. The same input gives the same batches.
pub(super) fn feed(files: &[PathBuf], batch_size: usize) -> Result<mpsc::Receiver<Fed>, Failure> {
    let files = match files.is_empty() {
        true => vec![PathBuf::from("-")],
        false => files.to_vec(),
    };
    // A name that was mistyped is found before anything is sent.
    for file in &files {
        input::check(file).map_err(|error| Failure::usage(error.to_string()))?;
    }
    let (sender, receiver) = mpsc::channel(AHEAD);
    std::thread::Builder::new()
        .name("input".to_owned())
        .spawn(move || {
            let mut batcher = Batcher::new(batch_size, BATCH_BYTES);
            // An error here is a receiver that went away: the process ends.
            let _ = files.iter().try_for_each(|file| read(file.clone(), &mut batcher, &sender));
            if let Some(batch) = batcher.finish() {
                let _ = sender.blocking_send(Fed::Batch(batch));
            }
        })
        .map_err(|error| Failure::internal(format!("starting to read: {error}")))?;
    Ok(receiver)
}

type Gone = Box<mpsc::error::SendError<Fed>>;

fn read(file: PathBuf, batcher: &mut Batcher, sender: &mpsc::Sender<Fed>) -> Result<(), Gone> {
    let put = |fed| sender.blocking_send(fed).map_err(Box::new);
    let input = match Input::open(&file) {
        Ok(input) => input,
        Err(error) => return put(Fed::Trouble(error.to_string())),
    };
    let name = input.name().to_owned();
    for item in input {
        match item {
            Ok(Item::Record(record)) => match Record::new(record.raw) {
                Ok(record) => {
                    if let Some(batch) = batcher.push(record) {
                        put(Fed::Batch(batch))?;
                    }
                }
                Err(error) => {
                    put(Fed::Broken {
                        text: String::new(),
                        reason: format!("{name}, {}: {error}", record.position),
                    })?;
                }
            },
            Ok(Item::Invalid(invalid)) => put(Fed::Broken {
                text: invalid.text().into_owned(),
                reason: format!("{name}, {}: {}", invalid.position, invalid.reason),
            })?,
            Err(error) => put(Fed::Trouble(error.to_string()))?,
        }
    }
    Ok(())
}
