//! Progress lines with durations on standard error, and polling with a time limit.
//!
//! Only this module reads the clock. Nothing is simulated, so no clock is passed in.

use std::time::{Duration, Instant};

/// A step of the work that prints its duration when it ends.
pub(crate) struct Phase {
    name: String,
    watch: Stopwatch,
}

impl Phase {
    pub(crate) fn begin(name: impl Into<String>) -> Self {
        Self { name: name.into(), watch: Stopwatch::start() }
    }

    /// Prints the name and the duration. A phase that fails is dropped instead: its error is printed.
    pub(crate) fn end(self) {
        eprintln!("xtask: {} ({:.1} s)", self.name, self.watch.elapsed().as_secs_f64());
    }
}

/// Measures the time since it was started.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[allow(clippy::disallowed_methods, reason = "real processes are awaited in real time")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Polls `ready` until it returns true. Returns `false` if that takes longer than `limit`.
pub(crate) fn poll<E>(limit: Duration, mut ready: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
    const PAUSE: Duration = Duration::from_millis(25);
    let watch = Stopwatch::start();
    loop {
        if ready()? {
            return Ok(true);
        }
        if watch.elapsed() > limit {
            return Ok(false);
        }
        std::thread::sleep(PAUSE);
    }
}
