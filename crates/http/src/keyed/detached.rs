//! Work that survives the client that asked for it.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::sync::oneshot::{self, error::RecvError};

/// Work that is polled by the future that waits for its result. If that future is dropped, or the result arrives before the
/// work has finished, the rest runs in a task of its own.
pub(super) struct Detached<F: Future<Output = ()> + Send + 'static> {
    work: Option<Pin<Box<F>>>,
    /// Set when the work has first been pending.
    runtime: Option<Handle>,
}

impl<F: Future<Output = ()> + Send + 'static> Detached<F> {
    pub(super) fn new(work: Pin<Box<F>>) -> Self {
        Self { work: Some(work), runtime: None }
    }

    /// Polls the work until it has sent its result. Fails if the work ends or panics without sending one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future moves the remaining work to a task, unless the work has never been polled to a pending state.
    pub(super) async fn until<T>(mut self, mut result: oneshot::Receiver<T>) -> Result<T, RecvError> {
        poll_fn(|cx| {
            self.poll_work(cx);
            Pin::new(&mut result).poll(cx)
        })
        .await
    }

    /// A panic ends the work and drops the sender of its result.
    fn poll_work(&mut self, cx: &mut Context<'_>) {
        let Some(work) = &mut self.work else { return };
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(Poll::Pending) => {
                self.runtime.get_or_insert_with(Handle::current);
            }
            Ok(Poll::Ready(())) | Err(_) => self.work = None,
        }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Drop for Detached<F> {
    fn drop(&mut self) {
        // Work that has never been pending has not started anything that could be left unfinished.
        if let (Some(work), Some(runtime)) = (self.work.take(), self.runtime.take()) {
            runtime.spawn(work);
        }
    }
}
