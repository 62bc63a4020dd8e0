//! `[ledger]`: which ledger a process uses, and what replaces it during an outage.

use std::time::Duration;

use ichido_settings::Invalid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ledger::Settings;

/// The section as it was written.
#[derive(Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawLedger {
    /// `memory:`, `file:DIR`, `postgres://…`, `redis://…`, `rediss://…` or `dynamodb://TABLE`.
    #[schemars(extend("x-env" = "ICHIDO_LEDGER_URL", "x-url" = true))]
    url: String,
    /// How long a call to the ledger may take, retries included, in milliseconds.
    #[schemars(range(min = 1, max = 600_000), extend("x-env" = "ICHIDO_LEDGER_TIMEOUT_MS"))]
    timeout_ms: u64,
    /// The local ledger that answers while the ledger is unavailable: `memory:` or `file:DIR`. Only `file:DIR` survives a crash.
    #[schemars(extend("x-env" = "ICHIDO_LEDGER_FALLBACK"))]
    fallback: String,
    /// How long to wait before an unavailable ledger is tried again, in seconds.
    #[schemars(range(min = 1, max = 86_400), extend("x-env" = "ICHIDO_LEDGER_FALLBACK_SECONDS"))]
    fallback_seconds: u64,
}

impl Default for RawLedger {
    fn default() -> Self {
        Self {
            url: "file:data/ledger".to_owned(),
            timeout_ms: 5_000,
            fallback: "memory:".to_owned(),
            fallback_seconds: 60,
        }
    }
}

/// The URL may contain a password.
impl std::fmt::Debug for RawLedger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawLedger").finish_non_exhaustive()
    }
}

impl RawLedger {
    /// Checks the section.
    pub fn check(self) -> Result<Settings, Invalid> {
        // A fallback that can be unavailable itself is no fallback.
        if !self.fallback.starts_with("memory:") && !self.fallback.starts_with("file:") {
            return Err(Invalid::new(
                "ledger.fallback",
                "must be memory: or file:DIR, because a fallback is local",
            ));
        }
        Ok(Settings {
            url: self.url,
            timeout: Duration::from_millis(self.timeout_ms),
            fallback: self.fallback,
            fallback_pause: Duration::from_secs(self.fallback_seconds),
        })
    }
}
