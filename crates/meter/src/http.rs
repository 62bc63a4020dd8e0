//! The meter over HTTP: `POST /v1/usage`, `GET /v1/usage`, `GET /v1/records`, `GET /v1/receipts`.
//!
//! A batch is counted in a task of its own: a sender that hangs up does not undo it, and will be told "duplicate" when it asks
//! again. Bodies have a bound, packed and unpacked, and so has the number of batches that are in hand at once.

mod body;
mod ingest;
pub mod problem;
mod queries;
mod state;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

pub use self::problem::Problem;
pub use self::state::Parts;
use self::state::Served;
use crate::store::Store;

/// Batches in hand at once; others wait.
const IN_HAND: usize = 64;

/// A meter that is ready to serve.
pub struct Service {
    /// Its paths.
    pub router: Router,
    under_way: TaskTracker,
    store: Arc<dyn Store>,
}

/// Puts the parts together.
pub fn service(parts: Parts) -> Service {
    let (under_way, store) = (TaskTracker::new(), parts.store.clone());
    let served = Served {
        parts: Arc::new(parts),
        under_way: under_way.clone(),
        room: Arc::new(Semaphore::new(IN_HAND)),
    };
    let router = Router::new()
        .route("/v1/usage", get(queries::usage).post(ingest::usage))
        .route("/v1/records", get(queries::records))
        .route("/v1/receipts", get(queries::receipts))
        .fallback(problem::no_such_page)
        .method_not_allowed_fallback(problem::no_such_method)
        .with_state(served);
    Service { router, under_way, store }
}

impl Service {
    /// Waits for what is under way, and closes the store. No request may come after this.
    pub async fn close(self) {
        drop(self.router);
        self.under_way.close();
        self.under_way.wait().await;
        self.store.close().await;
    }
}
