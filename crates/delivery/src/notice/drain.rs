//! Sends waiting notices.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use metrics::{counter, gauge};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Notices;
use super::channel::{ChannelState, Message};
use super::digest::Digest;
use super::event::{Event, Notice};
use super::outbox::{Found, id};

/// How long a stopped daemon waits for the response to a message that is being sent.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// How notices are collected and sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long a daemon waits for further notices before it sends.
    pub gather: Duration,
    /// A daemon sends at most one message per this interval.
    pub window: Duration,
    /// The pause after the first failure. Each further pause is twice as long.
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
    /// Notices that a channel accepted.
    pub sent: u64,
    /// Notices that are still waiting.
    pub waiting: u64,
    /// Whether this drain tried to send, and no channel accepted the message.
    pub failed: bool,
}

#[derive(Default)]
struct Taken {
    digest: Digest,
    files: Vec<String>,
    batches: Vec<BatchNotice>,
}

/// A notice about a failed batch. The log reports when each of them is sent.
struct BatchNotice {
    id: String,
    key: String,
}

impl Taken {
    fn add(&mut self, id: String, notice: &Notice) {
        self.digest.add(notice);
        match &notice.event {
            Event::Failed(failed) | Event::Expired(failed) => {
                self.batches.push(BatchNotice { id, key: failed.batch_idempotency_key.clone() });
            }
            Event::Held { .. }
            | Event::SpoolFull { .. }
            | Event::InvalidInput { .. }
            | Event::Anomaly { .. }
            | Event::Recovered { .. } => {}
        }
    }
}

impl Notices {
    /// Sends waiting notices as one message, within `time_limit`. Never fails: what was not sent waits.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the notices stay in this process's directory. The next drain sends them, or another
    /// process after this one has ended.
    pub fn drain(&self, time_limit: Duration) -> BoxFuture<'_, Drained> {
        Box::pin(async move {
            let deadline = Instant::now() + time_limit;
            let drained = match tokio::time::timeout_at(deadline, self.turn.lock()).await {
                Ok(_turn) => self.drain_once(deadline).await,
                Err(_) => Drained { failed: true, ..Drained::default() },
            };
            let in_memory = self.in_memory().len() as u64;
            let waiting = self.waiting().unwrap_or_default() + in_memory;
            gauge!("ichido_notices_waiting").set(waiting as f64);
            Drained { waiting, ..drained }
        })
    }

    /// Sends notices as they arrive, until it is stopped. The caller then drains what is left.
    ///
    /// Returns within two seconds of being stopped.
    pub fn work(&self, stop: CancellationToken) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut pause = self.timing.pause;
            loop {
                let draining = self.drain(self.timing.time_limit);
                tokio::pin!(draining);
                let drained = tokio::select! {
                    drained = &mut draining => drained,
                    () = stop.cancelled() => {
                        // Wait for the response, so that the message is not sent twice.
                        let _ = tokio::time::timeout(STOP_GRACE, draining).await;
                        return;
                    }
                };
                let next = async {
                    if drained.failed {
                        tokio::time::sleep(pause).await;
                        return;
                    }
                    if drained.sent > 0 {
                        tokio::time::sleep(self.timing.window).await;
                    }
                    // Other processes that use this directory cannot wake us, so look now and then.
                    let _ = tokio::time::timeout(self.timing.look, self.wake.notified()).await;
                    tokio::time::sleep(self.timing.gather).await;
                };
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = next => {}
                }
                pause =
                    if drained.failed { (pause * 2).min(self.timing.pause_max) } else { self.timing.pause };
            }
        })
    }

    async fn drain_once(&self, deadline: Instant) -> Drained {
        // They stay in memory until they are sent, because a drain may be dropped at any await.
        let in_memory = self.in_memory().clone();
        match self.take(&in_memory).await {
            Ok(taken) if taken.digest.count() == 0 => Drained::default(),
            Ok(taken) => self.send_taken(taken, in_memory.len(), deadline).await,
            Err(error) => {
                tracing::error!(%error, dir = %self.outbox.dir().display(), "cannot read the outbox of notices");
                Drained { failed: true, ..Drained::default() }
            }
        }
    }

    async fn take(&self, in_memory: &[Notice]) -> io::Result<Taken> {
        let mut taken = Taken::default();
        for notice in in_memory {
            taken.add(id(&serde_json::to_vec(notice)?), notice);
        }
        let outbox = Arc::clone(&self.outbox);
        let taking = move || {
            taken.files = outbox.take(|found| match found {
                Found::Notice(id, notice) => taken.add(id, &notice),
                Found::Unreadable(file) => taken.digest.add_unreadable(&file),
            })?;
            Ok(taken)
        };
        tokio::task::spawn_blocking(taking).await.map_err(io::Error::other)?
    }

    async fn send_taken(&self, taken: Taken, in_memory: usize, deadline: Instant) -> Drained {
        let message = taken.digest.message();
        let count = taken.digest.count();
        let sent = self.send(&message, deadline).await;
        let settled = match sent {
            Some(line) => {
                let (sent, channel) = (line.reaches_operators(), line.name());
                let subject = message.subject;
                tracing::info!(notificationSent = sent, channel, count, subject, "notices sent");
                for BatchNotice { id, key } in &taken.batches {
                    tracing::info!(
                        notificationSent = sent,
                        noticeId = id,
                        batchIdempotencyKey = key,
                        channel,
                        "notice of a failed batch sent"
                    );
                }
                counter!("ichido_notices_sent_total", "channel" => channel).increment(count);
                self.in_memory().drain(..in_memory);
                self.outbox.remove(&taken.files)
            }
            None => {
                tracing::error!(
                    notificationSent = false,
                    count,
                    subject = message.subject,
                    "no channel accepted the notices; they stay in the outbox"
                );
                self.outbox.put_back(&taken.files)
            }
        };
        if let Err(error) = settled {
            // They stay in this process's directory, and are taken again.
            tracing::warn!(%error, "cannot remove notices from the outbox or put them back");
        }
        match sent {
            Some(_) => Drained { sent: count, waiting: 0, failed: false },
            None => Drained { sent: 0, waiting: count, failed: true },
        }
    }

    /// Tries the channels in order, each for its share of the remaining time. Returns the one that accepted the
    /// message.
    async fn send(&self, message: &Message, deadline: Instant) -> Option<&ChannelState> {
        for (index, channel) in self.channels.iter().enumerate() {
            let left = u32::try_from(self.channels.len() - index).unwrap_or(1);
            let now = Instant::now();
            let share = now + deadline.saturating_duration_since(now) / left;
            match channel.send(message, share, self.timing.pause).await {
                Ok(()) => return Some(channel),
                Err(failure) => {
                    tracing::warn!(channel = channel.name(), error = %failure, "a channel did not accept the notices");
                }
            }
        }
        None
    }
}
