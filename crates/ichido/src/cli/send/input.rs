//! Reads files into batches. This blocks, so it has its own thread, which reads ahead while batches are sent.

use std::path::PathBuf;
use std::sync::Arc;

use ichido_delivery::input::{self, Input, Item};
use ichido_delivery::{Batch, Batcher, Record};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use ichido_serve::Failure;

/// Batches that are read ahead, and sent together if they are ready.
const READ_AHEAD_MAX: usize = 16;
/// No batch is larger, unless a single record is.
const BATCH_MAX_BYTES: usize = 4 << 20;
/// The most bytes of batches that are read ahead.
const READ_AHEAD_BYTES_MAX: usize = 2 * BATCH_MAX_BYTES;

/// The input, as it is read.
#[derive(Debug)]
pub(super) struct Pieces {
    queue: mpsc::Receiver<(Piece, Option<OwnedSemaphorePermit>)>,
    /// A piece that is not a batch, after the last batches.
    next: Option<Piece>,
    /// The room that the last batches take.
    room: Vec<OwnedSemaphorePermit>,
}

impl Pieces {
    /// The next piece. Batches that are ready come together. Ends the use of the last ones, whose room is free now.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, no piece is lost.
    pub(super) async fn next(&mut self) -> Option<Piece> {
        self.room.clear();
        if let Some(piece) = self.next.take() {
            return Some(piece);
        }
        let (first, room) = self.queue.recv().await?;
        self.room.extend(room);
        let Piece::Batches(mut batches) = first else { return Some(first) };
        while batches.len() < READ_AHEAD_MAX
            && let Ok((piece, room)) = self.queue.try_recv()
        {
            self.room.extend(room);
            match piece {
                Piece::Batches(more) => batches.extend(more),
                other @ (Piece::Invalid { .. } | Piece::Unreadable(_)) => {
                    self.next = Some(other);
                    break;
                }
            }
        }
        Some(Piece::Batches(batches))
    }
}

/// The reader's end of the queue.
struct Reader {
    queue: mpsc::Sender<(Piece, Option<OwnedSemaphorePermit>)>,
    room: Arc<Semaphore>,
    runtime: Handle,
}

/// Nobody reads the queue any more, because the process is stopping.
struct NoReceiver;

impl Reader {
    fn put(&self, piece: Piece) -> Result<(), NoReceiver> {
        self.queue.blocking_send((piece, None)).map_err(|_| NoReceiver)
    }

    /// Waits until there is room for a batch.
    fn put_batch(&self, batch: Batch) -> Result<(), NoReceiver> {
        // The receipt needs it. Here it is computed while the sender waits for the network and the disk.
        batch.digest();
        let bytes: usize = batch.records().iter().map(|record| record.json().len()).sum();
        let bytes = u32::try_from(bytes.min(READ_AHEAD_BYTES_MAX)).unwrap_or(u32::MAX);
        let room = self.runtime.block_on(self.room.clone().acquire_many_owned(bytes)).ok();
        self.queue.blocking_send((Piece::Batches(vec![batch]), room)).map_err(|_| NoReceiver)
    }
}

/// A piece of input.
#[derive(Debug)]
pub(super) enum Piece {
    /// At least one batch.
    Batches(Vec<Batch>),
    /// Text that is not a record, with its position in the reason.
    Invalid { text: String, reason: String },
    /// The rest of a file cannot be read.
    Unreadable(String),
}

/// Reads files, or standard input, and groups the records into batches. The same input gives the same batches.
pub(super) fn read_input(files: &[PathBuf], batch_size: usize) -> Result<Pieces, Failure> {
    let files = match files.is_empty() {
        true => vec![PathBuf::from("-")],
        false => files.to_vec(),
    };
    // A mistyped file name is reported before anything is sent.
    for file in &files {
        input::check(file).map_err(|error| Failure::usage(error.to_string()))?;
    }
    let (queue, pieces) = mpsc::channel(READ_AHEAD_MAX);
    let room = Arc::new(Semaphore::new(READ_AHEAD_BYTES_MAX));
    let reader = Reader { queue, room, runtime: Handle::current() };
    std::thread::Builder::new()
        .name("input".to_owned())
        .spawn(move || {
            let mut batcher = Batcher::new(batch_size, BATCH_MAX_BYTES);
            let _ = files.iter().try_for_each(|file| read(file.clone(), &mut batcher, &reader));
            if let Some(batch) = batcher.finish() {
                let _ = reader.put_batch(batch);
            }
        })
        .map_err(|error| Failure::internal(format!("cannot start the input thread: {error}")))?;
    Ok(Pieces { queue: pieces, next: None, room: Vec::new() })
}

fn read(file: PathBuf, batcher: &mut Batcher, reader: &Reader) -> Result<(), NoReceiver> {
    let put = |piece| reader.put(piece);
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
                        reader.put_batch(batch)?;
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
