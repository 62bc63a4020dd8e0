//! The state that all handlers share.

use std::sync::Arc;

use http::HeaderMap;
use ichido_core::Clock;
use ichido_serve::Problem;
use ichido_usage::Profile;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::problem;
use crate::access::Access;
use crate::store::Store;

/// What a meter needs to serve requests.
#[derive(Clone)]
pub struct ServiceOptions {
    /// Where records are counted.
    pub store: Arc<dyn Store>,
    /// Who may send and query usage.
    pub access: Access,
    /// What happens to a record that is already counted. The store must have been opened with the same profile.
    pub profile: Profile,
    /// The most bytes of a body, compressed and decompressed.
    pub body_max_bytes: usize,
    /// The source of time.
    pub clock: Arc<dyn Clock>,
}

/// The state that all handlers share.
#[derive(Clone)]
pub(super) struct AppState {
    pub(super) options: Arc<ServiceOptions>,
    /// Batches that are being counted.
    pub(super) tasks: TaskTracker,
    /// Limits the number of concurrent batches.
    pub(super) permits: Arc<Semaphore>,
}

impl AppState {
    /// Returns the tenant of a request.
    pub(super) fn tenant(&self, headers: &HeaderMap) -> Result<String, Problem> {
        self.options.access.tenant(headers).map(str::to_owned).ok_or_else(problem::token_refused)
    }
}
