//! Fallback: a local ledger answers while the primary is unreachable.
//!
//! While the primary is healthy, it answers, and its answers are mirrored in memory, so that retries are recognised
//! during an outage too. After an outage error, the local ledger answers for a pause (60 s by default), then the
//! primary is probed once.
//!
//! The local ledger holds what is *pending handover*: marks and claims that the primary does not know yet. They are
//! removed once they are handed over. So whatever is pending is exactly as durable as the local ledger, and is
//! found again at the next start. A claim is settled where it is held. On recovery it is handed over in its current
//! state, running, in doubt or completed, and its holder continues with the primary. If both ledgers have a record,
//! the primary's wins, and the conflict is counted and kept for operators.
//!
//! What must stay true: one instance never answers "new" or "granted" twice for one key. So while a call for a key
//! is in flight to the primary, the local ledger does not answer for that key ([`in_flight`]). The switch from
//! degraded to healthy waits for local calls in progress (the `mode` lock). Two instances may both answer "new"
//! while degraded. That is the price of answering at all, and it is counted afterwards.

mod abandoned_grants;
mod claims;
mod conflicts;
mod handover;
mod in_flight;
mod maintain;
mod marks;
mod pending;
mod recovery;
mod routing;
mod state;

use std::sync::Arc;

pub(crate) use self::state::Fallback;
pub use self::state::FallbackSettings;

use self::pending::PendingHandover;
use crate::retry::RetryingBackend;
use crate::{LocalBackend, Result};

impl Fallback {
    /// Loads what an earlier run left pending, and hands it over if the primary can be reached. If it cannot, the
    /// local ledger answers from the start.
    pub(crate) async fn open(
        primary: RetryingBackend,
        store: Arc<dyn LocalBackend>,
        settings: FallbackSettings,
    ) -> Result<Arc<Self>> {
        let pending = PendingHandover::load(&*store).await?;
        let has_pending = !pending.is_empty();
        let fallback = Arc::new(Self::new(primary, store, pending, &settings));
        if has_pending {
            fallback.metrics.degraded.set(1.0);
            let (claims, marks) = fallback.count_pending();
            tracing::warn!(claims, marks, "claims and marks of an earlier run are still pending handover");
            fallback.probe_once().await;
        }
        Ok(fallback)
    }
}
