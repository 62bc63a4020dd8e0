//! Keys for which a call to the primary is in flight.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ichido_core::Index;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

#[derive(Debug, Default)]
pub(super) struct InFlight {
    keys: Mutex<HashMap<Index, u32>>,
    completed: std::sync::Arc<Notify>,
}

/// A call in flight. It ends when this value is dropped, also if the caller gave up.
#[derive(Debug)]
pub(super) struct InFlightCall<'a> {
    in_flight: &'a InFlight,
    keys: Vec<Index>,
}

impl InFlight {
    pub(super) fn begin(&self, keys: &[Index]) -> InFlightCall<'_> {
        let mut counts = self.lock();
        for key in keys {
            *counts.entry(*key).or_default() += 1;
        }
        InFlightCall { in_flight: self, keys: keys.to_vec() }
    }

    pub(super) fn contains_any(&self, keys: &[Index]) -> bool {
        let counts = self.lock();
        keys.iter().any(|key| counts.contains_key(key))
    }

    /// Completes when a call that is in flight now ends. Create it before checking with `contains_any`.
    pub(super) fn completed(&self) -> OwnedNotified {
        self.completed.clone().notified_owned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Index, u32>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InFlightCall<'_> {
    fn drop(&mut self) {
        let mut counts = self.in_flight.lock();
        for key in &self.keys {
            if let Some(count) = counts.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(key);
                }
            }
        }
        drop(counts);
        self.in_flight.completed.notify_waiters();
    }
}
