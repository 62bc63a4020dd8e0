//! Time is passed in.
//!
//! Two clocks exist: the wall clock, which may jump, and the steady clock, which only counts forward. Leases are
//! judged by a clock that does not jump; [`SteadyTime`] is that clock for ledgers that live in one process.

use std::fmt;
use std::ops::Add;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Milliseconds from `earlier` to `self`, or zero if `earlier` is later.
    pub fn ms_since(self, earlier: Timestamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole seconds since the epoch, rounded up, so that nothing expires early.
    pub fn ceil_seconds(self) -> u64 {
        self.0.div_ceil(1000)
    }
}

/// `timestamp + milliseconds`, saturating: the far future is a fine place for "never".
impl Add<u64> for Timestamp {
    type Output = Timestamp;
    fn add(self, ms: u64) -> Timestamp {
        Timestamp(self.0.saturating_add(ms))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where time comes from.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The wall clock. It may jump in both directions.
    fn now(&self) -> Timestamp;
    /// Time since some fixed moment of this process. It never goes back.
    fn steady(&self) -> Duration;
}

/// The clocks of the operating system.
#[derive(Debug)]
pub struct SystemClock {
    start: std::time::Instant,
}

impl Default for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one place where the clocks are read")]
    fn default() -> Self {
        Self { start: std::time::Instant::now() }
    }
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one place where the wall clock is read")]
    fn now(&self) -> Timestamp {
        let since_epoch =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
    }

    fn steady(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A clock that moves when it is told to.
#[derive(Debug)]
pub struct ManualClock {
    wall_ms: AtomicU64,
    steady_ms: AtomicU64,
}

impl ManualClock {
    /// A clock that stands at `now`.
    pub fn at(now: Timestamp) -> Self {
        Self { wall_ms: AtomicU64::new(now.0), steady_ms: AtomicU64::new(0) }
    }

    /// Lets time pass on both clocks.
    pub fn advance(&self, ms: u64) {
        self.wall_ms.fetch_add(ms, Ordering::SeqCst);
        self.steady_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Sets the wall clock alone, as a wrong time server would.
    pub fn jump_to(&self, now: Timestamp) {
        self.wall_ms.store(now.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.wall_ms.load(Ordering::SeqCst))
    }

    fn steady(&self) -> Duration {
        Duration::from_millis(self.steady_ms.load(Ordering::SeqCst))
    }
}

/// Wall time that cannot jump: read once, then advanced by the steady clock.
#[derive(Clone, Debug)]
pub struct SteadyTime {
    clock: Arc<dyn Clock>,
    base: Timestamp,
    started: Duration,
}

impl SteadyTime {
    /// Starts at the wall clock's time, or at `floor` if that is later: time already recorded is not lived again.
    pub fn start(clock: Arc<dyn Clock>, floor: Timestamp) -> Self {
        let base = clock.now().max(floor);
        let started = clock.steady();
        Self { clock, base, started }
    }

    /// The present.
    pub fn now(&self) -> Timestamp {
        let elapsed = self.clock.steady().saturating_sub(self.started);
        self.base + u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_of_the_wall_clock_moves_no_lease() {
        let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
        let time = SteadyTime::start(clock.clone(), Timestamp(0));
        clock.jump_to(Timestamp(1_000_000 + 3_600_000));
        assert_eq!(time.now(), Timestamp(1_000_000));
        clock.advance(250);
        assert_eq!(time.now(), Timestamp(1_000_250));
    }

    #[test]
    fn time_that_was_recorded_is_not_lived_again() {
        let clock = Arc::new(ManualClock::at(Timestamp(500)));
        assert_eq!(SteadyTime::start(clock, Timestamp(900)).now(), Timestamp(900));
    }
}
