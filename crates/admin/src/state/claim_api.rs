//! What the claim API works with.

use std::sync::Arc;
use std::time::Duration;

use ichido_ledger::{Ledger, StoreClock};
use tokio::sync::Semaphore;

use super::event_checks::Watch;
use super::log_keys::LogKeys;

/// Calls with large bodies that are in memory at once; the next ones wait.
const LARGE_AT_ONCE: usize = 8;
/// How often a ledger that is out is looked after.
const LOOK_AFTER: Duration = Duration::from_millis(500);

/// What the claim API works with.
#[derive(Clone, Debug)]
pub struct Api {
    pub(crate) ledger: Ledger,
    /// Whether the ledger can be out while this process is well.
    pub(crate) is_remote: bool,
    pub(crate) watch: Arc<Watch>,
    pub(crate) large: Arc<Semaphore>,
}

impl Api {
    /// The API on a ledger, with its fallback around it if it has one.
    pub fn new(ledger: Ledger, log_keys: LogKeys) -> Self {
        let capabilities = ledger.capabilities();
        Self {
            is_remote: capabilities.clock != StoreClock::Own,
            watch: Arc::new(Watch::new(capabilities.backend, log_keys)),
            large: Arc::new(Semaphore::new(LARGE_AT_ONCE)),
            ledger,
        }
    }

    /// Notices that a ledger which was out is back, also if nobody asks anything.
    pub(crate) async fn look_after_ledger(&self) {
        let mut turns = tokio::time::interval(LOOK_AFTER);
        loop {
            turns.tick().await;
            self.ledger.maintain_fallback().await;
        }
    }

    /// The last chance to tell the ledger what was answered in its place.
    pub(crate) async fn last_words(&self) {
        let untold = self.ledger.hand_over_now().await;
        if untold > 0 {
            tracing::warn!(
                untold,
                "this process ends while the ledger is out; other instances will not know these events and claims"
            );
        }
    }
}
