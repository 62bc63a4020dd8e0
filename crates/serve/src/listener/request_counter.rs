//! Counts the requests of a connection, and those that its client cancelled.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use hyper::service::Service;
use pin_project_lite::pin_project;

/// Requests that a client may cancel on one connection, if they are more than half of all its requests.
pub(super) const CANCELLED_MAX: u64 = 128;

/// The requests of one connection.
#[derive(Debug, Default)]
pub(super) struct RequestCounts {
    started: AtomicU64,
    /// Requests whose client did not wait for the response.
    cancelled: AtomicU64,
}

impl RequestCounts {
    /// Whether a request has reached the service.
    pub(super) fn has_started(&self) -> bool {
        self.started.load(Ordering::Relaxed) > 0
    }

    pub(super) fn cancelled(&self) -> u64 {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Whether the client cancels most of its requests. A cancelled request has started work that continues, so such a
    /// client costs resources without wanting responses.
    pub(super) fn is_abuse(&self) -> bool {
        let cancelled = self.cancelled();
        cancelled >= CANCELLED_MAX && cancelled > self.started.load(Ordering::Relaxed) / 2
    }
}

/// A service that counts its requests.
pub(super) struct Counted<S> {
    pub(super) service: S,
    pub(super) counts: Arc<RequestCounts>,
}

impl<R, S: Service<R>> Service<R> for Counted<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = CountedFuture<S::Future>;

    fn call(&self, request: R) -> CountedFuture<S::Future> {
        self.counts.started.fetch_add(1, Ordering::Relaxed);
        CountedFuture { future: self.service.call(request), pending: Pending(Some(self.counts.clone())) }
    }
}

pin_project! {
    /// A response in progress. Dropping it earlier counts the request as cancelled.
    pub(super) struct CountedFuture<F> {
        #[pin]
        future: F,
        pending: Pending,
    }
}

/// A request without a response.
struct Pending(Option<Arc<RequestCounts>>);

impl<F: Future> Future for CountedFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let response = this.future.poll(cx);
        if response.is_ready() {
            this.pending.0 = None;
        }
        response
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(counts) = &self.0 {
            counts.cancelled.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_may_cancel_up_to_half_of_its_requests() {
        let counts = |started: u64, cancelled: u64| RequestCounts {
            started: started.into(),
            cancelled: cancelled.into(),
        };
        assert!(!counts(CANCELLED_MAX - 1, CANCELLED_MAX - 1).is_abuse());
        assert!(counts(CANCELLED_MAX, CANCELLED_MAX).is_abuse());
        assert!(!counts(3 * CANCELLED_MAX, CANCELLED_MAX).is_abuse());
    }
}
