//! Tells operators what the sender cannot solve by itself, through the outbox of notices.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::notice::{Drained, Event, Failed, Notices};
use crate::store::StoredBatch;
use crate::time::iso;

/// How long a command waits for Slack or a mail server before it exits.
const DRAIN_LIMIT: Duration = Duration::from_secs(20);
const SPOOL_FULL_OUTAGE: &str = "spool full";

/// Why a batch moves to failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It was rejected, was corrupt, or used up all its passes.
    Failed,
    /// It was in the spool for longer than the retention.
    Expired,
}

/// Queues notices about one destination.
#[derive(Debug)]
pub struct Notifier {
    notices: Notices,
    lane: String,
}

impl Notifier {
    /// Creates a notifier for this destination.
    pub fn new(notices: Notices, destination: &str) -> Self {
        Self { notices, lane: destination.to_owned() }
    }

    /// Queues a notice that a batch is about to move to failed, and returns its id. On an error the batch must not
    /// move, because nobody would be notified.
    pub fn failed(&self, cause: Cause, path: &Path, stored: &StoredBatch) -> io::Result<String> {
        let failed = Failed {
            file_path: path.display().to_string(),
            last_error: stored.last_error.clone().unwrap_or_default(),
            first_attempt: iso(stored.first_attempt),
            retry_count: stored.retry_count.into(),
            batch_idempotency_key: stored.batch.key().to_owned(),
            records: stored.batch.records().len() as u64,
        };
        self.notices.queue(match cause {
            Cause::Failed => Event::Failed(failed),
            Cause::Expired => Event::Expired(failed),
        })
    }

    /// Queues a notice that the lane is held: once, however many batches are affected.
    pub fn held(&self, reason: &str) {
        let event = Event::Held { lane: self.lane.clone(), reason: reason.to_owned() };
        self.log_error(self.notices.begin_outage(&format!("lane {}", self.lane), event).map(drop));
    }

    /// The receiver accepted something. If the lane was reported as held, queues a notice of its recovery.
    pub fn lane_works(&self) {
        self.log_error(self.notices.end_outage(&format!("lane {}", self.lane)).map(drop));
    }

    /// Everything could be written again. If the spool was reported as full, queues a notice of its recovery.
    pub fn spool_has_space(&self) {
        self.log_error(self.notices.end_outage(SPOOL_FULL_OUTAGE).map(drop));
    }

    /// Queues a notice about invalid input items, and returns its id. On an error nobody would be notified.
    pub fn invalid_input(&self, count: u64, reason: &str) -> io::Result<String> {
        self.notices.queue(Event::InvalidInput { count, reason: reason.to_owned() })
    }

    /// Queues a notice that there is no space for new batches.
    pub fn spool_full(&self, reason: &str) {
        let event = Event::SpoolFull { reason: reason.to_owned() };
        self.log_error(self.notices.begin_outage(SPOOL_FULL_OUTAGE, event).map(drop));
    }

    /// Sends queued notices before a command exits. The next process sends what is left.
    pub async fn drain(&self) -> Drained {
        self.notices.drain(DRAIN_LIMIT).await
    }

    /// Sends notices as they arrive, until it is stopped.
    pub async fn work(&self, stop: CancellationToken) {
        self.notices.work(stop).await;
    }

    fn log_error(&self, written: io::Result<()>) {
        if let Err(error) = written {
            tracing::error!(%error, "cannot queue a notice");
        }
    }
}
