//! The way to the writer: a bounded queue that is emptied in one grasp.
//!
//! Callers wait for room without holding a thread. The writer is woken only when it sleeps; while it commits, callers
//! queue up, and the next commit takes them all. That is the whole of the group commit: no delay is added.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ichido_core::mark::{self, Mark};
use ichido_core::{
    Adopted, Claim, ClaimRequest, Index, Key, Nonce, Record, Resolution, Resolved, Settle, Settled, Token,
};
use tokio::sync::{Semaphore, TryAcquireError, oneshot};

use super::sweep::Bite;
use crate::{Error, Kind, Result, Swept};

/// Calls that wait for the writer at once; more callers wait for room.
const BOUND: usize = 16 * 1024;
/// Calls in one group commit.
const GROUP_MAX: usize = 2048;
/// Bytes of outcomes in one group commit, beyond its first call.
const GROUP_BYTES: usize = 8 * 1024 * 1024;

/// Where an answer goes.
pub(super) type Reply<T> = oneshot::Sender<Result<T>>;

/// A call for the writer.
#[derive(Debug)]
pub(super) enum Call {
    Claim {
        request: ClaimRequest,
        /// The generation at which the caller saw that there is no such claim.
        absent_at: Option<u64>,
        reply: Reply<Claim>,
    },
    Settle {
        key: Key,
        token: Token,
        word: Settle,
        reply: Reply<Settled>,
    },
    Resolve {
        key: Key,
        word: Resolution,
        reply: Reply<Resolved>,
    },
    Adopt {
        record: Box<Record>,
        reply: Reply<Adopted>,
    },
    Mark {
        /// With the generation at which the caller saw that there is no such mark.
        requests: Vec<(mark::Request, Option<u64>)>,
        reply: Reply<Vec<Mark>>,
    },
    /// Claims that still have these tokens, and marks that still have these nonces.
    Remove {
        claims: Vec<(Index, Token)>,
        marks: Vec<(Index, Nonce)>,
        reply: Reply<()>,
    },
    Sweep {
        bite: Bite,
        reply: Reply<Swept>,
    },
}

impl Call {
    fn bytes(&self) -> usize {
        match self {
            Call::Settle { word: Settle::Complete(outcome), .. } => outcome.size(),
            Call::Resolve { word: Resolution::Done(outcome), .. } => outcome.size(),
            Call::Adopt { record, .. } => match &record.state {
                ichido_core::State::Done(done) => done.outcome.size(),
                ichido_core::State::Running | ichido_core::State::InDoubt(_) => 0,
            },
            Call::Mark { requests, .. } => requests.len() * 256,
            Call::Claim { .. }
            | Call::Settle { .. }
            | Call::Resolve { .. }
            | Call::Remove { .. }
            | Call::Sweep { .. } => 0,
        }
    }

    /// Answers with an error.
    pub(super) fn fail(self, error: Error) {
        match self {
            Call::Claim { reply, .. } => drop(reply.send(Err(error))),
            Call::Settle { reply, .. } => drop(reply.send(Err(error))),
            Call::Resolve { reply, .. } => drop(reply.send(Err(error))),
            Call::Adopt { reply, .. } => drop(reply.send(Err(error))),
            Call::Mark { reply, .. } => drop(reply.send(Err(error))),
            Call::Remove { reply, .. } => drop(reply.send(Err(error))),
            Call::Sweep { reply, .. } => drop(reply.send(Err(error))),
        }
    }
}

/// The queue between the callers and the writer.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    room: Semaphore,
}

#[derive(Debug, Default)]
struct State {
    calls: Vec<Call>,
    asleep: bool,
    closed: bool,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self { state: Mutex::default(), wake: Condvar::new(), room: Semaphore::new(BOUND) }
    }

    /// Waits for room and hands a call to the writer.
    pub(super) async fn push(&self, call: Call) -> Result<()> {
        match self.room.acquire().await {
            Ok(room) => room.forget(),
            Err(_) => return Err(closed()),
        }
        self.put(call)
    }

    /// The same for a thread that may sleep.
    pub(super) fn push_blocking(&self, call: Call) -> Result<()> {
        loop {
            match self.room.try_acquire() {
                Ok(room) => {
                    room.forget();
                    return self.put(call);
                }
                Err(TryAcquireError::NoPermits) => std::thread::sleep(Duration::from_millis(1)),
                Err(TryAcquireError::Closed) => return Err(closed()),
            }
        }
    }

    fn put(&self, call: Call) -> Result<()> {
        let mut state = self.lock();
        if state.closed {
            return Err(closed());
        }
        state.calls.push(call);
        let asleep = std::mem::take(&mut state.asleep);
        drop(state);
        if asleep {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// The calls of the next group commit, in order; empty after `wait` without any. `None`: closed and empty.
    pub(super) fn take(&self, wait: Duration) -> Option<Vec<Call>> {
        let mut state = self.lock();
        if state.calls.is_empty() && !state.closed && !wait.is_zero() {
            state.asleep = true;
            let waited =
                self.wake.wait_timeout_while(state, wait, |state| state.calls.is_empty() && !state.closed);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.asleep = false;
        }
        if state.calls.is_empty() && state.closed {
            return None;
        }
        let calls = state.group();
        drop(state);
        self.room.add_permits(calls.len());
        Some(calls)
    }

    /// Takes no more calls; what is queued is still done.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.room.close();
        self.wake.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.room.is_closed()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn group(&mut self) -> Vec<Call> {
        let mut bytes = 0;
        let fits = self.calls.iter().take(GROUP_MAX).take_while(|call| {
            let first = bytes == 0;
            bytes += 1 + call.bytes();
            first || bytes <= GROUP_BYTES
        });
        let count = fits.count();
        if count == self.calls.len() {
            let capacity = count.max(64);
            return std::mem::replace(&mut self.calls, Vec::with_capacity(capacity));
        }
        let rest = self.calls.split_off(count);
        std::mem::replace(&mut self.calls, rest)
    }
}

/// The error after the end.
pub(super) fn closed() -> Error {
    Error::new(Kind::Closed, "asking the file ledger")
}
