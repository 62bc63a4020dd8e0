use super::*;

/// How a receiver limits requests.
#[derive(Clone, Copy, Debug)]
enum Counts {
    /// A number per second, minute or other fixed window. It asks to wait for the next window.
    Window(Duration),
    /// A token bucket that refills evenly. It asks to wait for one second.
    Bucket,
    /// A number within any period of this length. It asks to wait until the oldest request leaves the period.
    Sliding(Duration),
}

/// A receiver that allows a number of requests per period.
struct Receiver {
    counts: Counts,
    most: usize,
    taken: Vec<Duration>,
    most_tokens: f64,
    tokens: f64,
    filled: Duration,
}

impl Receiver {
    fn new(counts: Counts, most: u16) -> Self {
        let tokens = f64::from(most);
        Self {
            counts,
            most: most.into(),
            most_tokens: tokens,
            taken: Vec::new(),
            tokens,
            filled: Duration::ZERO,
        }
    }

    /// Accepts a request, or returns how long to wait, in whole seconds.
    fn ask(&mut self, now: Duration) -> Result<(), Duration> {
        let is_within =
            |taken: &[Duration], since: Duration| taken.iter().rev().take_while(|at| **at >= since).count();
        let wait = match self.counts {
            Counts::Window(period) => {
                let start = period * u32::try_from(now.as_nanos() / period.as_nanos()).unwrap();
                (is_within(&self.taken, start) >= self.most).then(|| start + period - now)
            }
            Counts::Sliding(period) => {
                let since = now.saturating_sub(period);
                let full = is_within(&self.taken, since) >= self.most;
                full.then(|| self.taken[self.taken.len() - self.most] + period - now)
            }
            Counts::Bucket => {
                let refilled = (now - self.filled).as_secs_f64() * self.most_tokens;
                self.tokens = (self.tokens + refilled).min(self.most_tokens);
                self.filled = now;
                (self.tokens < 1.0).then_some(Duration::from_secs(1))
            }
        };
        match wait {
            Some(wait) => Err(Duration::from_secs_f64(wait.as_secs_f64().ceil())),
            None => {
                self.tokens -= 1.0;
                self.taken.push(now);
                Ok(())
            }
        }
    }
}

struct Run {
    took: Duration,
    rejected: u32,
    longest_streak: u32,
}

/// Sends batches one at a time, and retries each until it is accepted.
fn run(limiter: &mut RateLimiter, receiver: &mut Receiver, batches: u32, trip: Duration) -> Run {
    let (mut now, mut rejected, mut longest_streak, mut accepted) = (Duration::from_secs(1), 0, 0, 0);
    let start = now;
    while accepted < batches {
        now = now.max(limiter.next_at());
        let sent = now;
        limiter.sent(sent);
        let arrives = now + trip / 2;
        now += trip;
        match receiver.ask(arrives) {
            Ok(()) => {
                accepted += 1;
                limiter.accepted(now);
            }
            Err(pause) => {
                rejected += 1;
                limiter.rejected(sent, now, pause, f64::from(rejected % 7) / 7.0);
                longest_streak = longest_streak.max(limiter.rejections_before(now));
            }
        }
    }
    Run { took: now - start, rejected, longest_streak }
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const TRIP: Duration = Duration::from_millis(2);

#[test]
fn three_hundred_batches_reach_a_receiver_with_a_limit_of_five_per_second() {
    for counts in [Counts::Window(SECOND), Counts::Bucket, Counts::Sliding(SECOND)] {
        let run = run(&mut RateLimiter::default(), &mut Receiver::new(counts, 5), 300, TRIP);
        let share = f64::from(run.rejected) / f64::from(300 + run.rejected);
        assert!(share <= 0.08, "{counts:?}: {} were rejected", run.rejected);
        assert!(run.took < Duration::from_secs(120), "{counts:?}: {:?}", run.took);
        assert!(run.longest_streak <= 2, "{counts:?}: {} in a row", run.longest_streak);
    }
}

#[test]
fn other_limits_are_found_too() {
    for (counts, most, per_second) in [
        (Counts::Window(SECOND), 1, 1),
        (Counts::Window(MINUTE), 60, 1),
        (Counts::Sliding(MINUTE), 60, 1),
        (Counts::Window(MINUTE), 600, 10),
        (Counts::Bucket, 50, 50),
        (Counts::Window(SECOND), 200, 200),
    ] {
        let batches = per_second * 300;
        let run = run(&mut RateLimiter::default(), &mut Receiver::new(counts, most), batches, TRIP);
        let share = f64::from(run.rejected) / f64::from(batches + run.rejected);
        assert!(share <= 0.08, "{counts:?} {most}: {} of {batches} were rejected", run.rejected);
        assert!(run.took < Duration::from_secs(600), "{counts:?} {most}: {:?}", run.took);
        assert!(run.longest_streak <= 3, "{counts:?} {most}: {} in a row", run.longest_streak);
    }
}

#[test]
fn requests_are_not_spaced_before_the_first_rejection() {
    let mut limiter = RateLimiter::default();
    for ms in 0..10_000 {
        let now = Duration::from_millis(ms);
        assert!(limiter.next_at() <= now);
        limiter.sent(now);
        limiter.accepted(now);
    }
}

#[test]
fn configured_rate_applies_from_the_start() {
    let mut limiter = RateLimiter::new(Some(4));
    assert_eq!(limiter.next_at(), Duration::ZERO);
    limiter.sent(SECOND);
    assert_eq!(limiter.next_at(), SECOND + Duration::from_millis(250));
    // It stays the maximum even if the receiver would accept more.
    limiter.rejected(SECOND, SECOND, Duration::ZERO, 0.0);
    for number in 0..1_000 {
        limiter.accepted(SECOND * number);
    }
    limiter.sent(SECOND);
    assert_eq!(limiter.next_at(), SECOND + Duration::from_millis(250));
}

#[test]
fn requests_are_spread_after_a_pause() {
    let mut limiter = RateLimiter::default();
    for number in 0..5 {
        limiter.accepted(SECOND + TRIP * number);
    }
    limiter.rejected(SECOND * 2, SECOND * 2, SECOND * 3, 0.5);
    // Five were accepted within the three seconds that the receiver named: 5/3 × 0.7 per second from now on.
    let rate = limiter.rate().unwrap();
    assert!((rate - 5.0 / 3.0 * 0.7).abs() < 1e-9, "{rate}");
    let resume = limiter.next_at();
    assert!(resume > SECOND * 5 && resume < SECOND * 6, "{resume:?}");
    limiter.sent(resume);
    assert_eq!(limiter.next_at(), resume + Duration::from_secs_f64(1.0 / rate));
}

#[test]
fn transient_rejection_is_forgotten_within_seconds() {
    // The first response is a rejection, and nothing is limited after that.
    let mut limiter = RateLimiter::default();
    limiter.rejected(Duration::ZERO, Duration::ZERO, SECOND, 0.0);
    let (mut now, mut requests) = (SECOND, 0);
    while limiter.rate().is_some() {
        now = now.max(limiter.next_at());
        limiter.sent(now);
        now += Duration::from_micros(100);
        limiter.accepted(now);
        requests += 1;
    }
    assert!(now < Duration::from_secs(30), "{now:?} and {requests} requests");
}

#[test]
fn receiver_that_rejects_everything_is_tried_less_often_but_not_given_up() {
    let mut limiter = RateLimiter::default();
    let mut now = SECOND;
    let mut pauses = Vec::new();
    for number in 1..=20 {
        let before = now;
        now = now.max(limiter.next_at());
        pauses.push(now - before);
        limiter.sent(now);
        limiter.rejected(now, now, Duration::ZERO, 0.0);
        assert_eq!(limiter.rejections_before(now), number);
    }
    assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1]), "{pauses:?}");
    assert_eq!(pauses[19], SECOND * 4, "{pauses:?}");
    limiter.accepted(now);
    assert_eq!(limiter.rejections_before(now), 0);
}

#[test]
fn requests_under_way_are_rejected_together() {
    let mut limiter = RateLimiter::default();
    (0..8).for_each(|_| limiter.accepted(SECOND));
    // Four were sent within a moment, and all of them are rejected.
    limiter.rejected(SECOND, SECOND * 2, SECOND, 0.0);
    let (rate, resume) = (limiter.rate(), limiter.next_at());
    for sent in 1..4 {
        let sent = SECOND + TRIP * sent;
        assert_eq!(limiter.rejections_before(sent), 0, "it knew of no rejection");
        limiter.rejected(sent, SECOND * 2 + TRIP, SECOND / 2, 0.0);
    }
    assert_eq!((limiter.rate(), limiter.next_at()), (rate, resume), "one overload lowers the rate once");
    limiter.rejected(SECOND + TRIP, SECOND * 2 + TRIP, MINUTE, 0.0);
    assert_eq!(limiter.next_at(), SECOND * 2 + TRIP + MINUTE, "the longest pause counts");
    assert_eq!(limiter.rejections_before(limiter.next_at()), 1);
}
