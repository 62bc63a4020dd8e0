//! Decides who answers: the primary while it is healthy, otherwise the local ledger.

use std::sync::Arc;

use ichido_core::Index;
use tokio::sync::RwLockReadGuard;

use super::in_flight::InFlightCall;
use super::state::{Fallback, Mode};

impl Fallback {
    /// If the primary is healthy, registers a call to it, which others can see until the returned value is dropped.
    pub(super) async fn begin_primary_call(self: &Arc<Self>, keys: &[Index]) -> Option<InFlightCall<'_>> {
        let mode = self.mode.read().await;
        match *mode {
            Mode::Healthy => Some(self.in_flight.begin(keys)),
            Mode::Degraded { until, probing } => {
                drop(mode);
                if !probing && self.now() >= until {
                    self.probe();
                }
                None
            }
        }
    }

    /// Waits until no call to the primary is in flight for these keys, then keeps the mode from changing. `None` if
    /// the primary is back: it would never learn what the local ledger answers from then on.
    pub(super) async fn wait_for_local_turn(&self, keys: &[Index]) -> Option<RwLockReadGuard<'_, Mode>> {
        loop {
            let completed = self.in_flight.completed();
            let mode = self.mode.read().await;
            if *mode == Mode::Healthy {
                return None;
            }
            if !self.in_flight.contains_any(keys) {
                return Some(mode);
            }
            drop(mode);
            completed.await;
        }
    }
}
