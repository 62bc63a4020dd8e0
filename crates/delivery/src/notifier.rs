//! What a person is told of, and how it reaches the outbox.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::notice::{Drained, Event, Failed, Notices};
use crate::store::Stored;
use crate::time::iso;

/// How long a command that ends waits for Slack or a mail server.
const PATIENCE: Duration = Duration::from_secs(20);
const FULL: &str = "spool full";

/// Why a batch moves to failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was refused, damaged, or had all its passes.
    Failed,
    /// It waited longer than it may.
    Expired,
}

/// The way to people.
#[derive(Debug)]
pub struct Alarm {
    notices: Notices,
    lane: String,
}

impl Alarm {
    /// Notices about the way to this destination.
    pub fn new(notices: Notices, destination: &str) -> Self {
        Self { notices, lane: destination.to_owned() }
    }

    /// A batch is about to move to failed. On an error nobody would hear of it: it must not move yet. Returns the id of the
    /// notice.
    pub fn failed(&self, why: Why, path: &Path, stored: &Stored) -> io::Result<String> {
        let failed = Failed {
            file_path: path.display().to_string(),
            last_error: stored.last_error.clone().unwrap_or_default(),
            first_attempt: iso(stored.first_attempt),
            retry_count: stored.retry_count.into(),
            batch_idempotency_key: stored.batch.key().to_owned(),
            records: stored.batch.records().len() as u64,
        };
        self.notices.queue(match why {
            Why::Failed => Event::Failed(failed),
            Why::Expired => Event::Expired(failed),
        })
    }

    /// The lane is held: told once, however many batches meet it.
    pub fn held(&self, reason: &str) {
        let event = Event::Held { lane: self.lane.clone(), reason: reason.to_owned() };
        self.say(self.notices.begin(&format!("lane {}", self.lane), event).map(drop));
    }

    /// The receiver took something: what was told of is over.
    pub fn lane_works(&self) {
        self.say(self.notices.end(&format!("lane {}", self.lane)).map(drop));
    }

    /// Everything that was to be written found room again.
    pub fn has_room(&self) {
        self.say(self.notices.end(FULL).map(drop));
    }

    /// Pieces of input are no records. On an error nobody would hear of them. Returns the id of the notice.
    pub fn broken(&self, count: u64, reason: &str) -> io::Result<String> {
        self.notices.queue(Event::Broken { count, reason: reason.to_owned() })
    }

    /// There is no room for new work.
    pub fn spool_full(&self, reason: &str) {
        let event = Event::SpoolFull { reason: reason.to_owned() };
        self.say(self.notices.begin(FULL, event).map(drop));
    }

    /// Sends what waits, before a command ends. What is not sent waits for the next one.
    pub async fn drain(&self) -> Drained {
        self.notices.drain(PATIENCE).await
    }

    /// Sends what comes, until it is stopped.
    pub async fn work(&self, stop: CancellationToken) {
        self.notices.work(stop).await;
    }

    fn say(&self, written: io::Result<()>) {
        if let Err(error) = written {
            tracing::error!(%error, "a notice could not be written");
        }
    }
}
