//! The queue between callers and the writer, which the writer empties at once.
//!
//! Callers wait for room without holding a thread. The writer is woken only if it sleeps; while it commits, calls queue up,
//! and the next commit takes them all. That is the whole of the group commit: no delay is added.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, TryAcquireError};

use crate::log::Call;
use crate::{Error, Kind, Result};

/// Calls in the queue. Further callers wait for room.
const BOUND: usize = 16 * 1024;
/// Calls in one group commit.
const GROUP_MAX: usize = 2048;
/// Bytes of outcomes in one group commit, beyond its first call.
const GROUP_BYTES: usize = 8 * 1024 * 1024;

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

    /// The same, for a thread that may sleep.
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

    /// The calls of the next group commit, in order. Waits for them, but at most `wait`. `None` if the queue is closed and
    /// empty.
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

    /// Accepts no more calls. Those in the queue are still done.
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

/// The error of a closed ledger.
pub(super) fn closed() -> Error {
    Error::new(Kind::Closed, "using the file ledger")
}
