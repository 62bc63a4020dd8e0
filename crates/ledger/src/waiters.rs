//! Wakes waiters for a key in the same process.
//!
//! A waiter subscribes before it claims, so that a completion between its claim and its sleep is not lost. An entry
//! lives as long as someone waits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ichido_core::Index;
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Waiters {
    keys: Mutex<HashMap<Index, Arc<Notify>>>,
}

/// A subscription to one key.
pub(crate) struct Waiter {
    waiters: Arc<Waiters>,
    index: Index,
    pub(crate) notify: Arc<Notify>,
}

impl Waiters {
    pub(crate) fn subscribe(self: &Arc<Self>, index: Index) -> Waiter {
        let notify = self.lock().entry(index).or_default().clone();
        Waiter { waiters: self.clone(), index, notify }
    }

    pub(crate) fn wake(&self, index: Index) {
        if let Some(notify) = self.lock().get(&index) {
            notify.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Index, Arc<Notify>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut keys = self.waiters.lock();
        // The map's reference and this one: nobody else waits.
        if Arc::strong_count(&self.notify) == 2 {
            keys.remove(&self.index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn last_waiter_removes_its_entry() {
        let waiters = Arc::new(Waiters::default());
        let index = Index::from_bytes([1; 32]);
        let (first, second) = (waiters.subscribe(index), waiters.subscribe(index));
        drop(first);
        assert_eq!(waiters.lock().len(), 1);
        let notified = second.notify.notified();
        waiters.wake(index);
        notified.await;
        drop(second);
        assert_eq!(waiters.lock().len(), 0);
    }
}
