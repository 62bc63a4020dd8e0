//! The way a message takes to a person.

use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What is sent: the same for every channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// One line.
    pub subject: String,
    /// Some lines.
    pub text: String,
}

/// Why a channel did not take a message. The reason has no secret in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It may take it later.
    #[error("{reason}")]
    Retryable {
        /// What happened.
        reason: String,
        /// How long it asks to be left alone.
        retry_after: Option<Duration>,
    },
    /// It will not, until someone changes something.
    #[error("{reason}")]
    Refused {
        /// What happened.
        reason: String,
    },
}

/// A way to a person.
///
/// `send` may be dropped at any await; then nobody knows whether the message arrived, and it is sent again.
#[async_trait::async_trait]
pub trait Channel: Send + Sync + Debug {
    /// A word for logs.
    fn name(&self) -> &'static str;

    /// Whether someone reads it who does not look for it.
    fn reaches_operators(&self) -> bool {
        true
    }

    /// Sends a message once, without trying again.
    async fn send(&self, message: &Message) -> Result<(), Failure>;
}

/// The log: for those who watch it, and where nothing else was set.
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

/// A channel, and until when it asked to be left alone.
#[derive(Debug)]
pub(super) struct ChannelState {
    channel: Box<dyn Channel>,
    not_before: Mutex<Option<Instant>>,
}

impl ChannelState {
    pub(super) fn new(channel: Box<dyn Channel>) -> Self {
        Self { channel, not_before: Mutex::default() }
    }

    pub(super) fn name(&self) -> &'static str {
        self.channel.name()
    }

    pub(super) fn reaches_operators(&self) -> bool {
        self.channel.reaches_operators()
    }

    /// Tries until it is taken, refused, or the deadline leaves no room for another try.
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
                let reason = "it asked to be left alone for longer".to_owned();
                return Err(last.unwrap_or(Failure::Retryable { reason, retry_after: None }));
            }
            tokio::time::sleep_until(start).await;
            let sent = tokio::time::timeout_at(deadline, self.channel.send(message)).await;
            let failure = match sent {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(refused @ Failure::Refused { .. })) => return Err(refused),
                Ok(Err(later @ Failure::Retryable { .. })) => later,
                Err(_) => Failure::Retryable { reason: "no answer in time".to_owned(), retry_after: None },
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
            tracing::debug!(channel = self.name(), error = %failure, "a message is tried again");
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
