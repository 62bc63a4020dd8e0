//! What the handlers share.

mod claim_api;
mod console_options;
mod event_checks;
mod log_keys;

use std::sync::Arc;

use axum::extract::FromRef;
use http::StatusCode;
use ichido_ledger::Ledger;
use ichido_serve::{Problem, Readiness};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::task::TaskTracker;

pub use self::claim_api::ClaimApi;
pub use self::console_options::{Bodies, ConsoleOptions, UsageSource};
pub use self::log_keys::LogKeys;

/// What an admin port serves.
#[derive(Debug)]
pub struct Admin {
    /// The ledger that operators look after.
    pub ledger: Ledger,
    /// The claim API, whose ledger may have a fallback.
    pub api: ClaimApi,
    /// What `/readyz` asks.
    pub readiness: Readiness,
    /// What `/metrics` prints.
    pub metrics: PrometheusHandle,
    /// What the console shows besides.
    pub console: ConsoleOptions,
}

/// Alive, ready, and what was counted: what every admin port tells.
#[derive(Clone, Debug)]
pub struct Health {
    /// What `/readyz` asks.
    pub readiness: Readiness,
    /// What `/metrics` prints.
    pub metrics: PrometheusHandle,
}

impl FromRef<AppState> for Health {
    fn from_ref(app: &AppState) -> Self {
        Self { readiness: app.admin.readiness.clone(), metrics: app.admin.metrics.clone() }
    }
}

/// What the handlers share.
#[derive(Clone, Debug)]
pub struct AppState {
    pub admin: Arc<Admin>,
    /// Actions that are under way: they are waited for at the end.
    pub actions: TaskTracker,
}

impl AppState {
    /// Does something to its end, also if the caller hangs up.
    pub(crate) async fn run_to_completion<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Problem> {
        self.actions.spawn(work).await.map_err(|error| {
            tracing::error!(%error, "a call of the claim API broke off");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "ledger-failed", "The call broke off")
        })
    }
}
