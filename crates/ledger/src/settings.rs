//! What the handle needs to know, and its defaults.

use std::sync::Arc;
use std::time::Duration;

use ichido_core::{Clock, Entropy, SystemClock, SystemEntropy};

/// The settings of a handle.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The longest a call may take, all its tries together.
    pub timeout: Duration,
    /// The longest that one try may take: a lost reply is noticed after this, and asked for again.
    pub try_timeout: Duration,
    /// The first pause between two tries; it doubles, and chance shortens it.
    pub backoff: Duration,
    /// The longest pause between two tries.
    pub backoff_max: Duration,
    /// The lease of a claim, unless the caller says otherwise.
    pub lease_ms: u64,
    /// How long after its grant a claim is renewed at most.
    pub lease_ceiling: Duration,
    /// How long an outcome is kept, unless the caller says otherwise.
    pub retention_ms: u64,
    /// How long a mark is kept, unless the caller says otherwise.
    pub mark_retention_ms: u64,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where chance comes from.
    pub entropy: Arc<dyn Entropy>,
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
        }
    }
}
