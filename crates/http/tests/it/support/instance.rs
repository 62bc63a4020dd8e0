//! Instances: a layer with its own ledger handle on a shared store.

use std::pin::Pin;
use std::sync::Arc;

use http::{Request, Response};
use ichido_core::{Key, Record, Scope};
use ichido_http::{Failure, IdempotencyLayer, Idempotent, Journal, ResponseBody, Route, Rules};
use ichido_ledger::{Backend, Ledger, Query, Settings, Summary};
use tokio::runtime::Runtime;
use tower_layer::Layer;
use tower_service::Service;

use super::client::Received;
use super::upstream::{AnyBody, Upstream};
use super::{Store, TIMEOUT, ms};

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A layer around a service.
#[derive(Clone)]
pub(crate) struct Instance {
    pub(crate) layer: IdempotencyLayer,
    pub(crate) ledger: Ledger,
    pub(crate) service: Idempotent<Upstream>,
}

impl Instance {
    /// An instance with its own ledger handle.
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

    /// An instance whose ledger has short timeouts.
    pub(crate) fn impatient(backend: Arc<dyn Backend>, route: Route, upstream: &Upstream) -> Self {
        Self::of(Ledger::new(backend, short_timeouts()), rules(route), upstream)
    }

    /// Sends a request and returns when the response has started.
    pub(crate) fn start(
        &self,
        request: Request<AnyBody>,
    ) -> Boxed<Result<Response<ResponseBody<AnyBody>>, Failure>> {
        in_time(self.service.clone().call(request))
    }

    /// Sends a request and reads the whole response. Boxed, so that the layer is compiled once and not into each test.
    pub(crate) fn send(&self, request: Request<AnyBody>) -> Boxed<Received> {
        let response = self.start(request);
        in_time(async move { Received::read(response.await.unwrap()).await.unwrap() })
    }

    /// Sends a request in a task.
    pub(crate) fn spawn(&self, request: Request<AnyBody>) -> tokio::task::JoinHandle<Received> {
        tokio::spawn(self.send(request))
    }

    /// The record of a keyed `POST /orders`.
    pub(crate) async fn record(&self, key: &str) -> Option<Record> {
        self.ledger.get(&Self::key(key)).await.unwrap()
    }

    /// All claims in the ledger.
    pub(crate) async fn claims(&self) -> Vec<Summary> {
        self.ledger.list(&Query { limit: 1000, ..Query::default() }).await.unwrap().claims
    }

    pub(crate) fn key(text: &str) -> Key {
        Key::new(Scope::new("", "POST /orders"), text).unwrap()
    }

    /// Retries until the response is something other than "in-flight".
    pub(crate) async fn send_until_settled(&self, request: impl Fn() -> Request<AnyBody>) -> Received {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let got = self.send(request()).await;
            if got.problem().as_deref() != Some("in-flight") {
                return got;
            }
            assert!(tokio::time::Instant::now() < deadline, "the request stayed in flight");
            tokio::time::sleep(ms(20)).await;
        }
    }
}

/// Simulates a process: a runtime that can be killed with everything in it.
pub(crate) struct Process {
    runtime: Runtime,
    pub(crate) instance: Instance,
}

impl Process {
    /// Starts a process with one instance.
    pub(crate) async fn start(store: &Store, route: Route, upstream: &Upstream) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        // The connections belong to the runtime and are closed with it.
        let instance = std::thread::scope(|scope| {
            let handle = runtime.handle().clone();
            scope.spawn(move || handle.block_on(Instance::new(store, route, upstream))).join().unwrap()
        });
        Self { runtime, instance }
    }

    /// Sends a request without waiting for the response.
    pub(crate) fn send(&self, request: Request<AnyBody>) {
        self.runtime.spawn(self.instance.send(request));
    }

    /// Kills the process. Nothing of it runs once this returns.
    pub(crate) async fn kill(self) {
        tokio::task::spawn_blocking(move || self.runtime.shutdown_timeout(TIMEOUT)).await.unwrap();
    }
}

/// Makes a broken test fail instead of hanging. The limit is longer than any waiter waits.
fn in_time<T>(response: impl Future<Output = T> + Send + 'static) -> Boxed<T> {
    Box::pin(async { tokio::time::timeout(2 * TIMEOUT, response).await.expect("a response in time") })
}

/// Rules with one route.
pub(crate) fn rules(route: Route) -> Rules {
    Rules { routes: vec![route], ..Rules::default() }
}

pub(crate) fn route() -> Route {
    Route::default()
}

/// Timeouts that are short, but long enough for a busy machine.
pub(crate) fn short_timeouts() -> Settings {
    Settings {
        timeout: ms(800),
        try_timeout: ms(700),
        backoff: ms(10),
        backoff_max: ms(50),
        ..Settings::default()
    }
}
