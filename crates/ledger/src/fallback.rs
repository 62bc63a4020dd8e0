//! Fallback: any primary ledger, and a local one for while it is out.
//!
//! In healthy times the primary answers, and what it answered is mirrored in memory, so that a repeat is known during
//! an outage too. After an outage error the local ledger answers for a while (60 s), then one probe is made.
//!
//! The local ledger holds what is *owed*: marks and claims that the primary does not know yet. Whatever is handed over
//! is removed from it. So the debt is exactly as durable as the local ledger, and is found again at the next start.
//! A claim is settled where it is held; on recovery it is handed over as it is, running, in doubt or completed, and its
//! holder goes on with the primary. The primary wins, and conflicts are counted and kept for operators.
//!
//! What must stay true: one instance never answers "new" or "granted" twice for one key. So a key whose question is on
//! its way to the primary is not answered locally until that question is settled ([`asking`]), and the step from
//! degraded to healthy waits for local answers that are under way (the `mode` lock). Two instances may both answer
//! "new" while degraded: that is the price, and it is counted afterwards.

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
    /// Finds what an earlier run still owes, and hands it over if the primary can be reached. If it cannot, the local
    /// ledger answers from the start.
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
            tracing::warn!(
                claims,
                marks,
                "an earlier run did not hand over all of its claims and marks to the ledger"
            );
            fallback.probe_once().await;
        }
        Ok(fallback)
    }
}
