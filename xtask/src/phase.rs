//! How long things take: one line per phase on standard error, and bounded waits.
//!
//! The only reader of the clock in this tool. Nothing here is simulated, so there is no clock to pass in.

use std::time::{Duration, Instant};

/// A named stretch of work that reports its duration when it ends.
pub(crate) struct Phase {
    name: String,
    watch: Stopwatch,
}

impl Phase {
    pub(crate) fn begin(name: impl Into<String>) -> Self {
        Self { name: name.into(), watch: Stopwatch::start() }
    }

    /// Prints the line. A phase that fails is dropped instead, and the error speaks.
    pub(crate) fn end(self) {
        eprintln!("xtask: {} ({:.1} s)", self.name, self.watch.elapsed().as_secs_f64());
    }
}

/// Time since a start.
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

/// Asks `ready` again and again until it says yes; `false` when `limit` has passed without a yes.
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
