//! Notices: what a person must hear of.
//!
//! A batch that was moved to failed, a lane that is held, a spool that is full: each is written to an **outbox** on
//! disk first, and sent from there. So a notice is sent at least once, whoever dies in between, and nothing that is
//! being delivered waits for Slack.
//!
//! ```text
//! data/notices/                               0700
//!   notice_20250118T120530Z_<16 hex>.json     0600: waits
//!   .inflight/<pid>-<start>/                  what one process is sending; it holds the file `lock` in it
//!   .outages/outage_<16 hex>.json             an outage that was announced and is not over
//! ```
//!
//! What waits is sent as one message (a *digest*), through the first channel that takes it, in the order they were
//! given: Slack, then e-mail; the log if there is neither. What no channel took waits for the next process that looks.
//!
//! # For the sender
//!
//! ```text
//! let settings = notice::Settings::read(get, allow_http_loopback)?;        // before anything starts
//! let channels = notice::channels(&settings, &trust, &clock)?;
//! let notices = Notices::open(&data.join("notices"), channels, clock)?;   // once per process
//!
//! notices.announce(Event::Failed(…))?;        // before the move to failed; an error means: do not move yet
//! notices.begin_outage("lane https://…", Event::Held { … })?;                    // once, however many batches meet it
//! notices.end_outage("lane https://…")?;             // after a success: one look at the disk; "recovered" once
//!
//! notices.drain(Duration::from_secs(20)).await;                           // a command, before it exits
//! notices.work(stop).await;                                               // a daemon, in a task of its own
//! ```

mod channel;
mod digest;
mod drain;
mod email;
mod event;
mod outage;
mod outbox;
mod settings;
mod slack;

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ichido_core::Clock;
use tokio::sync::Notify;

pub use channel::{Channel, Failure, Log, Message};
pub use digest::Digest;
pub use drain::{Drained, Timing};
pub use email::Email;
pub use event::{Event, Failed, Notice};
pub use outbox::waiting;
pub use settings::{EmailSettings, Settings};
pub use slack::Slack;

use crate::disk::Disk;
use crate::settings::Error;
use crate::time::iso_seconds;
use crate::tls_roots::TlsRoots;
use outbox::Outbox;

/// Notices that could not be written are kept in memory, so many at most.
const IN_MEMORY_MAX: usize = 1_000;

/// The outbox of this process, and the channels it is sent through.
#[derive(Debug)]
pub struct Notices {
    outbox: Arc<Outbox>,
    channels: Vec<channel::ChannelState>,
    clock: Arc<dyn Clock>,
    /// What the disk did not take. Lost with this process, so it is sent first.
    in_memory: Mutex<Vec<Notice>>,
    /// Outages that the disk has no mark of, and since when.
    unmarked: Mutex<HashMap<String, String>>,
    wake: Notify,
    turn: tokio::sync::Mutex<()>,
    timing: Timing,
}

impl Notices {
    /// Opens the outbox, creates what is missing, and gives back what dead processes were sending.
    ///
    /// Without channels, notices go to the log.
    pub fn open(dir: &Path, channels: Vec<Box<dyn Channel>>, clock: Arc<dyn Clock>) -> io::Result<Self> {
        Self::open_with_disk(Disk::default(), dir, channels, clock)
    }

    /// The same on a disk that may have someone before it.
    pub fn open_with_disk(
        disk: Disk,
        dir: &Path,
        channels: Vec<Box<dyn Channel>>,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let outbox = Arc::new(Outbox::open(disk, dir, clock.now())?);
        let mut channels: Vec<_> = channels.into_iter().map(channel::ChannelState::new).collect();
        if channels.is_empty() {
            channels.push(channel::ChannelState::new(Box::new(Log)));
        }
        Ok(Self {
            outbox,
            channels,
            clock,
            in_memory: Mutex::default(),
            unmarked: Mutex::default(),
            wake: Notify::new(),
            turn: tokio::sync::Mutex::default(),
            timing: Timing::default(),
        })
    }

    /// Sets how fast notices are gathered and sent.
    #[must_use]
    pub fn with_timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// Queues a notice. When this returns `Ok`, it is on disk.
    ///
    /// On an error it is kept in memory and this process still tries to send it, so that a full disk can be told of;
    /// but it is not safe, and a move that must not go unheard has to wait. Blocks for two syncs of the disk.
    pub fn announce(&self, event: Event) -> io::Result<()> {
        self.queue(event).map(drop)
    }

    /// The same; returns the id of the notice, under which the log tells that it was sent.
    pub fn queue(&self, event: Event) -> io::Result<String> {
        let notice = Notice { at: iso_seconds(self.clock.now()), event };
        let written = self.outbox.put(&notice);
        if let Err(error) = &written {
            tracing::error!(%error, dir = %self.outbox.dir().display(), "a notice could not be written to the outbox");
            let mut in_memory = self.in_memory();
            if in_memory.len() < IN_MEMORY_MAX {
                in_memory.push(notice);
            }
        }
        self.wake.notify_one();
        written
    }

    /// How many notices wait on disk, also in the hands of other processes.
    pub fn waiting(&self) -> io::Result<u64> {
        self.outbox.waiting()
    }

    fn in_memory(&self) -> MutexGuard<'_, Vec<Notice>> {
        self.in_memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The channels in their order: Slack, then e-mail.
pub fn channels(
    settings: &Settings,
    roots: &TlsRoots,
    clock: &Arc<dyn Clock>,
) -> Result<Vec<Box<dyn Channel>>, Error> {
    let mut channels: Vec<Box<dyn Channel>> = Vec::new();
    if let Some(url) = &settings.slack {
        channels.push(Box::new(Slack::new(url.clone(), roots, clock.clone())?));
    }
    if let Some(email) = &settings.email {
        channels.push(Box::new(Email::new(email, roots)?));
    }
    Ok(channels)
}

#[cfg(test)]
mod tests;
