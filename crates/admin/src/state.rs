//! State that the handlers share.

mod claim_api;
mod console_options;
mod event_checks;
mod log_keys;

use std::sync::Arc;

use axum::extract::FromRef;
use http::StatusCode;
use ichido_http::AskService;
use ichido_ledger::Ledger;
use ichido_serve::{Problem, Readiness};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::audit_log::AuditLog;
use crate::histories::Histories;

pub(crate) use self::claim_api::SimilarEvents;
pub use self::claim_api::{ClaimApi, ClaimSettings};
pub use self::console_options::{Bodies, ConsoleOptions, UsageSource};
pub(crate) use self::event_checks::EventCheck;
pub use self::log_keys::LogKeys;

/// Everything that an admin port serves.
#[derive(Debug)]
pub struct Admin {
    /// The ledger for operators.
    pub ledger: Ledger,
    /// The claim API; its ledger may have a fallback.
    pub api: ClaimApi,
    /// The checks behind `/readyz`.
    pub readiness: Readiness,
    /// The metrics behind `/metrics`.
    pub metrics: PrometheusHandle,
    /// What was decided about keys.
    pub histories: Histories,
    /// Asks the service behind a claim, if this process has a gateway.
    pub service: Option<Arc<dyn AskService>>,
    /// What the console shows in addition to the ledger.
    pub console: ConsoleOptions,
}

/// Health and metrics: what every admin port serves.
#[derive(Clone, Debug)]
pub struct Health {
    /// The checks behind `/readyz`.
    pub readiness: Readiness,
    /// The metrics behind `/metrics`.
    pub metrics: PrometheusHandle,
}

impl FromRef<AppState> for Health {
    fn from_ref(app: &AppState) -> Self {
        Self { readiness: app.admin.readiness.clone(), metrics: app.admin.metrics.clone() }
    }
}

/// State that the handlers share.
#[derive(Clone, Debug)]
pub struct AppState {
    pub admin: Arc<Admin>,
    /// Where actions are recorded.
    pub audit: AuditLog,
    /// Running actions. Shutdown waits for them.
    pub actions: TaskTracker,
    /// Limits searches that read many files.
    pub searches: Arc<Semaphore>,
}

/// The most searches that read files at a time. Each uses several threads.
const SEARCHES_MAX: usize = 2;

impl AppState {
    pub(crate) fn new(admin: Admin, audit: AuditLog, actions: TaskTracker) -> Self {
        Self { admin: Arc::new(admin), audit, actions, searches: Arc::new(Semaphore::new(SEARCHES_MAX)) }
    }

    /// Runs work to completion, even if the caller disconnects.
    pub(crate) async fn run_to_completion<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Problem> {
        self.actions.spawn(work).await.map_err(|error| {
            tracing::error!(%error, "claim API request panicked");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "ledger-failed", "The request was interrupted")
        })
    }
}
