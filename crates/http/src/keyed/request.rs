//! A keyed request while it is handled.

use std::sync::Arc;

use http::HeaderValue;
use ichido_ledger::Ledger;

use super::prepare::Ready;
use crate::metrics::Trace;
use crate::rules::Route;
use crate::shared::Shared;

/// Everything about one keyed request but the service and the reply.
pub(crate) struct Job {
    pub(crate) shared: Arc<Shared>,
    pub(crate) trace: Trace,
    /// Boxed: a job is handed from future to future, and each of them has room for it.
    pub(crate) ready: Box<Ready>,
    /// Whether the caller takes answers in gzip.
    pub(crate) takes_gzip: bool,
}

impl Job {
    pub(crate) fn route(&self) -> &Route {
        &self.shared.rules.routes[self.trace.route]
    }

    /// How long an answer of this route is kept, for callers.
    pub(crate) fn lifetime(&self) -> HeaderValue {
        self.shared.lifetimes[self.trace.route].clone()
    }

    /// The ledger that this route asks.
    pub(crate) fn ledger(&self) -> &Ledger {
        self.shared.ledger_of(self.route())
    }
}
