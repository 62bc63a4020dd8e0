//! Between the console and the daemon that delivers: orders to send again, and what its passes did.
//!
//! The daemon has one lane to its destination, so an order waits for its turn there; the console sends nothing itself.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ichido_core::Timestamp;
use ichido_delivery::counters::Counters;
use ichido_delivery::sender::Pick;
use ichido_delivery::store::Layout;
use tokio::sync::{mpsc, oneshot};

/// Orders that may wait.
const ORDERS: usize = 16;
/// Passes that are remembered.
const RUNS: usize = 20;

/// The console's side.
#[derive(Clone, Debug)]
pub(crate) struct Desk {
    pub(super) layout: Layout,
    orders: mpsc::Sender<Order>,
    log: Arc<Mutex<Log>>,
}

/// The daemon's side.
#[derive(Debug)]
pub(crate) struct Inbox {
    orders: mpsc::Receiver<Order>,
    log: Arc<Mutex<Log>>,
}

/// Something to send again.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) pick: Pick,
    done: oneshot::Sender<Run>,
}

#[derive(Debug, Default)]
struct Log {
    runs: VecDeque<Run>,
    held: Option<String>,
}

/// Who wanted a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Schedule,
    Operator,
}

/// What one pass did.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) by: By,
    pub(crate) began: Timestamp,
    pub(crate) ended: Timestamp,
    /// Batches that were taken.
    pub(crate) taken: u64,
    pub(crate) arrived: u64,
    pub(crate) to_spool: u64,
    pub(crate) to_failed: u64,
    pub(crate) trouble: Option<String>,
}

/// A desk and its inbox.
pub(crate) fn open(layout: Layout) -> (Desk, Inbox) {
    let (orders, inbox) = mpsc::channel(ORDERS);
    let log = Arc::<Mutex<Log>>::default();
    (Desk { layout, orders, log: log.clone() }, Inbox { orders: inbox, log })
}

impl Desk {
    /// Orders a pass. What it did comes when it is over; nothing if the daemon ends before, or has too many orders.
    pub(super) fn order(&self, pick: Pick) -> Option<oneshot::Receiver<Run>> {
        let (done, over) = oneshot::channel();
        self.orders.try_send(Order { pick, done }).ok().map(|()| over)
    }

    /// The last passes, the latest first.
    pub(super) fn runs(&self) -> Vec<Run> {
        lock(&self.log).runs.iter().rev().cloned().collect()
    }

    /// Why nothing goes, if a person must act.
    pub(super) fn held(&self) -> Option<String> {
        lock(&self.log).held.clone()
    }
}

impl Inbox {
    /// The next order. Waits for ever if there is no desk any more.
    pub(crate) async fn next(&mut self) -> Order {
        match self.orders.recv().await {
            Some(order) => order,
            None => std::future::pending().await,
        }
    }

    /// Remembers a pass. One that found nothing to do takes the place of the last such.
    pub(crate) fn record(&self, run: Run, held: Option<&str>) {
        let mut log = lock(&self.log);
        log.held = held.map(ToOwned::to_owned);
        if run.is_idle() && log.runs.back().is_some_and(Run::is_idle) {
            log.runs.pop_back();
        }
        log.runs.push_back(run);
        if log.runs.len() > RUNS {
            log.runs.pop_front();
        }
    }
}

impl Order {
    /// Tells whoever gave it.
    pub(crate) fn over(self, run: Run) {
        // They may have gone.
        let _ = self.done.send(run);
    }
}

impl Run {
    /// What a pass did, from the counters before and after it.
    pub(crate) fn between(
        by: By,
        (began, before): (Timestamp, Counters),
        (ended, after): (Timestamp, Counters),
    ) -> Self {
        Self {
            by,
            began,
            ended,
            taken: after.spool_resend_attempts - before.spool_resend_attempts,
            arrived: after.send_success - before.send_success,
            to_spool: after.spool_saved - before.spool_saved,
            to_failed: after.failed_moved - before.failed_moved,
            trouble: None,
        }
    }

    fn is_idle(&self) -> bool {
        self.by == By::Schedule && self.taken == 0 && self.to_failed == 0 && self.trouble.is_none()
    }
}

fn lock(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}
