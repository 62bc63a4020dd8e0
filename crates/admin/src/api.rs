//! The claim API: events that are marked once, and two-phase claims for callers in any language.
//!
//! A call is read and checked as a whole before the ledger hears of it, so a call that is refused marks nothing. Claims
//! made here are *remote*: their callers renew them, this process does not, and they outlive it.
//!
//! Limits: a body of 32 MiB, which takes 10,000 events with 3 KB of metadata each; 10,000 events; keys of 1 to 1,024
//! bytes; metadata of 8 KiB; nonces of 1 to 255 bytes; fingerprints of 1 to 1,024 bytes; leases of up to an hour;
//! retention of up to 3,660 days.

mod answers;
mod body;
mod claims;
mod events;
mod fields;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use ichido_ledger::{Ledger, StoreClock};
use tokio::sync::Semaphore;

pub(super) use self::claims::{claim, complete, doubt, release, renew};
pub(super) use self::events::check;
use self::watch::Watch;
use super::{Problem, Served};
use crate::LogKeys;

/// The scope of every claim that is made here. Routes of the gateway begin with a method, so no claim of theirs is meant.
pub const ROUTE: &str = "/v1/claims";
/// Calls with large bodies that are in memory at once; the next ones wait.
const LARGE_AT_ONCE: usize = 8;
/// How often a ledger that is out is looked after.
const LOOK_AFTER: Duration = Duration::from_millis(500);

/// What the claim API works with.
#[derive(Clone, Debug)]
pub struct Api {
    ledger: Ledger,
    /// Whether the ledger can be out while this process is well.
    is_remote: bool,
    watch: Arc<Watch>,
    large: Arc<Semaphore>,
}

impl Api {
    /// The API on a ledger, with its fallback around it if it has one.
    pub fn new(ledger: Ledger, log_keys: LogKeys) -> Self {
        let capabilities = ledger.capabilities();
        Self {
            is_remote: capabilities.clock != StoreClock::Own,
            watch: Arc::new(Watch::new(capabilities.backend, log_keys)),
            large: Arc::new(Semaphore::new(LARGE_AT_ONCE)),
            ledger,
        }
    }

    /// Notices that a ledger which was out is back, also if nobody asks anything.
    pub(super) async fn look_after_ledger(&self) {
        let mut turns = tokio::time::interval(LOOK_AFTER);
        loop {
            turns.tick().await;
            self.ledger.maintain_fallback().await;
        }
    }

    /// The last chance to tell the ledger what was answered in its place.
    pub(super) async fn last_words(&self) {
        let untold = self.ledger.hand_over_now().await;
        if untold > 0 {
            tracing::warn!(
                untold,
                "this process ends while the ledger is out; other instances will not know these events and claims"
            );
        }
    }
}

impl Served {
    /// Does something to its end, also if the caller hangs up.
    async fn finish<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Problem> {
        self.actions.spawn(work).await.map_err(|error| {
            tracing::error!(%error, "a call of the claim API broke off");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "ledger-failed", "The call broke off")
        })
    }
}
