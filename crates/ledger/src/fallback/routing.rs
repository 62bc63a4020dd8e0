//! Who answers: the primary in healthy times, otherwise the local ledger.

use std::sync::Arc;

use ichido_core::Index;
use tokio::sync::RwLockReadGuard;

use super::in_flight::InFlightCall;
use super::state::{Fallback, Mode};

impl Fallback {
    /// In healthy times: leave to ask the primary, known to all others until it is dropped.
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

    /// Waits until nobody asks the primary for these keys, then keeps the mode from changing. None if the primary is
    /// back: what is answered here from then on, it would never be told.
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
