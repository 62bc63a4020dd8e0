//! Tells the task that settles doubts which claims requests have met in doubt, so that it need not wait for its next search.

use std::sync::Arc;

use ichido_core::Key;
use ichido_ledger::{Decision, Observer, Subject};
use tokio::sync::mpsc;

/// Hints that wait. Others are dropped: the next search finds their claims.
const HINTS_MAX: usize = 1_024;

/// An observer that passes every decision on, and keys in doubt to the task.
#[derive(Debug)]
pub struct DoubtHints {
    next: Option<Arc<dyn Observer>>,
    hints: mpsc::Sender<Key>,
}

/// Where the hints arrive.
#[derive(Debug)]
pub struct HintReceiver(mpsc::Receiver<Key>);

/// Creates both ends. `next` hears every decision as well.
pub fn hints(next: Option<Arc<dyn Observer>>) -> (DoubtHints, HintReceiver) {
    let (hints, receiver) = mpsc::channel(HINTS_MAX);
    (DoubtHints { next, hints }, HintReceiver(receiver))
}

impl HintReceiver {
    /// Waits for hints, and takes all of them. Waits forever once there can be none.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, no hint was taken.
    pub(super) async fn next(&mut self) -> Vec<Key> {
        let mut keys = Vec::new();
        match self.0.recv_many(&mut keys, HINTS_MAX).await {
            0 => std::future::pending().await,
            _ => keys,
        }
    }
}

impl Observer for DoubtHints {
    fn decided(&self, decision: &Decision<'_>) {
        if let (Subject::Claim(key), "in-doubt" | "declared-in-doubt") = (decision.subject, decision.result) {
            let _ = self.hints.try_send(key.clone());
        }
        if let Some(next) = &self.next {
            next.decided(decision);
        }
    }
}
