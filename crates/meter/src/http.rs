//! The HTTP interface: `POST /v1/usage`, `GET /v1/usage`, `GET /v1/records`, `GET /v1/receipts`.
//!
//! Each batch is counted in its own task, so a sender that disconnects does not interrupt it; when it retries, its
//! records are duplicates. The size of bodies is limited, compressed and decompressed, and so is the number of
//! concurrent batches.

mod body;
mod ingest;
mod problem;
mod queries;
mod state;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use ichido_serve::problem::{method_not_allowed, not_found};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use self::state::AppState;
pub use self::state::ServiceOptions;
use crate::store::Store;

/// The most concurrent batches. Others wait.
const CONCURRENT_BATCHES_MAX: usize = 64;

/// A meter that is ready to serve.
pub struct Service {
    /// The routes.
    pub router: Router,
    tasks: TaskTracker,
    store: Arc<dyn Store>,
}

/// Creates a meter.
pub fn service(options: ServiceOptions) -> Service {
    let (tasks, store) = (TaskTracker::new(), options.store.clone());
    let state = AppState {
        options: Arc::new(options),
        tasks: tasks.clone(),
        permits: Arc::new(Semaphore::new(CONCURRENT_BATCHES_MAX)),
    };
    let router = Router::new()
        .route("/v1/usage", get(queries::usage).post(ingest::usage))
        .route("/v1/records", get(queries::records))
        .route("/v1/receipts", get(queries::receipts))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(state);
    Service { router, tasks, store }
}

impl Service {
    /// Waits for running tasks, and closes the store. No request may arrive after this.
    pub async fn close(self) {
        drop(self.router);
        self.tasks.close();
        self.tasks.wait().await;
        self.store.close().await;
    }
}
