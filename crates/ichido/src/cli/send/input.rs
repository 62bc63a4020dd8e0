//! Reads files into batches. This blocks, so it has its own thread, which reads ahead while batches are sent.

use std::path::PathBuf;

use ichido_delivery::input::{self, Input, Item};
use ichido_delivery::{Batch, Batcher, Record};
use tokio::sync::mpsc;

use ichido_serve::Failure;

/// Batches that are read ahead.
const READ_AHEAD_MAX: usize = 2;
/// No batch is larger, unless a single record is.
const BATCH_MAX_BYTES: usize = 4 << 20;

/// A piece of input.
#[derive(Debug)]
pub(super) enum Piece {
    Batch(Batch),
    /// Text that is not a record, with its position in the reason.
    Invalid {
        text: String,
        reason: String,
    },
    /// The rest of a file cannot be read.
    Unreadable(String),
}

/// Reads files, or standard input, and groups the records into batches. The same input gives the same batches.
pub(super) fn read_input(files: &[PathBuf], batch_size: usize) -> Result<mpsc::Receiver<Piece>, Failure> {
    let files = match files.is_empty() {
        true => vec![PathBuf::from("-")],
        false => files.to_vec(),
    };
    // A mistyped file name is reported before anything is sent.
    for file in &files {
        input::check(file).map_err(|error| Failure::usage(error.to_string()))?;
    }
    let (sender, receiver) = mpsc::channel(READ_AHEAD_MAX);
    std::thread::Builder::new()
        .name("input".to_owned())
        .spawn(move || {
            let mut batcher = Batcher::new(batch_size, BATCH_MAX_BYTES);
            // An error means that nobody receives any more, because the process is stopping.
            let _ = files.iter().try_for_each(|file| read(file.clone(), &mut batcher, &sender));
            if let Some(batch) = batcher.finish() {
                let _ = sender.blocking_send(Piece::Batch(batch));
            }
        })
        .map_err(|error| Failure::internal(format!("cannot start the input thread: {error}")))?;
    Ok(receiver)
}

type NoReceiver = Box<mpsc::error::SendError<Piece>>;

fn read(file: PathBuf, batcher: &mut Batcher, sender: &mpsc::Sender<Piece>) -> Result<(), NoReceiver> {
    let put = |piece| sender.blocking_send(piece).map_err(Box::new);
    let input = match Input::open(&file) {
        Ok(input) => input,
        Err(error) => return put(Piece::Unreadable(error.to_string())),
    };
    let name = input.name().to_owned();
    for item in input {
        match item {
            Ok(Item::Record(record)) => match Record::new(record.raw) {
                Ok(record) => {
                    if let Some(batch) = batcher.push(record) {
                        put(Piece::Batch(batch))?;
                    }
                }
                Err(error) => {
                    put(Piece::Invalid {
                        text: String::new(),
                        reason: format!("{name}, {}: {error}", record.position),
                    })?;
                }
            },
            Ok(Item::Invalid(invalid)) => put(Piece::Invalid {
                text: invalid.text().into_owned(),
                reason: format!("{name}, {}: {}", invalid.position, invalid.reason),
            })?,
            Err(error) => put(Piece::Unreadable(error.to_string()))?,
        }
    }
    Ok(())
}
