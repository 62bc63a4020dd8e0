//! What every process that serves does for its ledger.

use std::path::Path;
use std::time::Duration;

use ichido_ledger::{FallbackSettings, Ledger, OpenOptions, Sweeping, open_local};
use ichido_settings::location;
use tokio_util::sync::CancellationToken;

use crate::Failure;

/// Records that one step of the sweep removes, and the pause between two sweeps.
const SWEEP_STEP: usize = 1_000;
const SWEEP_PAUSE: Duration = Duration::from_secs(30);

/// The ledger of a process, and the same with a local one for while it is out. One of each for all parts of a process:
/// each part knows what another answered.
#[derive(Clone, Debug)]
pub struct Shared {
    pub ledger: Ledger,
    fallback: Option<Ledger>,
    is_local: bool,
}

impl Shared {
    /// `is_wanted`: some route of a gateway asks for a fallback. `has_api`: the process serves the claim API.
    ///
    /// What an earlier run owes the ledger is handed over here, before anything is served.
    pub async fn new(ledger: Ledger, of: &Settings, is_wanted: bool, has_api: bool) -> Result<Self, Failure> {
        let is_local = of.is_local();
        let fallback = match is_wanted || (has_api && !is_local) {
            true => Some(with_fallback(&ledger, of).await?),
            false => None,
        };
        Ok(Self { ledger, fallback, is_local })
    }

    /// For routes that ask for a fallback.
    pub fn for_routes(&self) -> Option<Ledger> {
        self.fallback.clone()
    }

    /// For the claim API. An embedded ledger is in reach as long as this process is: it needs no other beside it.
    pub fn for_api(&self) -> Ledger {
        self.fallback.clone().filter(|_| !self.is_local).unwrap_or_else(|| self.ledger.clone())
    }

    /// For operators: it includes the claims that this process granted while the ledger was out.
    pub fn for_operators(&self) -> Ledger {
        self.fallback.clone().unwrap_or_else(|| self.ledger.clone())
    }

    /// Lets go of both.
    pub async fn close(&self) -> Result<(), ichido_ledger::Error> {
        self.for_operators().close().await
    }
}

async fn with_fallback(ledger: &Ledger, of: &Settings) -> Result<Ledger, Failure> {
    let options = OpenOptions { clock: ledger.settings().clock.clone(), admin: None };
    let fail = |error: ichido_ledger::Error| Failure::from(error).at("ledger.fallback");
    let local = open_local(&of.fallback, &options).map_err(fail)?;
    let settings = FallbackSettings { pause: of.fallback_pause, ..FallbackSettings::default() };
    ledger.with_fallback(local, settings).await.map_err(fail)
}

/// Removes expired records a little at a time, unless the store does that itself.
pub async fn sweep(ledger: Ledger, stop: CancellationToken) {
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
            match ledger.sweep(SWEEP_STEP).await {
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

/// Where the ledger is, and what answers while it cannot be reached.
#[derive(Debug)]
pub struct Settings {
    pub url: String,
    pub timeout: Duration,
    pub fallback: String,
    pub fallback_pause: Duration,
}

impl Settings {
    /// The settings of a handle on this ledger.
    pub fn handle(&self) -> ichido_ledger::Settings {
        let defaults = ichido_ledger::Settings::default();
        let try_timeout = defaults.try_timeout.min(self.timeout);
        ichido_ledger::Settings { timeout: self.timeout, try_timeout, ..defaults }
    }

    /// Where the ledger is, for people.
    pub fn place(&self) -> String {
        if let Some(dir) = self.dir() {
            return format!("file {}", dir.display());
        }
        location(&self.url)
    }

    /// Whether the ledger lives in this process: in its memory, or in a directory that it holds.
    pub fn is_local(&self) -> bool {
        self.url.starts_with("memory:") || self.url.starts_with("file:")
    }

    /// Whether the fallback remembers across a restart what it answered.
    pub fn has_lasting_fallback(&self) -> bool {
        self.fallback.starts_with("file:")
    }

    /// How a command ends that failed on this ledger.
    pub fn failed(&self, error: ichido_ledger::Error) -> Failure {
        // A URL that is not understood is not repeated: nobody knows what is in it.
        let understood = !matches!(error.kind(), ichido_ledger::Kind::Settings(_));
        let failure = Failure::from(error);
        if understood { failure.at(&self.place()) } else { failure }
    }

    /// The directory of an embedded ledger.
    pub fn dir(&self) -> Option<&Path> {
        let dir = self.url.strip_prefix("file:")?;
        Some(Path::new(dir.strip_prefix("//").unwrap_or(dir)))
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
        let sweeping = tokio::spawn(sweep(ledger.clone(), CancellationToken::new()));
        tokio::time::sleep(2 * SWEEP_PAUSE).await;
        assert_eq!(ledger.sweep(10).await.unwrap().removed, 0, "it is gone already");
        sweeping.abort();
    }
}
