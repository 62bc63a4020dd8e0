//! State of the claim API.

use std::sync::Arc;
use std::time::Duration;

use ichido_http::{SimilarRule, SpanSink, Tracer};
use ichido_ledger::{Ledger, StoreClock};
use ichido_similar::SimilarTexts;
use tokio::sync::Semaphore;
use tokio::time::MissedTickBehavior;

use super::event_checks::EventChecks;
use super::log_keys::LogKeys;

/// The most requests with large bodies in memory. Further ones wait.
const LARGE_BODIES_MAX: usize = 8;
/// How often the fallback checks whether an unreachable ledger is back.
const FALLBACK_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Checked settings of the claim API.
#[derive(Clone, Debug, Default)]
pub struct ClaimSettings {
    /// How event keys appear in the log.
    pub log_keys: LogKeys,
    /// How near duplicates of events are found.
    pub similar: Option<SimilarRule>,
}

/// State of the claim API.
#[derive(Clone, Debug)]
pub struct ClaimApi {
    pub(crate) ledger: Ledger,
    /// Whether the ledger is a server, which can be unreachable while this process works.
    pub(crate) is_remote: bool,
    pub(crate) event_checks: Arc<EventChecks>,
    pub(crate) large_bodies: Arc<Semaphore>,
    pub(crate) similar: Option<SimilarEvents>,
    /// Starts spans, if requests are traced.
    pub(crate) tracer: Option<Tracer>,
}

/// The recent texts of events, and which of the content is compared.
#[derive(Clone, Debug)]
pub(crate) struct SimilarEvents {
    pub(crate) rule: SimilarRule,
    pub(crate) texts: Arc<SimilarTexts>,
}

impl ClaimApi {
    /// Creates the API on a ledger, including its fallback if it has one.
    pub fn new(ledger: Ledger, settings: ClaimSettings) -> Self {
        let capabilities = ledger.capabilities();
        let similar = settings.similar.map(|rule| {
            let (clock, entropy) = (ledger.settings().clock.clone(), &*ledger.settings().entropy);
            SimilarEvents { texts: Arc::new(SimilarTexts::with_entropy(rule.options, clock, entropy)), rule }
        });
        Self {
            is_remote: capabilities.clock != StoreClock::Own,
            event_checks: Arc::new(EventChecks::new(capabilities.backend, settings.log_keys)),
            large_bodies: Arc::new(Semaphore::new(LARGE_BODIES_MAX)),
            similar,
            tracer: None,
            ledger,
        }
    }

    /// Traces requests, if there is a sink for their spans.
    pub fn traced(self, sink: Option<Arc<dyn SpanSink>>) -> Self {
        Self { tracer: sink.map(|sink| Tracer::new(sink, &self.ledger)), ..self }
    }

    /// Detects the end of an outage even when there are no requests.
    pub(crate) async fn maintain_fallback(&self) {
        let mut turns = tokio::time::interval(FALLBACK_CHECK_INTERVAL);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turns.tick().await;
            self.ledger.maintain_fallback().await;
        }
    }

    /// Hands over what the fallback granted, as far as the ledger can be reached.
    pub(crate) async fn hand_over(&self) {
        let pending = self.ledger.hand_over_now().await;
        if pending > 0 {
            tracing::warn!(
                pending,
                "ledger still unreachable at shutdown; other instances will not see these events and claims"
            );
        }
    }
}
