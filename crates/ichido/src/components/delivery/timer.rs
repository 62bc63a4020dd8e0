//! Waits until the sender has something to do: a scheduled pass, a scheduled export, or a new token.

use std::time::Duration;

use ichido_core::Clock;
use ichido_delivery::schedule::Schedule;
use tokio_util::sync::CancellationToken;

/// The longest sleep. The wall clock may jump meanwhile, and a sleep does not notice.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// How often the token is checked while the lane is closed.
const TOKEN_POLL: Duration = Duration::from_secs(1);

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Pass,
    Export,
    Stop,
}

/// Whether the sender may send, and if not, whether a new token may change that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneState {
    Open,
    Closed,
    ClosedWithNewToken,
}

/// Waits for the next thing that is due.
///
/// # Cancel safety
///
/// An occurrence is taken from its schedule only when this returns.
pub(super) async fn next_due(
    clock: &dyn Clock,
    passes: &mut Schedule,
    mut exports: Option<&mut Schedule>,
    lane: impl Fn() -> LaneState,
    stop: &CancellationToken,
) -> Due {
    while !stop.is_cancelled() {
        let now = clock.now();
        if exports.as_mut().is_some_and(|exports| exports.take_due(now)) {
            return Due::Export;
        }
        if passes.take_due(now) {
            return Due::Pass;
        }
        let sleep_max = match lane() {
            LaneState::Open => SLEEP_MAX,
            LaneState::Closed => TOKEN_POLL,
            LaneState::ClosedWithNewToken => return Due::Pass,
        };
        let waits = [passes.wait(now), exports.as_ref().and_then(|exports| exports.wait(now))];
        let wait = waits.into_iter().flatten().fold(sleep_max, Duration::min);
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = stop.cancelled() => {}
        }
    }
    Due::Stop
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use ichido_core::Timestamp;
    use ichido_delivery::cron::Cron;
    use tokio::time::Instant;

    use super::*;

    const MINUTE_MS: u64 = 60_000;

    /// A wall clock that follows tokio's paused time, and can be set.
    #[derive(Debug)]
    struct WallClock {
        start: Instant,
        start_ms: AtomicU64,
    }

    impl WallClock {
        /// It starts at 00:00 on 1 January 1970.
        fn start() -> Self {
            Self { start: Instant::now(), start_ms: AtomicU64::new(0) }
        }

        fn jump(&self, ms: u64) {
            self.start_ms.fetch_add(ms, Ordering::Relaxed);
        }
    }

    impl Clock for WallClock {
        fn now(&self) -> Timestamp {
            let elapsed = u64::try_from(self.steady().as_millis()).unwrap();
            Timestamp(self.start_ms.load(Ordering::Relaxed) + elapsed)
        }

        fn steady(&self) -> Duration {
            self.start.elapsed()
        }
    }

    fn schedule(cron: &str) -> Schedule {
        Schedule::after(Timestamp(0), Some(Cron::parse(cron).unwrap()))
    }

    #[tokio::test(start_paused = true)]
    async fn passes_and_exports_are_due_at_their_times() {
        let (clock, stop) = (WallClock::start(), CancellationToken::new());
        let (mut passes, mut exports) = (schedule("*/10 * * * *"), schedule("15 * * * *"));
        let mut seen = Vec::new();
        for _ in 0..4 {
            let due = next_due(&clock, &mut passes, Some(&mut exports), || LaneState::Open, &stop).await;
            seen.push((due, clock.now().0 / MINUTE_MS));
        }
        assert_eq!(seen, [(Due::Pass, 10), (Due::Export, 15), (Due::Pass, 20), (Due::Pass, 30)]);
    }

    #[tokio::test(start_paused = true)]
    async fn new_token_is_noticed_within_seconds() {
        let (clock, stop) = (WallClock::start(), CancellationToken::new());
        let lane = || match clock.steady() < Duration::from_secs(90) {
            true => LaneState::Closed,
            false => LaneState::ClosedWithNewToken,
        };
        assert_eq!(next_due(&clock, &mut schedule("0 3 * * *"), None, lane, &stop).await, Due::Pass);
        assert!(clock.steady() <= Duration::from_secs(91), "{:?}", clock.steady());
    }

    #[tokio::test(start_paused = true)]
    async fn clock_that_jumps_forward_is_noticed_within_a_minute() {
        let (clock, stop) = (WallClock::start(), CancellationToken::new());
        let mut passes = schedule("0 3 * * *");
        let jump = async {
            tokio::time::sleep(Duration::from_secs(30)).await;
            clock.jump(3 * 60 * MINUTE_MS);
        };
        let (due, ()) = tokio::join!(next_due(&clock, &mut passes, None, || LaneState::Open, &stop), jump);
        assert_eq!(due, Due::Pass);
        assert!(clock.steady() <= SLEEP_MAX, "{:?}", clock.steady());
    }

    #[tokio::test(start_paused = true)]
    async fn stop_ends_the_wait() {
        let (clock, stop) = (WallClock::start(), CancellationToken::new());
        let mut passes = schedule("0 3 * * *");
        let stopping = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            stop.cancel();
        };
        let (due, ()) =
            tokio::join!(next_due(&clock, &mut passes, None, || LaneState::Open, &stop), stopping);
        assert_eq!((due, clock.steady()), (Due::Stop, Duration::from_secs(5)));
    }
}
