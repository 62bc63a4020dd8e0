//! The ledger of a process: its settings, its fallback, and the sweeper.

use std::path::Path;
use std::time::Duration;

use ichido_ledger::{FallbackSettings, Ledger, OpenOptions, Sweeping, open_local};
use ichido_settings::location;
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;

/// Records that one sweep call removes at most.
const SWEEP_RECORDS_MAX: usize = 1_000;
/// The pause between two sweeps.
const SWEEP_PAUSE: Duration = Duration::from_secs(30);

/// The ledger that all components of a process share, and the same ledger with its fallback.
///
/// There is one of each per process, so that every component sees the responses that another one recorded.
#[derive(Clone, Debug)]
pub struct ProcessLedger {
    /// The ledger without its fallback.
    pub ledger: Ledger,
    fallback: Option<Ledger>,
    is_local: bool,
}

impl ProcessLedger {
    /// Opens the fallback if a gateway route needs one, or if the process serves the claim API on a remote ledger.
    ///
    /// Pending handovers of an earlier run are written to the ledger before this returns, so before anything is served.
    pub async fn new(
        ledger: Ledger,
        settings: &Settings,
        routes_need_fallback: bool,
        has_api: bool,
    ) -> Result<Self, Failure> {
        let is_local = settings.is_local();
        let fallback = match routes_need_fallback || (has_api && !is_local) {
            true => Some(with_fallback(&ledger, settings).await?),
            false => None,
        };
        Ok(Self { ledger, fallback, is_local })
    }

    /// The ledger for routes that need a fallback.
    pub fn for_routes(&self) -> Option<Ledger> {
        self.fallback.clone()
    }

    /// The ledger for the claim API. A local ledger is reachable as long as this process runs and needs no fallback.
    pub fn for_api(&self) -> Ledger {
        self.fallback.clone().filter(|_| !self.is_local).unwrap_or_else(|| self.ledger.clone())
    }

    /// The ledger for operators. It includes the claims that this process granted during an outage.
    pub fn for_operators(&self) -> Ledger {
        self.fallback.clone().unwrap_or_else(|| self.ledger.clone())
    }

    /// Closes the ledger and its fallback.
    pub async fn close(&self) -> Result<(), ichido_ledger::Error> {
        self.for_operators().close().await
    }
}

async fn with_fallback(ledger: &Ledger, settings: &Settings) -> Result<Ledger, Failure> {
    let options = OpenOptions { clock: ledger.settings().clock.clone(), admin: None };
    let fail = |error: ichido_ledger::Error| Failure::from(error).at("ledger.fallback");
    let local = open_local(&settings.fallback, &options).map_err(fail)?;
    let settings = FallbackSettings { pause: settings.fallback_pause, ..FallbackSettings::default() };
    ledger.with_fallback(local, settings).await.map_err(fail)
}

/// Removes expired records in small steps until `stop`, unless the store does that itself.
pub async fn run_sweeper(ledger: Ledger, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(SWEEP_PAUSE) => {}
        }
        // Asked each time: a ledger that was unreachable at the start may be open by now.
        match ledger.sweeping() {
            Sweeping::ByProcess => {}
            Sweeping::ByStore => continue,
        }
        loop {
            match ledger.sweep(SWEEP_RECORDS_MAX).await {
                Ok(swept) if swept.more && !stop.is_cancelled() => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "cannot sweep the ledger; retrying later");
                    break;
                }
            }
        }
    }
}

/// The checked settings of a ledger and its fallback.
#[derive(Debug)]
pub struct Settings {
    /// The URL of the ledger. It may contain a password.
    pub url: String,
    /// How long a call to the ledger may take, with all its retries.
    pub timeout: Duration,
    /// The URL of the fallback: `memory:` or `file:`.
    pub fallback: String,
    /// How long the ledger is left alone after an outage begins, before it is tried again.
    pub fallback_pause: Duration,
}

impl Settings {
    /// The settings of a handle on this ledger.
    pub fn handle(&self) -> ichido_ledger::Settings {
        let defaults = ichido_ledger::Settings::default();
        let try_timeout = defaults.try_timeout.min(self.timeout);
        ichido_ledger::Settings { timeout: self.timeout, try_timeout, ..defaults }
    }

    /// The location of the ledger without secrets, for logs and error messages.
    pub fn location(&self) -> String {
        if let Some(directory) = self.directory() {
            return format!("file {}", directory.display());
        }
        location(&self.url)
    }

    /// Whether the ledger is part of this process: in its memory, or in a directory that it locks.
    pub fn is_local(&self) -> bool {
        self.url.starts_with("memory:") || self.url.starts_with("file:")
    }

    /// Whether the fallback survives a restart.
    pub fn has_durable_fallback(&self) -> bool {
        self.fallback.starts_with("file:")
    }

    /// The failure of a command that could not use this ledger.
    pub fn failure(&self, error: ichido_ledger::Error) -> Failure {
        // An invalid URL is not echoed: any part of it may be a secret.
        let is_valid_url = !matches!(error.kind(), ichido_ledger::Kind::Settings(_));
        let failure = Failure::from(error);
        if is_valid_url { failure.at(&self.location()) } else { failure }
    }

    /// The directory of an embedded ledger.
    pub fn directory(&self) -> Option<&Path> {
        let directory = self.url.strip_prefix("file:")?;
        Some(Path::new(directory.strip_prefix("//").unwrap_or(directory)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ichido_core::{ManualClock, MarkKey, Timestamp, mark};
    use ichido_ledger::memory::Memory;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn process_sweeps_a_store_that_does_not_sweep_itself() {
        let clock = Arc::new(ManualClock::at(Timestamp(1_000)));
        let ledger =
            Ledger::new(Arc::new(Memory::new(clock.clone(), 10)), ichido_ledger::Settings::default());
        assert_eq!(ledger.sweeping(), Sweeping::ByProcess);
        let event = ledger.mark_request(MarkKey::new("event").unwrap());
        ledger.mark(&[mark::Request { retention_ms: 1, ..event }]).await.unwrap();
        clock.advance(1);
        let sweeper = tokio::spawn(run_sweeper(ledger.clone(), CancellationToken::new()));
        tokio::time::sleep(2 * SWEEP_PAUSE).await;
        assert_eq!(ledger.sweep(10).await.unwrap().removed, 0, "already removed");
        sweeper.abort();
    }
}
