//! Settings of the handle, and their defaults.

use std::sync::Arc;
use std::time::Duration;

use ichido_core::{Clock, Entropy, SystemClock, SystemEntropy};

use crate::observer::Observer;

/// Settings of a handle.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long a call may take, including all tries.
    pub timeout: Duration,
    /// How long one try may take. A lost reply is noticed, and the call retried, after this time.
    pub try_timeout: Duration,
    /// The pause after the first failed try. It doubles with each try, and jitter shortens it.
    pub backoff: Duration,
    /// The longest pause between two tries.
    pub backoff_max: Duration,
    /// The lease of a claim, unless the caller chooses another.
    pub lease_ms: u64,
    /// For how long after its grant a claim is renewed at most.
    pub lease_ceiling: Duration,
    /// How long an outcome is kept, unless the caller chooses otherwise.
    pub retention_ms: u64,
    /// How long a mark is kept, unless the caller chooses otherwise.
    pub mark_retention_ms: u64,
    /// The source of time.
    pub clock: Arc<dyn Clock>,
    /// The source of randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Gets every decision.
    pub observer: Option<Arc<dyn Observer>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(5),
            try_timeout: Duration::from_millis(1500),
            backoff: Duration::from_millis(25),
            backoff_max: Duration::from_secs(1),
            lease_ms: 30_000,
            lease_ceiling: Duration::from_secs(600),
            retention_ms: 86_400_000,
            mark_retention_ms: 6 * 3_600_000,
            clock: Arc::new(SystemClock::default()),
            entropy: Arc::new(SystemEntropy),
            observer: None,
        }
    }
}
