//! A keyed request while the layer handles it.

use std::sync::Arc;

use http::HeaderValue;
use ichido_ledger::Ledger;

use super::prepare::Claimable;
use crate::metrics::Trace;
use crate::rules::Route;
use crate::shared::Shared;

/// Everything about a keyed request except the service and the channel for the reply.
pub(super) struct KeyedRequest {
    pub(super) shared: Arc<Shared>,
    pub(super) trace: Trace,
    /// Boxed, because every future that the request passes through reserves space for it.
    pub(super) claimable: Box<Claimable>,
    pub(super) accepts_gzip: bool,
}

impl KeyedRequest {
    pub(super) fn route(&self) -> &Route {
        &self.shared.rules.routes[self.trace.route]
    }

    /// How long responses of this route are stored, in seconds, for the response header.
    pub(super) fn lifetime(&self) -> HeaderValue {
        self.shared.lifetimes[self.trace.route].clone()
    }

    /// The ledger for this route.
    pub(super) fn ledger(&self) -> &Ledger {
        self.shared.ledger_of(self.route())
    }
}
