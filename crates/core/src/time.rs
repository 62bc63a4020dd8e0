//! Clocks, which are passed in.
//!
//! There are two: the wall clock, which may jump, and the steady clock, which only moves forward. Leases need a clock that
//! does not jump; [`SteadyTime`] is that clock for embedded ledgers.

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

    /// Seconds since the epoch, rounded up so that nothing expires early.
    pub fn ceil_seconds(self) -> u64 {
        self.0.div_ceil(1000)
    }
}

/// Adds milliseconds, saturating at the largest timestamp.
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

/// A source of time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The wall clock. It may jump in both directions.
    fn now(&self) -> Timestamp;
    /// The time since a fixed moment in this process. It never goes back.
    fn steady(&self) -> Duration;
}

/// The clocks of the operating system.
#[derive(Debug)]
pub struct SystemClock {
    start: std::time::Instant,
}

impl Default for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "clocks are read only here")]
    fn default() -> Self {
        Self { start: std::time::Instant::now() }
    }
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "clocks are read only here")]
    fn now(&self) -> Timestamp {
        let since_epoch =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
    }

    fn steady(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A clock that tests control.
#[derive(Debug)]
pub struct ManualClock {
    wall_ms: AtomicU64,
    steady_ms: AtomicU64,
}

impl ManualClock {
    /// Creates a clock that shows `now`.
    pub fn at(now: Timestamp) -> Self {
        Self { wall_ms: AtomicU64::new(now.0), steady_ms: AtomicU64::new(0) }
    }

    /// Advances both clocks.
    pub fn advance(&self, ms: u64) {
        self.wall_ms.fetch_add(ms, Ordering::SeqCst);
        self.steady_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Sets only the wall clock, as a wrong time server would.
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

/// Wall time that cannot jump: the wall clock is read once, and the steady clock advances it.
#[derive(Clone, Debug)]
pub struct SteadyTime {
    clock: Arc<dyn Clock>,
    base: Timestamp,
    started: Duration,
}

impl SteadyTime {
    /// Starts at the time of the wall clock, or at `floor` if that is later: time never goes back before a recorded time.
    pub fn start(clock: Arc<dyn Clock>, floor: Timestamp) -> Self {
        let base = clock.now().max(floor);
        let started = clock.steady();
        Self { clock, base, started }
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        let elapsed = self.clock.steady().saturating_sub(self.started);
        self.base + u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_jump_does_not_move_steady_time() {
        let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
        let time = SteadyTime::start(clock.clone(), Timestamp(0));
        clock.jump_to(Timestamp(1_000_000 + 3_600_000));
        assert_eq!(time.now(), Timestamp(1_000_000));
        clock.advance(250);
        assert_eq!(time.now(), Timestamp(1_000_250));
    }

    #[test]
    fn time_does_not_start_before_a_recorded_time() {
        let clock = Arc::new(ManualClock::at(Timestamp(500)));
        assert_eq!(SteadyTime::start(clock, Timestamp(900)).now(), Timestamp(900));
    }
}
