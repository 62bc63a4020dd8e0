//! Connects the console to the daemon's sender: requests to resend, and the results of passes.
//!
//! The sender has one lane per destination, so a request waits for its turn. The console itself sends nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ichido_core::Timestamp;
use ichido_delivery::counters::Counters;
use ichido_delivery::sender::Selection;
use ichido_delivery::store::Layout;
use tokio::sync::{mpsc, oneshot};

/// The most requests that may wait.
const REQUESTS_MAX: usize = 16;
/// The most passes that are remembered.
const PASSES_MAX: usize = 20;

/// The console's side: requests passes and shows their results.
#[derive(Clone, Debug)]
pub struct DeliveryControl {
    pub(crate) layout: Layout,
    /// How long receipts are kept.
    pub(crate) receipt_retention: Duration,
    requests: mpsc::Sender<ResendRequest>,
    history: Arc<Mutex<History>>,
}

/// The sender's side: takes requests and records passes.
#[derive(Debug)]
pub struct ControlInbox {
    requests: mpsc::Receiver<ResendRequest>,
    history: Arc<Mutex<History>>,
}

/// A request to resend batches.
#[derive(Debug)]
pub struct ResendRequest {
    /// The batches to resend.
    pub selection: Selection,
    done: oneshot::Sender<Pass>,
}

#[derive(Debug, Default)]
struct History {
    passes: VecDeque<Pass>,
    held: Option<String>,
}

/// What started a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// The schedule, or the start of the process.
    Schedule,
    /// An operator, from the console.
    Operator,
}

/// What one pass did.
#[derive(Clone, Debug)]
pub struct Pass {
    /// What started it.
    pub trigger: Trigger,
    /// When it started.
    pub began: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// Batches that were attempted.
    pub tried: u64,
    /// Batches that were delivered.
    pub arrived: u64,
    /// Batches that went to the spool or back to it.
    pub to_spool: u64,
    /// Batches that were moved to failed.
    pub to_failed: u64,
    /// Why not every batch was attempted.
    pub problem: Option<String>,
}

/// The result of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassResult {
    AllArrived,
    NotAllArrived,
    NothingSent,
}

/// Creates the two sides.
pub fn channel(layout: Layout, receipt_retention: Duration) -> (DeliveryControl, ControlInbox) {
    let (requests, inbox) = mpsc::channel(REQUESTS_MAX);
    let history = Arc::<Mutex<History>>::default();
    (
        DeliveryControl { layout, receipt_retention, requests, history: history.clone() },
        ControlInbox { requests: inbox, history },
    )
}

impl DeliveryControl {
    /// Requests a pass. The receiver yields its result, or an error if the daemon stops first. `None` if too many
    /// requests wait.
    pub(crate) fn request(&self, selection: Selection) -> Option<oneshot::Receiver<Pass>> {
        let (done, finished) = oneshot::channel();
        self.requests.try_send(ResendRequest { selection, done }).ok().map(|()| finished)
    }

    /// The last passes, latest first.
    pub(crate) fn passes(&self) -> Vec<Pass> {
        lock(&self.history).passes.iter().rev().cloned().collect()
    }

    /// Why the lane is held, if an operator must act.
    pub(crate) fn held(&self) -> Option<String> {
        lock(&self.history).held.clone()
    }
}

impl ControlInbox {
    /// The next request. Never returns if the console is gone.
    pub async fn next(&mut self) -> ResendRequest {
        match self.requests.recv().await {
            Some(request) => request,
            None => std::future::pending().await,
        }
    }

    /// Records a pass. Of consecutive passes without work only the last is kept.
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
    /// Reports the result to whoever requested the pass.
    pub fn finish(self, pass: Pass) {
        // The receiver may be gone.
        let _ = self.done.send(pass);
    }
}

impl PassResult {
    /// The name in the audit log and in the console's URLs.
    pub(crate) fn code(self) -> &'static str {
        match self {
            PassResult::AllArrived => "arrived",
            PassResult::NotAllArrived => "not-arrived",
            PassResult::NothingSent => "nothing-sent",
        }
    }
}

impl Pass {
    /// What a pass did, computed from the counters before and after it.
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

    /// The result. Anything uncertain does not count as success.
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
