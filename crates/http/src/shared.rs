//! What all requests of a layer share.

use std::sync::Arc;

use http::HeaderValue;
use ichido_ledger::Ledger;
use tokio_util::task::TaskTracker;

use crate::concurrency::Slots;
use crate::journal::Journal;
use crate::metrics::Meters;
use crate::options::Outage;
use crate::policy::Policy;
use crate::request_body::Budgets;
use crate::rules::{Route, Rules};

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) rules: Rules,
    pub(crate) ledger: Ledger,
    pub(crate) fallback: Option<Ledger>,
    pub(crate) journal: Option<Arc<Journal>>,
    pub(crate) tasks: TaskTracker,
    pub(crate) slots: Slots,
    pub(crate) budgets: Budgets,
    pub(crate) meters: Meters,
    /// How long each route's answers are kept, in seconds.
    pub(crate) lifetimes: Vec<HeaderValue>,
    /// Names this instance to people.
    pub(crate) instance: String,
    pub(crate) policy: Policy,
}

impl Shared {
    /// The ledger that a route asks.
    pub(crate) fn ledger_of(&self, route: &Route) -> &Ledger {
        match (route.outage, &self.fallback) {
            (Outage::Fallback, Some(ledger)) => ledger,
            _ => &self.ledger,
        }
    }
}
