//! Between the console and the daemon that delivers: orders to send again, and what its passes did.
//!
//! The daemon has one lane to its destination, so an order waits for its turn there; the console sends nothing itself.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ichido_core::Timestamp;
use ichido_delivery::counters::Counters;
use ichido_delivery::sender::Selection;
use ichido_delivery::store::Layout;
use tokio::sync::{mpsc, oneshot};

/// Orders that may wait.
const ORDERS: usize = 16;
/// Passes that are remembered.
const RUNS: usize = 20;

/// The console's side.
#[derive(Clone, Debug)]
pub struct Desk {
    pub(crate) layout: Layout,
    orders: mpsc::Sender<Order>,
    log: Arc<Mutex<Log>>,
}

/// The daemon's side.
#[derive(Debug)]
pub struct Inbox {
    orders: mpsc::Receiver<Order>,
    log: Arc<Mutex<Log>>,
}

/// Something to send again.
#[derive(Debug)]
pub struct Order {
    pub selection: Selection,
    done: oneshot::Sender<Run>,
}

#[derive(Debug, Default)]
struct Log {
    runs: VecDeque<Run>,
    held: Option<String>,
}

/// Who wanted a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Schedule,
    Operator,
}

/// What one pass did.
#[derive(Clone, Debug)]
pub struct Run {
    pub by: By,
    pub began: Timestamp,
    pub ended: Timestamp,
    /// Batches that were taken.
    pub taken: u64,
    pub arrived: u64,
    /// Batches that went to the spool, or back there.
    pub to_spool: u64,
    pub to_failed: u64,
    /// Why not everything was tried.
    pub trouble: Option<String>,
}

/// What a pass came to, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    AllArrived,
    NotAllArrived,
    NothingSent,
}

/// A desk and its inbox.
pub fn open(layout: Layout) -> (Desk, Inbox) {
    let (orders, inbox) = mpsc::channel(ORDERS);
    let log = Arc::<Mutex<Log>>::default();
    (Desk { layout, orders, log: log.clone() }, Inbox { orders: inbox, log })
}

impl Desk {
    /// Orders a pass. What it did comes when it is over; nothing if the daemon ends before, or has too many orders.
    pub(crate) fn order(&self, selection: Selection) -> Option<oneshot::Receiver<Run>> {
        let (done, over) = oneshot::channel();
        self.orders.try_send(Order { selection, done }).ok().map(|()| over)
    }

    /// The last passes, the latest first.
    pub(crate) fn runs(&self) -> Vec<Run> {
        lock(&self.log).runs.iter().rev().cloned().collect()
    }

    /// Why nothing goes, if a person must act.
    pub(crate) fn held(&self) -> Option<String> {
        lock(&self.log).held.clone()
    }
}

impl Inbox {
    /// The next order. Waits for ever if there is no desk any more.
    pub async fn next(&mut self) -> Order {
        match self.orders.recv().await {
            Some(order) => order,
            None => std::future::pending().await,
        }
    }

    /// Remembers a pass. One that found nothing to do takes the place of the last such.
    pub fn record(&self, run: Run, held: Option<&str>) {
        let mut log = lock(&self.log);
        log.held = held.map(ToOwned::to_owned);
        let is_same = |last: &Run| last.is_idle() && last.trouble == run.trouble;
        if run.is_idle() && log.runs.back().is_some_and(is_same) {
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
    pub fn over(self, run: Run) {
        // They may have gone.
        let _ = self.done.send(run);
    }
}

impl Ending {
    /// Its word in the audit and in the console.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Ending::AllArrived => "arrived",
            Ending::NotAllArrived => "not-arrived",
            Ending::NothingSent => "nothing-sent",
        }
    }
}

impl Run {
    /// What a pass did, from the counters before and after it.
    pub fn between(
        by: By,
        taken: u64,
        (began, before): (Timestamp, Counters),
        (ended, after): (Timestamp, Counters),
    ) -> Self {
        Self {
            by,
            began,
            ended,
            taken,
            arrived: after.send_success - before.send_success,
            to_spool: after.spool_saved + after.spool_returned - before.spool_saved - before.spool_returned,
            to_failed: after.failed_moved - before.failed_moved,
            trouble: None,
        }
    }

    /// What it came to. Only batches that arrived have arrived: whatever is uncertain is not success.
    pub(crate) fn ending(&self) -> Ending {
        let Self { taken, arrived, to_spool, to_failed, trouble, .. } = self;
        match (taken, trouble) {
            (0, None) => Ending::NothingSent,
            (_, None) if arrived >= taken && to_spool + to_failed == 0 => Ending::AllArrived,
            (_, Some(_) | None) => Ending::NotAllArrived,
        }
    }

    fn is_idle(&self) -> bool {
        self.by == By::Schedule && self.taken == 0 && self.to_failed == 0
    }
}

fn lock(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}
