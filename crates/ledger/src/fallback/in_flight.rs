//! Keys whose question is on its way to the primary.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ichido_core::Index;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

#[derive(Debug, Default)]
pub(super) struct Asking {
    keys: Mutex<HashMap<Index, u32>>,
    answered: std::sync::Arc<Notify>,
}

/// A question on its way; over when it is dropped, also if its caller gave up.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    asking: &'a Asking,
    keys: Vec<Index>,
}

impl Asking {
    pub(super) fn begin(&self, keys: &[Index]) -> Asked<'_> {
        let mut counts = self.lock();
        for key in keys {
            *counts.entry(*key).or_default() += 1;
        }
        Asked { asking: self, keys: keys.to_vec() }
    }

    pub(super) fn any(&self, keys: &[Index]) -> bool {
        let counts = self.lock();
        keys.iter().any(|key| counts.contains_key(key))
    }

    /// Completes when a question that is on its way now is answered. Get it before looking with `any`.
    pub(super) fn answered(&self) -> OwnedNotified {
        self.answered.clone().notified_owned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Index, u32>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut counts = self.asking.lock();
        for key in &self.keys {
            if let Some(count) = counts.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(key);
                }
            }
        }
        drop(counts);
        self.asking.answered.notify_waiters();
    }
}
