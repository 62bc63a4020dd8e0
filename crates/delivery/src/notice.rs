//! Notices: what operators must be told.
//!
//! A batch that moves to failed, a held lane, a full spool: each notice is written to an **outbox** on disk first,
//! and sent from there. So every notice is sent at least once, whichever process crashes, and delivery never waits
//! for Slack.
//!
//! ```text
//! data/notices/                               0700
//!   notice_20250118T120530Z_<16 hex>.json     0600: waiting to be sent; `.sent-slack.json` if Slack has it already
//!   .inflight/<pid>-<start>/                  being sent by that process, which locks the file `lock` in it
//!   .outages/outage_<16 hex>.json             an outage that was announced and is not over
//! ```
//!
//! Every configured channel gets every notice: Slack, e-mail, a webhook and a command, or the log if none of them is
//! configured. A channel gets what waits for it as one message (a *digest*). If it does not accept the message, this or
//! the next process tries that channel again.
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
mod command;
mod digest;
mod drain;
mod email;
mod event;
mod file_name;
mod message;
mod outage;
mod outbox;
mod post;
mod settings;
mod slack;
mod taken;
mod webhook;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ichido_core::Clock;
use ichido_settings::Invalid;
use tokio::sync::Notify;

pub use channel::{Channel, Failure, Log};
pub use command::Command;
pub use digest::Digest;
pub use drain::{Drained, Timing};
pub use email::Email;
pub use event::{Event, Failed, Notice};
pub use message::{ListedNotice, Message};
pub use outbox::waiting;
pub(crate) use outbox::{NOTICE_BYTES_MAX, files};
pub use settings::{CommandSettings, EmailSettings, Settings, WebhookSettings};
pub use slack::Slack;
pub use webhook::Webhook;

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
    in_memory: Mutex<Vec<InMemory>>,
    /// Outages without a mark on disk, and when they began.
    unmarked: Mutex<HashMap<String, String>>,
    wake: Notify,
    turn: tokio::sync::Mutex<()>,
    timing: Timing,
}

/// A notice that could not be written, and the channels that have it.
#[derive(Debug, Clone)]
struct InMemory {
    notice: Notice,
    sent: BTreeSet<String>,
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
                in_memory.push(InMemory { notice, sent: BTreeSet::new() });
            }
        }
        self.wake.notify_one();
        written
    }

    /// The number of notices that wait on disk, including those that other processes are sending.
    pub fn waiting(&self) -> io::Result<u64> {
        self.outbox.waiting()
    }

    fn in_memory(&self) -> MutexGuard<'_, Vec<InMemory>> {
        self.in_memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The configured channels.
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
    if let Some(webhook) = &settings.webhook {
        channels.push(Box::new(Webhook::new(webhook, roots, clock.clone())?));
    }
    if let Some(command) = &settings.command {
        channels.push(Box::new(Command::new(command.clone())));
    }
    Ok(channels)
}

#[cfg(test)]
mod tests;
