//! Waiting for a condition.

use std::time::{Duration, Instant};

/// The longest that a test waits for anything: long enough for a machine that is busy with other work.
pub const TIMEOUT: Duration = Duration::from_secs(120);

const INTERVAL: Duration = Duration::from_millis(10);

/// Polls until there is a result, blocking the thread. Panics after [`TIMEOUT`].
#[track_caller]
pub fn eventually<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(Instant::now() < deadline, "timed out waiting for {what}");
        std::thread::sleep(INTERVAL);
    }
}

/// Waits until a condition holds, in the time of the runtime. Panics after [`TIMEOUT`].
pub async fn until<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "timed out waiting until {what}");
        tokio::time::sleep(INTERVAL).await;
    }
}
