//! Runs an effect once: claim, run, record the outcome.

use std::fmt;

use ichido_core::{Claim, CurrentState, Doubt, Grant, Key, Outcome, Settled};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Error, Ledger};

/// The result of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Once<T> {
    /// The effect ran now.
    First(T),
    /// The effect ran before; this is its first result.
    Replayed(T),
}

impl<T> Once<T> {
    /// The result, whether first or replayed.
    pub fn into_inner(self) -> T {
        match self {
            Once::First(value) | Once::Replayed(value) => value,
        }
    }
}

/// How an effect failed. `?` turns any error into [`Failure::Unknown`], the safe assumption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure<E> {
    /// It provably did not happen: the key is released, and the next caller may try.
    NotDone(E),
    /// It may have happened: the claim is in doubt.
    Unknown(E),
}

impl<E> From<E> for Failure<E> {
    fn from(error: E) -> Self {
        Failure::Unknown(error)
    }
}

/// Why there is no result.
#[derive(Debug)]
pub enum OnceError<T, E> {
    /// Another holder is running the effect.
    Held {
        /// What is left of its lease.
        retry_after_ms: u64,
    },
    /// A holder crashed or lost contact, and the effect may have happened.
    InDoubt(Doubt),
    /// The effect happened before, but its result was not kept.
    NotKept(String),
    /// The key was used with another fingerprint.
    Mismatch,
    /// The key was used by another caller.
    CallerChanged,
    /// The effect failed and provably did not happen; the key is free again.
    NotDone(E),
    /// The effect failed and may have happened; the claim is in doubt.
    Unknown(E),
    /// The effect panicked; the claim is in doubt.
    Panicked,
    /// The effect ran, but its claim had been taken over meanwhile: it may have run twice.
    TakenOver {
        /// The result of this run.
        value: T,
        /// The current state of the claim.
        now: CurrentState,
    },
    /// The effect ran, but its outcome could not be recorded; the claim becomes in doubt.
    Unrecorded {
        /// The result of the effect.
        value: T,
        /// Why it was not recorded.
        source: Error,
    },
    /// The stored result is not of the expected type.
    Decode(serde_json::Error),
    /// The ledger failed before the effect was started.
    Ledger(Error),
}

impl<T, E: fmt::Display> fmt::Display for OnceError<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OnceError::Held { retry_after_ms } => {
                write!(f, "another holder is running it; retry in {retry_after_ms} ms")
            }
            OnceError::InDoubt(doubt) => write!(f, "in doubt: {}", doubt.reason),
            OnceError::NotKept(reason) => write!(f, "it ran before, but its result was not kept: {reason}"),
            OnceError::Mismatch => f.write_str("the key was used with another fingerprint"),
            OnceError::CallerChanged => f.write_str("the key was used by another caller"),
            OnceError::NotDone(error) => write!(f, "not done: {error}"),
            OnceError::Unknown(error) => write!(f, "in doubt: {error}"),
            OnceError::Panicked => f.write_str("in doubt: the effect panicked"),
            OnceError::TakenOver { .. } => {
                f.write_str("it ran, but its claim had been taken over meanwhile; it may have run twice")
            }
            OnceError::Unrecorded { source, .. } => {
                write!(f, "it ran, but its outcome could not be recorded: {source}")
            }
            OnceError::Decode(error) => write!(f, "the stored result is not of the expected type: {error}"),
            OnceError::Ledger(error) => error.fmt(f),
        }
    }
}

impl<T: fmt::Debug, E: fmt::Debug + fmt::Display> std::error::Error for OnceError<T, E> {}

impl Ledger {
    /// Runs an effect once for a key. Every later call gets the first result.
    ///
    /// The result is stored as JSON. The lease is renewed while the effect runs.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use ichido_core::{Key, SystemClock};
    /// # use ichido_ledger::{Failure, Ledger, Once, Settings, memory::Memory};
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let memory = Memory::new(Arc::new(SystemClock::default()), 1000);
    /// # let ledger = Ledger::new(Arc::new(memory), Settings::default());
    /// # async fn charge() -> Result<String, std::io::Error> { Ok("receipt 1".to_owned()) }
    /// let receipt = ledger.once(Key::unscoped("order-17")?, || async { Ok(charge().await?) }).await?;
    /// assert_eq!(receipt, Once::First("receipt 1".to_owned()));
    ///
    /// let again = ledger
    ///     .once(Key::unscoped("order-17")?, || async { Err::<String, _>(Failure::NotDone(std::io::Error::other("never called"))) })
    ///     .await?;
    /// assert_eq!(again, Once::Replayed("receipt 1".to_owned()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// The claim, the effect and the recording of its outcome run in a task of their own. Dropping this future does
    /// not stop them, and [`Ledger::close`] waits for them.
    pub async fn once<T, E, F, Fut>(&self, key: Key, effect: F) -> Result<Once<T>, OnceError<T, E>>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        E: Send + 'static,
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, Failure<E>>> + Send + 'static,
    {
        let request = self.request(key);
        // The claim is made inside the task as well: a grant that nobody receives would become in doubt for no
        // reason.
        let ledger = self.clone();
        let task = self.tasks().spawn(async move {
            match ledger.claim(&request).await.map_err(OnceError::Ledger)?.claim {
                Claim::Granted(grant) => ledger.run(&request.key, grant, effect).await.map(Once::First),
                Claim::Held { retry_after_ms } => Err(OnceError::Held { retry_after_ms }),
                Claim::InDoubt(doubt) => Err(OnceError::InDoubt(doubt)),
                Claim::Mismatch => Err(OnceError::Mismatch),
                Claim::CallerChanged => Err(OnceError::CallerChanged),
                Claim::Done(Outcome::Tombstone(reason)) => Err(OnceError::NotKept(reason)),
                Claim::Done(Outcome::Kept(bytes)) => {
                    serde_json::from_slice(&bytes).map(Once::Replayed).map_err(OnceError::Decode)
                }
            }
        });
        task.await.unwrap_or(Err(OnceError::Panicked))
    }

    /// Whether a grant is still good enough to start the effect.
    ///
    /// If the grant was made by an earlier try whose reply was lost, part of its lease is used up. It is renewed
    /// first.
    pub async fn confirm(&self, key: &Key, grant: &Grant) -> crate::Result<bool> {
        if grant.left_ms >= grant.lease_ms / 2 {
            return Ok(true);
        }
        Ok(Box::pin(self.renew(key, grant.token, grant.lease_ms)).await? == Settled::Applied)
    }

    async fn run<T, E, F, Fut>(&self, key: &Key, grant: Grant, effect: F) -> Result<T, OnceError<T, E>>
    where
        T: Serialize + Send + 'static,
        E: Send + 'static,
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, Failure<E>>> + Send + 'static,
    {
        if !self.confirm(key, &grant).await.map_err(OnceError::Ledger)? {
            return Err(OnceError::Held { retry_after_ms: grant.lease_ms });
        }
        let renewal = self.start_renewal(key, &grant);
        let ended = tokio::spawn(async move { effect().await }).await;
        let answer = match ended {
            Ok(Ok(value)) => self.record(key, grant, value).await,
            Ok(Err(Failure::NotDone(error))) => {
                self.warn_unless_settled(self.release(key, grant.token).await, key);
                Err(OnceError::NotDone(error))
            }
            Ok(Err(Failure::Unknown(error))) => {
                self.warn_unless_settled(
                    self.declare_in_doubt(key, grant.token, "the effect failed").await,
                    key,
                );
                Err(OnceError::Unknown(error))
            }
            Err(_) => {
                self.warn_unless_settled(
                    self.declare_in_doubt(key, grant.token, "the effect panicked").await,
                    key,
                );
                Err(OnceError::Panicked)
            }
        };
        drop(renewal);
        answer
    }

    async fn record<T: Serialize, E>(&self, key: &Key, grant: Grant, value: T) -> Result<T, OnceError<T, E>> {
        let outcome = match serde_json::to_vec(&value) {
            Ok(bytes) => Outcome::kept(bytes),
            Err(error) => Outcome::Tombstone(format!("the result cannot be serialized as JSON: {error}")),
        };
        match self.complete(key, grant.token, outcome).await {
            Ok(Settled::Applied) => Ok(value),
            Ok(Settled::Stale(now)) => Err(OnceError::TakenOver { value, now }),
            Err(source) => Err(OnceError::Unrecorded { value, source }),
        }
    }

    /// A release or doubt that was not recorded changes nothing for the caller: the lease lapses, and the claim
    /// becomes in doubt.
    fn warn_unless_settled(&self, settled: crate::Result<Settled>, key: &Key) {
        match settled {
            Ok(Settled::Applied) => {}
            Ok(Settled::Stale(_)) => {
                tracing::warn!(index = %key.index(), "claim was taken over before it was settled")
            }
            Err(error) => {
                tracing::warn!(index = %key.index(), %error, "cannot settle claim; it becomes in doubt when its lease lapses")
            }
        }
    }
}
