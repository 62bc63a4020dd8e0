//! The channels that notices are sent through.

use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::message::Message;

/// Why a channel did not accept a message. The reason contains no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A retry may succeed.
    #[error("{reason}")]
    Retryable {
        /// What happened.
        reason: String,
        /// How long the channel asks to wait.
        retry_after: Option<Duration>,
    },
    /// No retry succeeds until an operator changes something.
    #[error("{reason}")]
    Refused {
        /// What happened.
        reason: String,
    },
}

/// A channel to operators.
///
/// The future of `send` may be dropped at any await. It is unknown then whether the message arrived, and it is sent
/// again.
#[async_trait::async_trait]
pub trait Channel: Send + Sync + Debug {
    /// The name used in logs, metrics and file names: lower-case letters, the same in every version.
    fn name(&self) -> &'static str;

    /// Where messages go, without secrets.
    fn describe(&self) -> String {
        self.name().to_owned()
    }

    /// Whether operators see the message without looking for it.
    fn reaches_operators(&self) -> bool {
        true
    }

    /// Sends a message once, without retries.
    async fn send(&self, message: &Message) -> Result<(), Failure>;
}

/// The log, used if no other channel is configured.
#[derive(Debug, Clone, Copy)]
pub struct Log;

#[async_trait::async_trait]
impl Channel for Log {
    fn name(&self) -> &'static str {
        "log"
    }

    fn reaches_operators(&self) -> bool {
        false
    }

    async fn send(&self, message: &Message) -> Result<(), Failure> {
        tracing::warn!(subject = message.subject, text = message.text, "notice");
        Ok(())
    }
}

/// A channel, and when it may be used.
#[derive(Debug)]
pub(super) struct ChannelState {
    channel: Box<dyn Channel>,
    /// The channel asked for a pause until then.
    not_before: Mutex<Option<Instant>>,
    pace: Mutex<Pace>,
}

/// When a daemon uses a channel again. Commands do not wait.
#[derive(Debug, Default)]
struct Pace {
    next: Option<Instant>,
    /// The pause after the last failure.
    pause: Option<Duration>,
}

impl ChannelState {
    pub(super) fn new(channel: Box<dyn Channel>) -> Self {
        Self { channel, not_before: Mutex::default(), pace: Mutex::default() }
    }

    pub(super) fn name(&self) -> &'static str {
        self.channel.name()
    }

    pub(super) fn reaches_operators(&self) -> bool {
        self.channel.reaches_operators()
    }

    /// When a daemon may use the channel. `None` for now.
    pub(super) fn next(&self) -> Option<Instant> {
        self.pace().next.filter(|next| *next > Instant::now())
    }

    /// The channel accepted a message: the next one follows after `window`.
    pub(super) fn accepted(&self, window: Duration) {
        *self.pace() = Pace { next: Some(Instant::now() + window), pause: None };
    }

    /// The channel failed: each pause is twice as long as the one before.
    pub(super) fn failed(&self, first_pause: Duration, pause_max: Duration) {
        let mut pace = self.pace();
        let pause = pace.pause.map_or(first_pause, |pause| (pause * 2).min(pause_max));
        *pace = Pace { next: Some(Instant::now() + pause), pause: Some(pause) };
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Retries until the message is accepted or refused, or the deadline leaves no time for another attempt.
    pub(super) async fn send(
        &self,
        message: &Message,
        deadline: Instant,
        first_pause: Duration,
    ) -> Result<(), Failure> {
        let mut pause = first_pause;
        let mut last = None;
        loop {
            let start = self.not_before().unwrap_or_else(Instant::now);
            if start > deadline {
                let reason = "the channel asked for a longer pause".to_owned();
                return Err(last.unwrap_or(Failure::Retryable { reason, retry_after: None }));
            }
            tokio::time::sleep_until(start).await;
            let sent = tokio::time::timeout_at(deadline, self.channel.send(message)).await;
            let failure = match sent {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(refused @ Failure::Refused { .. })) => return Err(refused),
                Ok(Err(later @ Failure::Retryable { .. })) => later,
                Err(_) => Failure::Retryable { reason: "no response in time".to_owned(), retry_after: None },
            };
            let wait = match &failure {
                Failure::Retryable { retry_after: Some(asked), .. } => (*asked).max(pause),
                Failure::Retryable { retry_after: None, .. } | Failure::Refused { .. } => pause,
            };
            let next = Instant::now() + wait;
            if matches!(failure, Failure::Retryable { retry_after: Some(_), .. }) {
                self.set_not_before(next);
            }
            if next >= deadline {
                return Err(failure);
            }
            tracing::debug!(channel = self.name(), error = %failure, "retrying a message");
            tokio::time::sleep_until(next).await;
            last = Some(failure);
            pause *= 2;
        }
    }

    fn not_before(&self) -> Option<Instant> {
        *self.not_before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_not_before(&self, until: Instant) {
        *self.not_before.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }
}
