//! Lease renewal: every third of the lease, while the holder lives, up to the lease ceiling.
//!
//! After one failed renewal, two more are tried before the lease lapses. Dropping the value only stops renewal: a
//! claim that was not settled becomes in doubt when its lease lapses, which is the truth about it.

use std::time::Duration;

use ichido_core::{Grant, Key, Settled};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::Ledger;

/// Renews a lease for as long as it exists.
#[derive(Debug)]
pub struct Renewal {
    lost: CancellationToken,
    _stop: DropGuard,
}

impl Ledger {
    /// Renews the lease of a grant until the returned value is dropped, or until the lease ceiling is reached.
    pub fn start_renewal(&self, key: &Key, grant: &Grant) -> Renewal {
        let (ledger, key, grant, renewals) = (self.clone(), key.clone(), *grant, self.renewals());
        let (stop, lost) = (renewals.end.child_token(), CancellationToken::new());
        let (stopped, lost_signal) = (stop.clone(), lost.clone());
        renewals.tasks.spawn(async move {
            tokio::select! {
                () = stopped.cancelled() => {}
                () = renew_until_lost(&ledger, &key, grant) => lost_signal.cancel(),
            }
        });
        Renewal { lost, _stop: stop.drop_guard() }
    }
}

impl Renewal {
    /// Returns when the claim is known to be lost, or when the lease ceiling is reached.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

async fn renew_until_lost(ledger: &Ledger, key: &Key, grant: Grant) {
    let started = Instant::now();
    let third = Duration::from_millis((grant.lease_ms / 3).max(1));
    let mut next = started + third.min(Duration::from_millis(grant.left_ms / 3));
    loop {
        sleep_until(next).await;
        if started.elapsed() >= ledger.settings().lease_ceiling {
            tracing::warn!(index = %key.index(), "lease ceiling reached; renewal stops and the claim becomes in doubt");
            return;
        }
        next = Instant::now() + third;
        // A renewal that hangs must not use up the next one's time.
        match tokio::time::timeout_at(next, ledger.renew(key, grant.token, grant.lease_ms)).await {
            Ok(Ok(Settled::Applied)) => {}
            Ok(Ok(Settled::Stale(_))) => {
                tracing::warn!(index = %key.index(), "claim was taken over while its holder was working");
                return;
            }
            Ok(Err(error)) => {
                ledger.renewal_failed();
                tracing::warn!(index = %key.index(), %error, "cannot renew lease; retrying");
            }
            Err(_) => {
                ledger.renewal_failed();
                tracing::warn!(index = %key.index(), "lease renewal timed out; retrying");
            }
        }
    }
}
