//! A clock whose wall time jumps and whose steady time does not.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ichido_core::{Clock, SystemClock, Timestamp};

/// The system clock, shifted.
#[derive(Debug, Default)]
pub struct JumpingClock {
    system: SystemClock,
    ahead_ms: AtomicI64,
}

impl JumpingClock {
    /// Shifts the wall time by this, forward or back.
    pub fn jump(&self, ahead_ms: i64) {
        self.ahead_ms.fetch_add(ahead_ms, Ordering::SeqCst);
    }
}

impl Clock for JumpingClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.system.now().0.saturating_add_signed(self.ahead_ms.load(Ordering::SeqCst)))
    }

    fn steady(&self) -> Duration {
        self.system.steady()
    }
}
