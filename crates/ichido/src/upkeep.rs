//! What every process that serves does for its ledger.

use std::time::Duration;

use ichido_ledger::{FallbackSettings, Ledger, Listing, OpenOptions, open_backend};
use tokio_util::sync::CancellationToken;

use crate::exit::Failure;
use crate::settings::Ledger as LedgerSettings;

/// Records that one step of the sweep removes, and the pause between two sweeps.
const SWEEP_STEP: usize = 1_000;
const SWEEP_PAUSE: Duration = Duration::from_secs(30);

/// The same ledger, with a local one for while it is out. One for all parts of a process: each knows what it answered.
pub(crate) async fn with_fallback(ledger: &Ledger, of: &LedgerSettings) -> Result<Ledger, Failure> {
    let options = OpenOptions { clock: ledger.settings().clock.clone(), admin: None };
    let local = open_backend(&of.fallback, &options)
        .await
        .map_err(|error| Failure::from(error).at("ledger.fallback"))?;
    let settings = FallbackSettings { pause: of.fallback_pause, ..FallbackSettings::default() };
    Ok(ledger.with_fallback(local, settings))
}

/// Removes what is over, a little at a time, where that is cheap. Stores without an index on it would be read as a
/// whole, which may cost money; they have an expiry of their own, and `ichido ledger sweep` is for the rest.
pub(crate) async fn sweep(ledger: Ledger, stop: CancellationToken) {
    match ledger.capabilities().listing {
        Listing::Indexed => {}
        Listing::Scan => return,
    }
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(SWEEP_PAUSE) => {}
        }
        loop {
            match ledger.sweep(SWEEP_STEP).await {
                Ok(swept) if swept.more && !stop.is_cancelled() => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "sweeping the ledger failed; it is tried again later");
                    break;
                }
            }
        }
    }
}
