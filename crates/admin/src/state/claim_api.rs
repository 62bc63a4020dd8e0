//! What the claim API works with.

use std::sync::Arc;
use std::time::Duration;

use ichido_ledger::{Ledger, StoreClock};
use tokio::sync::Semaphore;

use super::event_checks::EventChecks;
use super::log_keys::LogKeys;

/// Calls with large bodies that are in memory at once; the next ones wait.
const LARGE_BODIES_MAX: usize = 8;
/// How often a ledger that is out is looked after.
const FALLBACK_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// What the claim API works with.
#[derive(Clone, Debug)]
pub struct ClaimApi {
    pub(crate) ledger: Ledger,
    /// Whether the ledger can be out while this process is well.
    pub(crate) is_remote: bool,
    pub(crate) event_checks: Arc<EventChecks>,
    pub(crate) large_bodies: Arc<Semaphore>,
}

impl ClaimApi {
    /// The API on a ledger, with its fallback around it if it has one.
    pub fn new(ledger: Ledger, log_keys: LogKeys) -> Self {
        let capabilities = ledger.capabilities();
        Self {
            is_remote: capabilities.clock != StoreClock::Own,
            event_checks: Arc::new(EventChecks::new(capabilities.backend, log_keys)),
            large_bodies: Arc::new(Semaphore::new(LARGE_BODIES_MAX)),
            ledger,
        }
    }

    /// Notices that a ledger which was out is back, also if nobody asks anything.
    pub(crate) async fn maintain_fallback(&self) {
        let mut turns = tokio::time::interval(FALLBACK_CHECK_INTERVAL);
        loop {
            turns.tick().await;
            self.ledger.maintain_fallback().await;
        }
    }

    /// The last chance to tell the ledger what was answered in its place.
    pub(crate) async fn hand_over(&self) {
        let untold = self.ledger.hand_over_now().await;
        if untold > 0 {
            tracing::warn!(
                untold,
                "this process ends while the ledger is out; other instances will not know these events and claims"
            );
        }
    }
}
