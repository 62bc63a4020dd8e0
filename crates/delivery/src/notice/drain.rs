//! Sends waiting notices, through every channel.
//!
//! Each channel gets the notices that it does not have yet, as one message. That it has them is noted as soon as it has
//! accepted them, so a channel that fails is retried without repeating the others, whichever process retries it.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use metrics::{counter, gauge};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::channel::ChannelState;
use super::message::Message;
use super::outbox::{Found, id};
use super::taken::{BatchNotice, Entry, Part, Taken};
use super::{InMemory, Notices};

/// How long a stopped daemon waits for the response to a message that is being sent.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// How notices are collected and sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long a daemon waits for further notices before it sends.
    pub gather: Duration,
    /// A daemon sends at most one message per this interval and channel.
    pub window: Duration,
    /// The pause after a channel's first failure. Each further pause is twice as long.
    pub pause: Duration,
    /// The longest pause of a daemon.
    pub pause_max: Duration,
    /// How long a daemon tries to send a message each time.
    pub time_limit: Duration,
    /// How often a daemon looks for notices of other processes.
    pub look: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            gather: Duration::from_secs(2),
            window: Duration::from_secs(60),
            pause: Duration::from_secs(1),
            pause_max: Duration::from_secs(300),
            time_limit: Duration::from_secs(30),
            look: Duration::from_secs(60),
        }
    }
}

/// What a drain did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drained {
    /// Notices that every channel has now.
    pub sent: u64,
    /// Notices that are still waiting for a channel.
    pub waiting: u64,
    /// Whether this drain tried to send, and a channel did not accept its message.
    pub failed: bool,
}

/// Who drains.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// A command: every channel is used at once.
    Command,
    /// A daemon: a channel that failed or was used just now has a pause.
    Daemon,
}

/// What became of a part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PartResult {
    Nothing,
    Paused,
    Accepted,
    Failed,
}

impl Notices {
    /// Sends waiting notices, as one message for each channel, within `time_limit`. Never fails: what was not sent
    /// waits.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the notices stay in this process's directory. The next drain sends them, or another
    /// process after this one has ended.
    pub fn drain(&self, time_limit: Duration) -> BoxFuture<'_, Drained> {
        Box::pin(self.drain_at(Pace::Command, time_limit))
    }

    /// Sends notices as they arrive, until it is stopped. The caller then drains what is left.
    ///
    /// Returns within two seconds of being stopped.
    pub fn work(&self, stop: CancellationToken) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            loop {
                let draining = self.drain_at(Pace::Daemon, self.timing.time_limit);
                tokio::pin!(draining);
                let drained = tokio::select! {
                    drained = &mut draining => drained,
                    () = stop.cancelled() => {
                        // Wait for the response, so that the message is not sent twice.
                        let _ = tokio::time::timeout(STOP_GRACE, draining).await;
                        return;
                    }
                };
                let due = self.due(drained);
                let retry = async {
                    match due {
                        Some(due) => tokio::time::sleep_until(due).await,
                        None => std::future::pending().await,
                    }
                };
                let arrival = async {
                    // Other processes that use this directory cannot wake us, so look now and then.
                    let _ = tokio::time::timeout(self.timing.look, self.wake.notified()).await;
                    tokio::time::sleep(self.timing.gather).await;
                };
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = retry => {}
                    () = arrival => {}
                }
            }
        })
    }

    async fn drain_at(&self, pace: Pace, time_limit: Duration) -> Drained {
        let deadline = Instant::now() + time_limit;
        let drained = match tokio::time::timeout_at(deadline, self.turn.lock()).await {
            Ok(_turn) => self.drain_once(pace, deadline).await,
            Err(_) => Drained { failed: true, ..Drained::default() },
        };
        let in_memory = self.in_memory().len() as u64;
        let waiting = self.waiting().unwrap_or_default() + in_memory;
        gauge!("ichido_notices_waiting").set(waiting as f64);
        Drained { waiting, ..drained }
    }

    /// When a daemon drains again, if not because of a new notice: when the next channel may be used for what waits.
    fn due(&self, drained: Drained) -> Option<Instant> {
        let next = self.channels.iter().filter_map(ChannelState::next).min();
        match (drained.waiting, drained.failed) {
            (0, _) => None,
            // The outbox cannot be read, or another process has the notices.
            (_, true) => Some(next.unwrap_or_else(|| Instant::now() + self.timing.pause)),
            (_, false) => next,
        }
    }

    async fn drain_once(&self, pace: Pace, deadline: Instant) -> Drained {
        if pace == Pace::Daemon && self.channels.iter().all(|channel| channel.next().is_some()) {
            return Drained::default();
        }
        // They stay in memory until they are sent, because a drain may be dropped at any await.
        let in_memory = self.in_memory().clone();
        match self.take(in_memory).await {
            Ok(taken) => self.send_taken(taken, pace, deadline).await,
            Err(error) => {
                tracing::error!(%error, dir = %self.outbox.dir().display(), "cannot read the outbox of notices");
                Drained { failed: true, ..Drained::default() }
            }
        }
    }

    async fn take(&self, in_memory: Vec<InMemory>) -> io::Result<Taken> {
        let channels: Vec<&'static str> = self.channels.iter().map(ChannelState::name).collect();
        let mut taken = Taken::new(channels.len());
        for (index, InMemory { notice, sent }) in in_memory.into_iter().enumerate() {
            let id = id(&serde_json::to_vec(&notice)?);
            taken.add(Entry::Memory(index, sent), &id, &notice, &channels);
        }
        let outbox = Arc::clone(&self.outbox);
        let taking = move || {
            outbox.take(|found| match found {
                Found::Notice { file, id, notice } => taken.add(Entry::File(file), &id, &notice, &channels),
                Found::Unreadable(file) => {
                    taken.parts.iter_mut().for_each(|part| part.digest.add_unreadable(&file));
                }
            })?;
            Ok(taken)
        };
        tokio::task::spawn_blocking(taking).await.map_err(io::Error::other)?
    }

    async fn send_taken(&self, taken: Taken, pace: Pace, deadline: Instant) -> Drained {
        let entries = Mutex::new(taken.entries);
        let parts = self.channels.iter().zip(taken.parts);
        let results =
            join_all(parts.map(|(channel, part)| self.send_part(channel, part, &entries, pace, deadline)));
        let results = results.await;
        let entries = entries.into_inner().unwrap_or_else(PoisonError::into_inner);
        let sent = self.settle(entries).unwrap_or_else(|error| {
            // They stay in this process's directory, and are taken again.
            tracing::warn!(%error, "cannot remove notices from the outbox or put them back");
            0
        });
        let failed = results.contains(&PartResult::Failed);
        if failed && !results.contains(&PartResult::Accepted) {
            tracing::error!(
                notificationSent = false,
                "no channel accepted the notices; they stay in the outbox"
            );
        }
        Drained { sent, waiting: 0, failed }
    }

    /// Sends a channel what it does not have yet, and notes that it has it.
    async fn send_part(
        &self,
        channel: &ChannelState,
        part: Part,
        entries: &Mutex<Vec<Entry>>,
        pace: Pace,
        deadline: Instant,
    ) -> PartResult {
        let count = part.digest.count();
        if count == 0 {
            return PartResult::Nothing;
        }
        if pace == Pace::Daemon && channel.next().is_some() {
            return PartResult::Paused;
        }
        let (message, name) = (part.digest.message(), channel.name());
        if let Err(failure) = channel.send(&message, deadline, self.timing.pause).await {
            let subject = &message.subject;
            tracing::warn!(channel = name, error = %failure, count, subject, "a channel did not accept the notices");
            counter!("ichido_notices_failures_total", "channel" => name).increment(1);
            channel.failed(self.timing.pause, self.timing.pause_max);
            return PartResult::Failed;
        }
        channel.accepted(self.timing.window);
        let mut entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
        for index in part.entries {
            self.note_sent(&mut entries[index], name);
        }
        drop(entries);
        log_sent(channel, &message, count, &part.batches);
        PartResult::Accepted
    }

    /// Notes that a channel has a notice. One that every channel has is removed at once.
    fn note_sent(&self, entry: &mut Entry, channel: &'static str) {
        let file = match entry {
            Entry::Memory(index, sent) => {
                sent.insert(channel.to_owned());
                if let Some(known) = self.in_memory().get_mut(*index) {
                    known.sent.insert(channel.to_owned());
                }
                return;
            }
            Entry::File(file) => file,
        };
        let before = file.clone();
        file.sent.insert(channel.to_owned());
        let noted = match self.is_complete(&file.sent) {
            true => self.outbox.remove(&before),
            false => self.outbox.rename_taken(&before, file),
        };
        if let Err(error) = noted {
            tracing::warn!(%error, channel, "cannot note that a notice was sent; the channel gets it again");
            *file = before;
        }
    }

    /// Removes what every channel has, and puts the rest back. Returns how many every channel has.
    fn settle(&self, entries: Vec<Entry>) -> io::Result<u64> {
        let mut complete = 0;
        for entry in &entries {
            let is_complete = self.is_complete(entry.sent());
            match (entry, is_complete) {
                (Entry::File(file), true) => self.outbox.remove(file)?,
                (Entry::File(file), false) => self.outbox.put_back(file)?,
                (Entry::Memory(..), _) => {}
            }
            complete += u64::from(is_complete);
        }
        self.in_memory().retain(|known| !self.is_complete(&known.sent));
        Ok(complete)
    }

    fn is_complete(&self, sent: &BTreeSet<String>) -> bool {
        self.channels.iter().all(|channel| sent.contains(channel.name()))
    }
}

fn log_sent(channel: &ChannelState, message: &Message, count: u64, batches: &[BatchNotice]) {
    let (sent, channel) = (channel.reaches_operators(), channel.name());
    tracing::info!(notificationSent = sent, channel, count, subject = message.subject, "notices sent");
    for BatchNotice { id, key } in batches {
        tracing::info!(
            notificationSent = sent,
            noticeId = id,
            batchIdempotencyKey = key,
            channel,
            "notice of a failed batch sent"
        );
    }
    counter!("ichido_notices_sent_total", "channel" => channel).increment(count);
}
