//! Stores that instances share.

use std::pin::Pin;
use std::sync::Arc;

use ichido_core::{Clock, SystemClock};
use ichido_ledger::file::{File, FileSettings};
use ichido_ledger::memory::Memory;
use ichido_ledger::{Backend, Ledger, OpenOptions, Settings, open_backend};
use ichido_testkit::ledger_server::LedgerServer;
use ichido_testkit::tcp_proxy::TcpProxy;
use tempfile::TempDir;
use tokio::time::Instant;

use super::TIMEOUT;

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store for one test.
pub(crate) struct Store {
    kind: Kind,
    /// The clock of an embedded store.
    clock: Arc<dyn Clock>,
    _dir: Option<TempDir>,
}

enum Kind {
    /// One backend, which all instances share.
    Embedded(Arc<dyn Backend>),
    /// A server, to which each instance has its own connections.
    Server(LedgerServer),
}

impl Store {
    pub(crate) fn memory() -> Self {
        Self::memory_of(1_000_000)
    }

    pub(crate) fn memory_of(capacity: usize) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        Self { kind: Kind::Embedded(Arc::new(Memory::new(clock.clone(), capacity))), clock, _dir: None }
    }

    pub(crate) fn file() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        // In memory if possible: durability is for the ledger's own tests.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let file = File::open(dir.path(), FileSettings::default(), clock.clone()).unwrap();
        Self { kind: Kind::Embedded(Arc::new(file)), clock, _dir: Some(dir) }
    }

    // These futures are boxed, so that the database drivers are compiled once and not into each test.

    pub(crate) fn postgres() -> Boxed<'static, Self> {
        Box::pin(async { Self::served(LedgerServer::postgres_with(4).await) })
    }

    pub(crate) fn redis() -> Boxed<'static, Self> {
        Box::pin(async { Self::served(LedgerServer::redis().await) })
    }

    pub(crate) fn dynamodb() -> Boxed<'static, Self> {
        Box::pin(async { Self::served(LedgerServer::dynamodb("ICHIDO_TEST_DYNAMODB_URL").await) })
    }

    fn served(server: LedgerServer) -> Self {
        Self { kind: Kind::Server(server), clock: Arc::new(SystemClock::default()), _dir: None }
    }

    pub(crate) fn proxy(&self) -> TcpProxy {
        match &self.kind {
            Kind::Embedded(_) => panic!("an embedded store has no server"),
            Kind::Server(server) => server.proxy(),
        }
    }

    /// A backend for one instance.
    pub(crate) fn backend(&self) -> Boxed<'_, Arc<dyn Backend>> {
        self.backend_at(self.clock.clone())
    }

    /// A backend for one instance with this clock.
    pub(crate) fn backend_at(&self, clock: Arc<dyn Clock>) -> Boxed<'_, Arc<dyn Backend>> {
        Box::pin(async move {
            match &self.kind {
                Kind::Embedded(backend) => backend.clone(),
                Kind::Server(server) => {
                    let options = OpenOptions { clock, admin: None };
                    connect(&server.url(), &options).await
                }
            }
        })
    }

    /// A ledger for one instance.
    pub(crate) async fn ledger(&self) -> Ledger {
        Ledger::new(self.backend().await, long_timeouts())
    }

    pub(crate) fn ledger_through<'a>(&'a self, proxy: &'a TcpProxy, settings: Settings) -> Boxed<'a, Ledger> {
        Box::pin(async move {
            match &self.kind {
                Kind::Embedded(_) => panic!("an embedded store has no server"),
                Kind::Server(server) => server.through(proxy, settings).await,
            }
        })
    }
}

/// Connects to a server, which may be slow while a thousand callers keep the machine busy.
async fn connect(url: &str, options: &OpenOptions) -> Arc<dyn Backend> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match open_backend(url, options).await {
            Ok(backend) => return backend,
            Err(error) => assert!(error.is_transient() && Instant::now() < deadline, "{error:?}"),
        }
    }
}

/// Long timeouts, because a thousand callers on a busy machine wait for each other.
fn long_timeouts() -> Settings {
    Settings { timeout: TIMEOUT, try_timeout: TIMEOUT, ..Settings::default() }
}
