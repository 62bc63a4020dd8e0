//! A ledger that keeps answering while its primary is unavailable: a real Redis behind a proxy, with a fallback in
//! memory.

mod claims;
mod marks;
mod pending_handover;
mod probes;
mod switching;
mod telemetry;

use std::sync::Arc;
use std::time::Duration;

use ichido_core::mark::Mark;
use ichido_core::{Claim, ClaimRequest, Key, MarkKey, SystemClock};
use ichido_ledger::memory::Memory;
use ichido_ledger::{Claimed, FallbackSettings, Ledger, LocalBackend, Marked, Settings};
use ichido_testkit::faulty_backend::FaultyBackend;
use ichido_testkit::ledger_server::{LedgerServer, unique};
use ichido_testkit::tcp_proxy::{Fault, TcpProxy};
use ichido_testkit::wait::until;

use self::telemetry::{Counts, Log};

/// A loaded machine is slow, a broken ledger never finishes.
const BOUND: Duration = Duration::from_secs(60);

/// Two instances of a service: one reaches the primary through a proxy and has a fallback, the other reaches it
/// directly.
struct Scene {
    proxy: TcpProxy,
    ledger: Ledger,
    other: Ledger,
    counts: Counts,
}

impl Scene {
    async fn open(pause: Duration) -> Scene {
        Self::open_on(LedgerServer::redis().await, pause).await
    }

    async fn open_on(server: LedgerServer, pause: Duration) -> Scene {
        let proxy = server.proxy();
        let counts = Counts::default();
        let settings = Settings { timeout: Duration::from_secs(2), ..Settings::default() };
        let primary = server.through(&proxy, settings).await;
        let ledger = counts.collect(with_memory(&primary, pause)).await;
        Scene { proxy, ledger, other: server.instance().await, counts }
    }

    /// The primary becomes unavailable, and the instance has noticed.
    async fn outage(&self) {
        self.proxy.set(Fault::Refuse);
        let marked = mark(&self.ledger, &event()).await;
        assert!(marked.degraded, "{marked:?}");
    }

    /// The primary becomes available again, and the instance has noticed.
    async fn recovery(&self) {
        self.proxy.set(Fault::None);
        until("the recovery is noticed", || async { !mark(&self.ledger, &event()).await.degraded }).await;
    }
}

/// A primary in memory that fails on demand, fast enough for thousands of switches.
fn flaky_primary(seed: u64) -> Arc<FaultyBackend> {
    let memory = Memory::new(Arc::new(SystemClock::default()), 100_000);
    FaultyBackend::with_pauses(Arc::new(memory), seed)
}

/// The same ledger with a fallback in memory.
async fn with_memory(primary: &Ledger, pause: Duration) -> Ledger {
    Log::install();
    let local = Memory::new(Arc::new(SystemClock::default()), 2_000_000);
    with_local(primary, Arc::new(local), pause).await
}

async fn with_local(primary: &Ledger, local: Arc<dyn LocalBackend>, pause: Duration) -> Ledger {
    let settings = FallbackSettings { pause, ..FallbackSettings::default() };
    primary.with_fallback(local, settings).await.expect("the local ledger can be read")
}

const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(600);

fn event() -> MarkKey {
    MarkKey::new(format!("event-{}", unique())).unwrap()
}

fn key() -> Key {
    Key::unscoped(format!("key-{}", unique())).unwrap()
}

async fn mark(ledger: &Ledger, event: &MarkKey) -> Marked {
    ledger
        .mark(&[ledger.mark_request(event.clone())])
        .await
        .expect("marks are answered, with or without the primary")
        .remove(0)
}

fn is_new(marked: &Marked) -> bool {
    marked.mark == Mark::New
}

async fn ask(ledger: &Ledger, key: &Key) -> Claimed {
    ledger
        .claim(&ledger.request(key.clone()))
        .await
        .expect("claims are answered, with or without the primary")
}

async fn granted(ledger: &Ledger, request: &ClaimRequest) -> (ichido_core::Grant, bool) {
    let claimed = ledger.claim(request).await.expect("claims are answered, with or without the primary");
    let Claim::Granted(grant) = claimed.claim else { panic!("expected a grant, got {claimed:?}") };
    (grant, claimed.degraded)
}
