//! Work that does not end with its caller.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::sync::oneshot::{self, error::RecvError};

/// Work on a request, done by whoever waits for the answer. It must not end with its caller: what is left of it when the
/// caller goes, or when an answer is sent before its end, goes on in a task of its own.
pub(crate) struct Work<F: Future<Output = ()> + Send + 'static> {
    pub(crate) left: Option<Pin<Box<F>>>,
    /// Known since it had to wait.
    pub(crate) runtime: Option<Handle>,
}

impl<F: Future<Output = ()> + Send + 'static> Work<F> {
    /// A panic ends it, and with it goes the sender of the answer.
    fn drive(&mut self, cx: &mut Context<'_>) {
        let Some(left) = &mut self.left else { return };
        match catch_unwind(AssertUnwindSafe(|| left.as_mut().poll(cx))) {
            Ok(Poll::Pending) => {
                self.runtime.get_or_insert_with(Handle::current);
            }
            Ok(Poll::Ready(())) | Err(_) => self.left = None,
        }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Drop for Work<F> {
    fn drop(&mut self) {
        // Before it had to wait, nothing was begun that could be left undone.
        if let (Some(left), Some(runtime)) = (self.left.take(), self.runtime.take()) {
            runtime.spawn(left);
        }
    }
}

pub(crate) async fn answered<T>(
    mut work: Work<impl Future<Output = ()> + Send>,
    mut answer: oneshot::Receiver<T>,
) -> Result<T, RecvError> {
    poll_fn(|cx| {
        work.drive(cx);
        Pin::new(&mut answer).poll(cx)
    })
    .await
}
