//! Standard output without waiting for its reader.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// Something to do for the thread that writes.
enum Order {
    Write(Vec<u8>),
    /// Tells when everything before has been written.
    Tell(SyncSender<()>),
}

/// A thread that writes to standard output. It is not waited for: the reader may be stuck.
#[derive(Debug)]
pub(crate) struct Stdout(SyncSender<Order>);

impl Stdout {
    pub(crate) fn start() -> Self {
        Self::writing_to(io::stdout())
    }

    pub(super) fn writing_to(sink: impl Write + Send + 'static) -> Self {
        let (orders, received) = sync_channel(1);
        let thread = std::thread::Builder::new().name("ichido:emf".to_owned());
        if let Err(error) = thread.spawn(move || write(sink, &received)) {
            tracing::warn!(%error, "cannot write metrics to standard output");
        }
        Self(orders)
    }

    /// Hands lines over to be written, unless earlier ones still wait.
    pub(super) fn try_write(&self, lines: Vec<u8>) -> bool {
        self.0.try_send(Order::Write(lines)).is_ok()
    }

    /// Waits until everything is written, but not for longer than `limit`.
    pub(super) fn flush(&self, limit: Duration) {
        let (told, done) = sync_channel(1);
        // There is no room for it only if the reader is stuck.
        if self.0.try_send(Order::Tell(told)).is_ok()
            && done.recv_timeout(limit) == Err(RecvTimeoutError::Timeout)
        {
            tracing::warn!("metrics could not be written to standard output in time");
        }
    }
}

fn write(mut sink: impl Write, orders: &Receiver<Order>) {
    for order in orders {
        match order {
            // If standard output is gone, so is the one who would read the metrics.
            Order::Write(lines) => drop(sink.write_all(&lines).and_then(|()| sink.flush())),
            Order::Tell(done) => drop(done.send(())),
        }
    }
}
