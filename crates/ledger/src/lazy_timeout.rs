//! A timeout that costs nothing for a future that is ready at once.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

/// Waits at most `limit` for a future, counted from when it first had to wait.
///
/// Unlike [`tokio::time::timeout`], this neither reads the clock nor creates a timer if the future is ready when it
/// is first polled. Most calls of an in-memory ledger are, and so are most bodies that arrive together with their
/// head.
pub fn lazy_timeout<F: Future>(limit: Duration, future: F) -> LazyTimeout<F> {
    LazyTimeout { future, limit, timer: None }
}

/// The limit passed before the future was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

pin_project! {
    /// The future of [`lazy_timeout`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct LazyTimeout<F> {
        #[pin]
        future: F,
        limit: Duration,
        #[pin]
        timer: Option<Sleep>,
    }
}

impl<F: Future> Future for LazyTimeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        if this.timer.is_none() {
            this.timer.set(Some(sleep(*this.limit)));
        }
        if let Some(timer) = this.timer.as_pin_mut() {
            ready!(timer.poll(cx));
        }
        Poll::Ready(Err(Elapsed))
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::pin;

    use super::*;

    #[tokio::test]
    async fn future_that_never_completes_times_out() {
        let (limit, started) = (Duration::from_millis(30), tokio::time::Instant::now());
        assert_eq!(lazy_timeout(limit, pending::<()>()).await, Err(Elapsed));
        assert!(started.elapsed() >= limit);
    }

    #[tokio::test]
    async fn future_that_completes_in_time_returns_its_output() {
        let slow = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            7
        };
        assert_eq!(lazy_timeout(Duration::from_secs(60), slow).await, Ok(7));
    }

    /// Without a runtime there is no timer.
    #[test]
    fn ready_future_needs_no_timer_and_never_times_out() {
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert_eq!(pin!(lazy_timeout(Duration::ZERO, ready(7))).poll(&mut context), Poll::Ready(Ok(7)));
    }
}
