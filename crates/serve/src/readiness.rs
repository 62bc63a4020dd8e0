//! Readiness: whether each component of the process can do its work.
//!
//! `/readyz` needs no token. So a result says what is wrong and nothing more, and results are cached for a moment:
//! frequent requests cost nothing.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use ichido_ledger::Ledger;
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
const CACHE_TTL: Duration = Duration::from_millis(500);

/// Checks one dependency or component. The error says what is wrong.
pub type Probe = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Who sees the result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// `/readyz` and operators: the process is not ready while the probe fails.
    Readyz,
    /// Operators only: the process is ready even if the probe fails.
    Operators,
}

/// The probes of a process.
#[derive(Clone, Default)]
pub struct Readiness {
    probes: Vec<(&'static str, Audience, Probe)>,
    cache: Arc<Mutex<Option<Cached>>>,
}

/// The last results for `/readyz`, and when they were obtained.
type Cached = (Instant, Vec<ProbeResult>);

/// The result of one probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProbeResult {
    /// The name of the probe.
    pub name: &'static str,
    /// Whether the probe succeeded.
    pub ok: bool,
    /// What is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl Readiness {
    /// Readiness with one probe: the ledger can be used.
    pub fn for_ledger(ledger: &Ledger) -> Self {
        let ledger = ledger.clone();
        let probe: Probe = Arc::new(move || {
            let ledger = ledger.clone();
            Box::pin(async move { ledger.check().await.map(drop).map_err(|error| error.to_string()) })
        });
        Self::default().with("ledger", Audience::Readyz, probe)
    }

    /// Adds a probe.
    #[must_use]
    pub fn with(mut self, name: &'static str, audience: Audience, probe: Probe) -> Self {
        self.probes.push((name, audience, probe));
        self
    }

    /// The names of all probes, in the order in which they were added.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.probes.iter().map(|(name, ..)| *name)
    }

    /// Runs all probes, for operators.
    pub async fn probe_all(&self) -> Vec<ProbeResult> {
        let (mut results, others) = tokio::join!(self.probe_readyz(), self.run_probes(Audience::Operators));
        results.extend(others);
        results
    }

    /// Runs the probes that decide `/readyz`, concurrently, or returns their cached results.
    pub async fn probe_readyz(&self) -> Vec<ProbeResult> {
        // Locked while the probes run: requests that arrive meanwhile share the results.
        let mut cache = self.cache.lock().await;
        if let Some((at, results)) = &*cache
            && at.elapsed() < CACHE_TTL
        {
            return results.clone();
        }
        let results = self.run_probes(Audience::Readyz).await;
        for ProbeResult { name, detail, .. } in results.iter().filter(|result| !result.ok) {
            tracing::warn!(probe = name, detail, "not ready");
        }
        *cache = Some((Instant::now(), results.clone()));
        results
    }

    async fn run_probes(&self, audience: Audience) -> Vec<ProbeResult> {
        let selected = self.probes.iter().filter(|(_, of, _)| *of == audience);
        join_all(selected.map(|(name, _, probe)| run_probe(name, probe()))).await
    }
}

async fn run_probe(name: &'static str, probe: BoxFuture<'static, Result<(), String>>) -> ProbeResult {
    let result = timeout(PROBE_TIMEOUT, probe).await;
    let result = result.unwrap_or_else(|_| Err(format!("no response within {} s", PROBE_TIMEOUT.as_secs())));
    ProbeResult { name, ok: result.is_ok(), detail: result.err() }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.probes.iter().map(|(name, ..)| name)).finish()
    }
}
