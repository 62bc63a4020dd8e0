//! What the handlers share.

mod claim_api;
mod console_parts;
mod event_checks;
mod log_keys;

use std::sync::Arc;

use axum::extract::FromRef;
use http::StatusCode;
use ichido_ledger::Ledger;
use ichido_serve::{Problem, Readiness};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::task::TaskTracker;

pub use self::claim_api::Api;
pub use self::console_parts::{Bodies, Parts, Usage};
pub use self::log_keys::LogKeys;

/// What an admin port serves.
#[derive(Debug)]
pub struct Admin {
    /// The ledger that operators look after.
    pub ledger: Ledger,
    /// The claim API, whose ledger may have a fallback.
    pub api: Api,
    /// What `/readyz` asks.
    pub readiness: Readiness,
    /// What `/metrics` prints.
    pub meters: PrometheusHandle,
    /// What the console shows besides.
    pub console: Parts,
}

/// Alive, ready, and what was counted: what every admin port tells.
#[derive(Clone, Debug)]
pub struct Health {
    /// What `/readyz` asks.
    pub readiness: Readiness,
    /// What `/metrics` prints.
    pub meters: PrometheusHandle,
}

impl FromRef<Served> for Health {
    fn from_ref(served: &Served) -> Self {
        Self { readiness: served.admin.readiness.clone(), meters: served.admin.meters.clone() }
    }
}

/// What the handlers share.
#[derive(Clone, Debug)]
pub struct Served {
    pub admin: Arc<Admin>,
    /// Actions that are under way: they are waited for at the end.
    pub actions: TaskTracker,
}

impl Served {
    /// Does something to its end, also if the caller hangs up.
    pub(crate) async fn finish<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Problem> {
        self.actions.spawn(work).await.map_err(|error| {
            tracing::error!(%error, "a call of the claim API broke off");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "ledger-failed", "The call broke off")
        })
    }
}
