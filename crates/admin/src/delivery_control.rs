//! Between the console and the daemon that delivers: requests to send again, and what its passes did.
//!
//! The daemon has one lane to its destination, so an request waits for its turn there; the console sends nothing itself.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ichido_core::Timestamp;
use ichido_delivery::counters::Counters;
use ichido_delivery::sender::Selection;
use ichido_delivery::store::Layout;
use tokio::sync::{mpsc, oneshot};

/// Orders that may wait.
const REQUESTS_MAX: usize = 16;
/// Passes that are remembered.
const PASSES_MAX: usize = 20;

/// The console's side.
#[derive(Clone, Debug)]
pub struct DeliveryControl {
    pub(crate) layout: Layout,
    requests: mpsc::Sender<ResendRequest>,
    history: Arc<Mutex<History>>,
}

/// The daemon's side.
#[derive(Debug)]
pub struct ControlInbox {
    requests: mpsc::Receiver<ResendRequest>,
    history: Arc<Mutex<History>>,
}

/// Something to send again.
#[derive(Debug)]
pub struct ResendRequest {
    pub selection: Selection,
    done: oneshot::Sender<Pass>,
}

#[derive(Debug, Default)]
struct History {
    passes: VecDeque<Pass>,
    held: Option<String>,
}

/// Who wanted a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    Schedule,
    Operator,
}

/// What one pass did.
#[derive(Clone, Debug)]
pub struct Pass {
    pub trigger: Trigger,
    pub began: Timestamp,
    pub ended: Timestamp,
    /// Batches that were tried.
    pub tried: u64,
    pub arrived: u64,
    /// Batches that went to the spool, or back there.
    pub to_spool: u64,
    pub to_failed: u64,
    /// Why not everything was tried.
    pub problem: Option<String>,
}

/// What a pass came to, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassResult {
    AllArrived,
    NotAllArrived,
    NothingSent,
}

/// A delivery_control and its inbox.
pub fn channel(layout: Layout) -> (DeliveryControl, ControlInbox) {
    let (requests, inbox) = mpsc::channel(REQUESTS_MAX);
    let history = Arc::<Mutex<History>>::default();
    (
        DeliveryControl { layout, requests, history: history.clone() },
        ControlInbox { requests: inbox, history },
    )
}

impl DeliveryControl {
    /// Orders a pass. What it did comes when it is over; nothing if the daemon ends before, or has too many requests.
    pub(crate) fn request(&self, selection: Selection) -> Option<oneshot::Receiver<Pass>> {
        let (done, finished) = oneshot::channel();
        self.requests.try_send(ResendRequest { selection, done }).ok().map(|()| finished)
    }

    /// The last passes, the latest first.
    pub(crate) fn passes(&self) -> Vec<Pass> {
        lock(&self.history).passes.iter().rev().cloned().collect()
    }

    /// Why nothing goes, if a person must act.
    pub(crate) fn held(&self) -> Option<String> {
        lock(&self.history).held.clone()
    }
}

impl ControlInbox {
    /// The next request. Waits for ever if there is no delivery_control any more.
    pub async fn next(&mut self) -> ResendRequest {
        match self.requests.recv().await {
            Some(request) => request,
            None => std::future::pending().await,
        }
    }

    /// Remembers a pass. One that found nothing to do takes the place of the last such.
    pub fn record(&self, pass: Pass, held: Option<&str>) {
        let mut history = lock(&self.history);
        history.held = held.map(ToOwned::to_owned);
        let is_same = |last: &Pass| last.is_idle() && last.problem == pass.problem;
        if pass.is_idle() && history.passes.back().is_some_and(is_same) {
            history.passes.pop_back();
        }
        history.passes.push_back(pass);
        if history.passes.len() > PASSES_MAX {
            history.passes.pop_front();
        }
    }
}

impl ResendRequest {
    /// Tells whoever gave it.
    pub fn finish(self, pass: Pass) {
        // They may have gone.
        let _ = self.done.send(pass);
    }
}

impl PassResult {
    /// Its word in the audit and in the console.
    pub(crate) fn code(self) -> &'static str {
        match self {
            PassResult::AllArrived => "arrived",
            PassResult::NotAllArrived => "not-arrived",
            PassResult::NothingSent => "nothing-sent",
        }
    }
}

impl Pass {
    /// What a pass did, from the counters before and after it.
    pub fn between(
        trigger: Trigger,
        tried: u64,
        (began, before): (Timestamp, Counters),
        (ended, after): (Timestamp, Counters),
    ) -> Self {
        Self {
            trigger,
            began,
            ended,
            tried,
            arrived: after.send_success - before.send_success,
            to_spool: after.spool_saved + after.spool_returned - before.spool_saved - before.spool_returned,
            to_failed: after.failed_moved - before.failed_moved,
            problem: None,
        }
    }

    /// What it came to. Only batches that arrived have arrived: whatever is uncertain is not success.
    pub(crate) fn result(&self) -> PassResult {
        let Self { tried, arrived, to_spool, to_failed, problem, .. } = self;
        match (tried, problem) {
            (0, None) => PassResult::NothingSent,
            (_, None) if arrived >= tried && to_spool + to_failed == 0 => PassResult::AllArrived,
            (_, Some(_) | None) => PassResult::NotAllArrived,
        }
    }

    fn is_idle(&self) -> bool {
        self.trigger == Trigger::Schedule && self.tried == 0 && self.to_failed == 0
    }
}

fn lock(history: &Mutex<History>) -> MutexGuard<'_, History> {
    history.lock().unwrap_or_else(PoisonError::into_inner)
}
