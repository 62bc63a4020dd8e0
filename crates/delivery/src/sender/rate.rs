//! No more requests in a second than the receiver wants.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use ichido_core::Clock;

/// A limit that goes by the clock of the sender.
#[derive(Debug)]
pub(super) struct Rate {
    limiter: RateLimiter<NotKeyed, InMemoryState, Steady, NoOpMiddleware<Duration>>,
    steady: Steady,
}

#[derive(Clone, Debug)]
struct Steady(Arc<dyn Clock>);

impl governor::clock::Clock for Steady {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.steady()
    }
}

impl Rate {
    /// So many in a second, evenly.
    pub(super) fn new(per_second: NonZeroU32, clock: Arc<dyn Clock>) -> Self {
        let steady = Steady(clock);
        let quota = Quota::per_second(per_second).allow_burst(NonZeroU32::MIN);
        Self { limiter: RateLimiter::direct_with_clock(quota, steady.clone()), steady }
    }

    /// Waits for the next turn.
    pub(super) async fn ready(&self) {
        while let Err(early) = self.limiter.check() {
            let wait = early.wait_time_from(governor::clock::Clock::now(&self.steady));
            // Timers go by milliseconds.
            tokio::time::sleep(wait.max(Duration::from_millis(1))).await;
        }
    }
}
