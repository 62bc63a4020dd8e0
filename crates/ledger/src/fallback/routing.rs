//! Who answers: the primary in healthy times, otherwise the local ledger.

use std::sync::Arc;

use ichido_core::Index;
use tokio::sync::RwLockReadGuard;

use super::in_flight::Asked;
use super::state::{Fallback, Mode};

impl Fallback {
    /// In healthy times: leave to ask the primary, known to all others until it is dropped.
    pub(super) async fn ask_primary(self: &Arc<Self>, keys: &[Index]) -> Option<Asked<'_>> {
        let mode = self.mode.read().await;
        match *mode {
            Mode::Healthy => Some(self.asking.begin(keys)),
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
    pub(super) async fn local_turn(&self, keys: &[Index]) -> Option<RwLockReadGuard<'_, Mode>> {
        loop {
            let answered = self.asking.answered();
            let mode = self.mode.read().await;
            if *mode == Mode::Healthy {
                return None;
            }
            if !self.asking.any(keys) {
                return Some(mode);
            }
            drop(mode);
            answered.await;
        }
    }
}
