//! Where instances share their claims.

use std::pin::Pin;
use std::sync::Arc;

use ichido_core::{Clock, SystemClock};
use ichido_ledger::file::{File, FileSettings};
use ichido_ledger::memory::Memory;
use ichido_ledger::{Backend, Ledger, OpenOptions, Settings, open_backend};
use tempfile::TempDir;
use tokio::time::Instant;

use super::BOUND;
use crate::lossy_proxy::Proxy;
use crate::servers::Server;

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store of this test's own.
pub(crate) struct Store {
    kind: Kind,
    /// The time of a store that has no server of its own.
    clock: Arc<dyn Clock>,
    _dir: Option<TempDir>,
}

enum Kind {
    /// One process holds it: instances are handles on the one backend.
    Held(Arc<dyn Backend>),
    /// Each instance has connections of its own.
    Served(Server),
}

impl Store {
    pub(crate) fn memory() -> Self {
        Self::memory_of(1_000_000)
    }

    pub(crate) fn memory_of(bound: usize) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        Self { kind: Kind::Held(Arc::new(Memory::new(clock.clone(), bound))), clock, _dir: None }
    }

    pub(crate) fn file() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        // What survives a crash is for the ledger's own tests; here a disk would only be waited for.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let file = File::open(dir.path(), FileSettings::default(), clock.clone()).unwrap();
        Self { kind: Kind::Held(Arc::new(file)), clock, _dir: Some(dir) }
    }

    // What opens a store is boxed, so that its drivers are compiled once and not into each test.

    pub(crate) fn postgres() -> Boxed<'static, Self> {
        Box::pin(async { Self::served(Server::postgres_with(4).await) })
    }

    pub(crate) fn redis() -> Boxed<'static, Self> {
        Box::pin(async { Self::served(Server::redis().await) })
    }

    pub(crate) fn dynamodb() -> Boxed<'static, Self> {
        Box::pin(async { Self::served(Server::dynamodb("ICHIDO_TEST_DYNAMODB_URL").await) })
    }

    fn served(server: Server) -> Self {
        Self { kind: Kind::Served(server), clock: Arc::new(SystemClock::default()), _dir: None }
    }

    pub(crate) fn proxy(&self) -> Proxy {
        match &self.kind {
            Kind::Held(_) => panic!("there is no server to be cut off from"),
            Kind::Served(server) => server.proxy(),
        }
    }

    /// What an instance of its own asks.
    pub(crate) fn backend(&self) -> Boxed<'_, Arc<dyn Backend>> {
        self.backend_at(self.clock.clone())
    }

    /// The same, on a node with a clock of its own.
    pub(crate) fn backend_at(&self, clock: Arc<dyn Clock>) -> Boxed<'_, Arc<dyn Backend>> {
        Box::pin(async move {
            match &self.kind {
                Kind::Held(backend) => backend.clone(),
                Kind::Served(server) => {
                    let options = OpenOptions { clock, admin: None };
                    connected(&server.url(), &options).await
                }
            }
        })
    }

    /// A handle as another instance of a service would have it.
    pub(crate) async fn ledger(&self) -> Ledger {
        Ledger::new(self.backend().await, patient())
    }

    pub(crate) fn ledger_through<'a>(&'a self, proxy: &'a Proxy, settings: Settings) -> Boxed<'a, Ledger> {
        Box::pin(async move {
            match &self.kind {
                Kind::Held(_) => panic!("there is no server to be cut off from"),
                Kind::Served(server) => server.through(proxy, settings).await,
            }
        })
    }
}

/// A server that is up may be slow to answer while a thousand callers keep the machine busy.
async fn connected(url: &str, options: &OpenOptions) -> Arc<dyn Backend> {
    let deadline = Instant::now() + BOUND;
    loop {
        match open_backend(url, options).await {
            Ok(backend) => return backend,
            Err(error) => assert!(error.is_transient() && Instant::now() < deadline, "{error:?}"),
        }
    }
}

/// A thousand callers on a busy machine wait for each other.
fn patient() -> Settings {
    Settings { timeout: BOUND, try_timeout: BOUND, ..Settings::default() }
}
