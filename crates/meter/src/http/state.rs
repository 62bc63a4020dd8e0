//! What the handlers share.

use std::sync::Arc;

use http::HeaderMap;
use ichido_core::Clock;
use ichido_usage::Profile;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::problem::Problem;
use crate::access::Access;
use crate::store::Store;

/// What the meter is made of.
#[derive(Clone)]
pub struct Parts {
    /// Where records are counted.
    pub store: Arc<dyn Store>,
    /// Who may count.
    pub access: Access,
    /// What happens to a record that is there already; the store was opened with the same.
    pub profile: Profile,
    /// The largest body, packed and unpacked.
    pub body_max_bytes: usize,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
}

/// What the handlers share.
#[derive(Clone)]
pub(super) struct Served {
    pub(super) parts: Arc<Parts>,
    pub(super) under_way: TaskTracker,
    pub(super) room: Arc<Semaphore>,
}

impl Served {
    /// Whose request it is.
    pub(super) fn tenant(&self, headers: &HeaderMap) -> Result<String, Problem> {
        self.parts.access.tenant(headers).map(str::to_owned).ok_or_else(Problem::token_refused)
    }
}
