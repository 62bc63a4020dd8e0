//! The state that all requests of a layer share.

use std::sync::Arc;

use http::HeaderValue;
use ichido_ledger::Ledger;
use ichido_similar::SimilarTexts;
use tokio_util::task::TaskTracker;

use crate::concurrency::ConcurrencyLimits;
use crate::journal::Journal;
use crate::metrics::Metrics;
use crate::options::Outage;
use crate::policy::Policy;
use crate::request_body::Budgets;
use crate::rules::{Route, Rules};
use crate::spans::Tracer;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) rules: Rules,
    pub(crate) ledger: Ledger,
    pub(crate) fallback: Option<Ledger>,
    pub(crate) journal: Option<Arc<Journal>>,
    pub(crate) tasks: TaskTracker,
    pub(crate) limits: ConcurrencyLimits,
    pub(crate) budgets: Budgets,
    pub(crate) metrics: Metrics,
    /// How long the responses of each route are stored, in seconds.
    pub(crate) lifetimes: Vec<HeaderValue>,
    /// Identifies this instance in event metadata.
    pub(crate) instance: String,
    pub(crate) policy: Policy,
    /// `None` if requests are not traced.
    pub(crate) tracer: Option<Tracer>,
    /// The recent texts of each route that compares texts.
    pub(crate) similar: Vec<Option<Arc<SimilarTexts>>>,
}

impl Shared {
    /// The ledger for a route.
    pub(crate) fn ledger_of(&self, route: &Route) -> &Ledger {
        match (route.outage, &self.fallback) {
            (Outage::Fallback, Some(ledger)) => ledger,
            _ => &self.ledger,
        }
    }
}
