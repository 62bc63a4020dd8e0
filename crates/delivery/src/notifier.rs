//! What a person is told of, and how it reaches the outbox.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::notice::{Drained, Event, Failed, Notices};
use crate::store::StoredBatch;
use crate::time::iso;

/// How long a command that ends waits for Slack or a mail server.
const DRAIN_LIMIT: Duration = Duration::from_secs(20);
const SPOOL_FULL_OUTAGE: &str = "spool full";

/// Cause a batch moves to failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It was refused, damaged, or had all its passes.
    Failed,
    /// It waited longer than it may.
    Expired,
}

/// The way to people.
#[derive(Debug)]
pub struct Notifier {
    notices: Notices,
    lane: String,
}

impl Notifier {
    /// Notices about the way to this destination.
    pub fn new(notices: Notices, destination: &str) -> Self {
        Self { notices, lane: destination.to_owned() }
    }

    /// A batch is about to move to failed. On an error nobody would hear of it: it must not move yet. Returns the id of the
    /// notice.
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

    /// The lane is held: told once, however many batches meet it.
    pub fn held(&self, reason: &str) {
        let event = Event::Held { lane: self.lane.clone(), reason: reason.to_owned() };
        self.log_error(self.notices.begin_outage(&format!("lane {}", self.lane), event).map(drop));
    }

    /// The receiver took something: what was told of is over.
    pub fn lane_works(&self) {
        self.log_error(self.notices.end_outage(&format!("lane {}", self.lane)).map(drop));
    }

    /// Everything that was to be written found room again.
    pub fn spool_has_space(&self) {
        self.log_error(self.notices.end_outage(SPOOL_FULL_OUTAGE).map(drop));
    }

    /// Pieces of input are no records. On an error nobody would hear of them. Returns the id of the notice.
    pub fn invalid_input(&self, count: u64, reason: &str) -> io::Result<String> {
        self.notices.queue(Event::InvalidInput { count, reason: reason.to_owned() })
    }

    /// There is no room for new work.
    pub fn spool_full(&self, reason: &str) {
        let event = Event::SpoolFull { reason: reason.to_owned() };
        self.log_error(self.notices.begin_outage(SPOOL_FULL_OUTAGE, event).map(drop));
    }

    /// Sends what waits, before a command ends. What is not sent waits for the next one.
    pub async fn drain(&self) -> Drained {
        self.notices.drain(DRAIN_LIMIT).await
    }

    /// Sends what comes, until it is stopped.
    pub async fn work(&self, stop: CancellationToken) {
        self.notices.work(stop).await;
    }

    fn log_error(&self, written: io::Result<()>) {
        if let Err(error) = written {
            tracing::error!(%error, "a notice could not be written");
        }
    }
}
