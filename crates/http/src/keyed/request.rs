//! A keyed request while the layer handles it.

use std::sync::Arc;
use std::time::Duration;

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

    /// Writes the log line of an event that was checked, if the route receives events. Consumers know it by its fields; the
    /// claim API writes the same line. A key may be a secret of its sender, so its hash is logged.
    pub(super) fn log_event_check(&self, is_new: bool, took: Duration) {
        if self.route().preset.is_none() || !tracing::enabled!(tracing::Level::INFO) {
            return;
        }
        let ms = (took.as_secs_f64() * 1e6).round() / 1e3;
        let is_dynamodb = self.ledger().capabilities().backend == "dynamodb";
        tracing::info!(
            eventKey = %self.claimable.claim.key.index(),
            result = if is_new { "new" } else { "duplicate" },
            dynamodbLatency = is_dynamodb.then_some(ms),
            ledgerLatency = (!is_dynamodb).then_some(ms),
            fallbackMode = self.trace.degraded,
            "Deduplication check"
        );
    }

    /// The ledger for this route.
    pub(super) fn ledger(&self) -> &Ledger {
        self.shared.ledger_of(self.route())
    }
}
