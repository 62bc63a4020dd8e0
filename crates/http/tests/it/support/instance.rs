//! Instances of a service: a layer with a handle of its own on a shared store.

use std::pin::Pin;
use std::sync::Arc;

use http::{Request, Response};
use ichido_core::{Key, Record, Scope};
use ichido_http::{Failure, IdempotencyLayer, Idempotent, Journal, ResponseBody, Route, Rules};
use ichido_ledger::{Backend, Ledger, Query, Settings, Summary};
use tokio::runtime::Runtime;
use tower_layer::Layer;
use tower_service::Service;

use super::client::Got;
use super::upstream::{AnyBody, Upstream};
use super::{BOUND, Store, ms};

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// One instance.
#[derive(Clone)]
pub(crate) struct Instance {
    pub(crate) layer: IdempotencyLayer,
    pub(crate) ledger: Ledger,
    pub(crate) service: Idempotent<Upstream>,
}

impl Instance {
    /// An instance with a handle of its own.
    pub(crate) async fn new(store: &Store, route: Route, upstream: &Upstream) -> Self {
        Self::of(store.ledger().await, rules(route), upstream)
    }

    pub(crate) fn of(ledger: Ledger, rules: Rules, upstream: &Upstream) -> Self {
        Self::with(ledger, rules, None, None, upstream)
    }

    pub(crate) fn with(
        ledger: Ledger,
        rules: Rules,
        fallback: Option<Ledger>,
        journal: Option<Arc<Journal>>,
        upstream: &Upstream,
    ) -> Self {
        let layer = IdempotencyLayer::with(ledger.clone(), rules, fallback, journal);
        let service = layer.layer(upstream.clone());
        Self { layer, ledger, service }
    }

    /// An instance whose ledger gives up soon.
    pub(crate) fn hasty(backend: Arc<dyn Backend>, route: Route, upstream: &Upstream) -> Self {
        Self::of(Ledger::new(backend, quick()), rules(route), upstream)
    }

    /// The beginning of the answer.
    pub(crate) fn begin(
        &self,
        request: Request<AnyBody>,
    ) -> Boxed<Result<Response<ResponseBody<AnyBody>>, Failure>> {
        in_time(self.service.clone().call(request))
    }

    /// The whole answer. Boxed, so that the compiler sees the whole layer once and not in each test.
    pub(crate) fn send(&self, request: Request<AnyBody>) -> Boxed<Got> {
        let answering = self.begin(request);
        in_time(async move { Got::read(answering.await.unwrap()).await.unwrap() })
    }

    /// Sends in a task of its own.
    pub(crate) fn spawn(&self, request: Request<AnyBody>) -> tokio::task::JoinHandle<Got> {
        tokio::spawn(self.send(request))
    }

    /// What the ledger remembers of a keyed `POST /orders`.
    pub(crate) async fn record(&self, key: &str) -> Option<Record> {
        self.ledger.get(&Self::key(key)).await.unwrap()
    }

    /// Everything that the ledger remembers.
    pub(crate) async fn listed(&self) -> Vec<Summary> {
        self.ledger.list(&Query { limit: 1000, ..Query::default() }).await.unwrap().claims
    }

    pub(crate) fn key(text: &str) -> Key {
        Key::new(Scope::new("", "POST /orders"), text).unwrap()
    }

    /// Sends again and again until the answer is another one than "in flight".
    pub(crate) async fn send_until_settled(&self, request: impl Fn() -> Request<AnyBody>) -> Got {
        let deadline = tokio::time::Instant::now() + BOUND;
        loop {
            let got = self.send(request()).await;
            if got.problem().as_deref() != Some("in-flight") {
                return got;
            }
            assert!(tokio::time::Instant::now() < deadline, "it is in flight for ever");
            tokio::time::sleep(ms(20)).await;
        }
    }
}

/// A process of its own, as far as that goes: a runtime that can be killed with everything in it.
pub(crate) struct Process {
    runtime: Runtime,
    pub(crate) instance: Instance,
}

impl Process {
    /// Starts a process with one instance.
    pub(crate) async fn start(store: &Store, route: Route, upstream: &Upstream) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        // Its connections are its own, and die with it.
        let instance = std::thread::scope(|scope| {
            let handle = runtime.handle().clone();
            scope.spawn(move || handle.block_on(Instance::new(store, route, upstream))).join().unwrap()
        });
        Self { runtime, instance }
    }

    /// Sends a request whose answer nobody waits for.
    pub(crate) fn send(&self, request: Request<AnyBody>) {
        self.runtime.spawn(self.instance.send(request));
    }

    /// Ends it, whatever it was doing. When this returns, nothing of it runs any more.
    pub(crate) async fn kill(self) {
        tokio::task::spawn_blocking(move || self.runtime.shutdown_timeout(BOUND)).await.unwrap();
    }
}

/// Longer than any waiter waits: a test that is broken fails, and does not hang.
fn in_time<T>(answering: impl Future<Output = T> + Send + 'static) -> Boxed<T> {
    Box::pin(async { tokio::time::timeout(2 * BOUND, answering).await.expect("an answer") })
}

/// Rules of one route.
pub(crate) fn rules(route: Route) -> Rules {
    Rules { routes: vec![route], ..Rules::default() }
}

pub(crate) fn route() -> Route {
    Route::default()
}

/// Settings of a ledger that gives up soon, but not for a busy machine.
pub(crate) fn quick() -> Settings {
    Settings {
        timeout: ms(800),
        try_timeout: ms(700),
        backoff: ms(10),
        backoff_max: ms(50),
        ..Settings::default()
    }
}
