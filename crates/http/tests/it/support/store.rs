//! Where instances share their claims.

use std::sync::Arc;

use ichido_core::{Clock, SystemClock};
use ichido_ledger::file::{File, FileSettings};
use ichido_ledger::memory::Memory;
use ichido_ledger::{Backend, Ledger, OpenOptions, Settings, open_backend};
use tempfile::TempDir;

use super::BOUND;
use crate::proxy::Proxy;
use crate::servers::Server;

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
        let dir = tempfile::tempdir().unwrap();
        let file = File::open(dir.path(), FileSettings::default(), clock.clone()).unwrap();
        Self { kind: Kind::Held(Arc::new(file)), clock, _dir: Some(dir) }
    }

    pub(crate) async fn postgres() -> Self {
        Self::served(Server::postgres_with(4).await)
    }

    pub(crate) async fn redis() -> Self {
        Self::served(Server::redis().await)
    }

    pub(crate) async fn dynamodb() -> Self {
        Self::served(Server::dynamodb("ICHIDO_TEST_DYNAMODB_URL").await)
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
    pub(crate) async fn backend(&self) -> Arc<dyn Backend> {
        self.backend_at(self.clock.clone()).await
    }

    /// The same, on a node with a clock of its own.
    pub(crate) async fn backend_at(&self, clock: Arc<dyn Clock>) -> Arc<dyn Backend> {
        match &self.kind {
            Kind::Held(backend) => backend.clone(),
            Kind::Served(server) => open_backend(&server.url(), &OpenOptions { clock, admin: None })
                .await
                .expect("the server is up"),
        }
    }

    /// A handle as another instance of a service would have it.
    pub(crate) async fn ledger(&self) -> Ledger {
        Ledger::new(self.backend().await, patient())
    }

    pub(crate) async fn ledger_through(&self, proxy: &Proxy, settings: Settings) -> Ledger {
        match &self.kind {
            Kind::Held(_) => panic!("there is no server to be cut off from"),
            Kind::Served(server) => server.through(proxy, settings).await,
        }
    }
}

/// A thousand callers on a busy machine wait for each other.
fn patient() -> Settings {
    Settings { timeout: BOUND, try_timeout: BOUND, ..Settings::default() }
}
