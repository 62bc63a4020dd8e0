//! Notices: what operators must be told.
//!
//! A batch that moves to failed, a held lane, a full spool: each notice is written to an **outbox** on disk first,
//! and sent from there. So every notice is sent at least once, whichever process crashes, and delivery never waits
//! for Slack.
//!
//! ```text
//! data/notices/                               0700
//!   notice_20250118T120530Z_<16 hex>.json     0600: waiting to be sent
//!   .inflight/<pid>-<start>/                  being sent by that process, which locks the file `lock` in it
//!   .outages/outage_<16 hex>.json             an outage that was announced and is not over
//! ```
//!
//! Waiting notices are sent as one message (a *digest*) through the first channel that accepts it: Slack, then e-mail,
//! or the log if neither is configured. If no channel accepts it, the next process tries again.
//!
//! # Usage
//!
//! ```text
//! let settings = notice::Settings::read(get, allow_http_loopback)?;        // before anything starts
//! let channels = notice::channels(&settings, &roots, &clock)?;
//! let notices = Notices::open(&data.join("notices"), channels, clock)?;    // once per process
//!
//! notices.announce(Event::Failed(…))?;                                     // before the move; on error, do not move
//! notices.begin_outage("lane https://…", Event::Held { … })?;              // once, however many batches are affected
//! notices.end_outage("lane https://…")?;                                   // after a success; announced once
//!
//! notices.drain(Duration::from_secs(20)).await;                            // in a command, before it exits
//! notices.work(stop).await;                                                // in a daemon, as a task of its own
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
use ichido_settings::Invalid;
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
use crate::time::iso_seconds;
use crate::tls_roots::TlsRoots;
use outbox::Outbox;

/// The most notices that are kept in memory because they could not be written.
const IN_MEMORY_MAX: usize = 1_000;

/// The outbox of this process, and the channels that it is sent through.
#[derive(Debug)]
pub struct Notices {
    outbox: Arc<Outbox>,
    channels: Vec<channel::ChannelState>,
    clock: Arc<dyn Clock>,
    /// Notices that could not be written. They are lost with this process, so they are sent first.
    in_memory: Mutex<Vec<Notice>>,
    /// Outages without a mark on disk, and when they began.
    unmarked: Mutex<HashMap<String, String>>,
    wake: Notify,
    turn: tokio::sync::Mutex<()>,
    timing: Timing,
}

impl Notices {
    /// Opens the outbox: creates missing directories, and recovers what crashed processes were sending.
    ///
    /// Without channels, notices go to the log.
    pub fn open(dir: &Path, channels: Vec<Box<dyn Channel>>, clock: Arc<dyn Clock>) -> io::Result<Self> {
        Self::open_with_disk(Disk::default(), dir, channels, clock)
    }

    /// Opens the outbox on a disk that may inject faults.
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

    /// Sets how notices are collected and sent.
    #[must_use]
    pub fn with_timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// Queues a notice. When this returns `Ok`, it is on disk.
    ///
    /// On an error the notice is kept in memory, and this process still tries to send it, so that operators hear of
    /// a full disk. But it is not durable: a move that must be announced has to wait. Blocks for two syncs.
    pub fn announce(&self, event: Event) -> io::Result<()> {
        self.queue(event).map(drop)
    }

    /// Queues a notice like [`Notices::announce`], and returns its id, which the log repeats when it is sent.
    pub fn queue(&self, event: Event) -> io::Result<String> {
        let notice = Notice { at: iso_seconds(self.clock.now()), event };
        let written = self.outbox.put(&notice);
        if let Err(error) = &written {
            tracing::error!(%error, dir = %self.outbox.dir().display(), "cannot write a notice to the outbox");
            let mut in_memory = self.in_memory();
            if in_memory.len() < IN_MEMORY_MAX {
                in_memory.push(notice);
            }
        }
        self.wake.notify_one();
        written
    }

    /// The number of notices that wait on disk, including those that other processes are sending.
    pub fn waiting(&self) -> io::Result<u64> {
        self.outbox.waiting()
    }

    fn in_memory(&self) -> MutexGuard<'_, Vec<Notice>> {
        self.in_memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The configured channels in their order: Slack, then e-mail.
pub fn channels(
    settings: &Settings,
    roots: &TlsRoots,
    clock: &Arc<dyn Clock>,
) -> Result<Vec<Box<dyn Channel>>, Invalid> {
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
