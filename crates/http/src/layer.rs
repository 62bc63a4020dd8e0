//! The layer and its service: which requests are claimed, which pass.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::time::Instant;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body::Body;
use ichido_ledger::{BoxError, Ledger};
use pin_project_lite::pin_project;
use tokio_util::task::TaskTracker;
use tower_layer::Layer;
use tower_service::Service;

use crate::concurrency::{Connection, Slots};
use crate::events::Retry;
use crate::failure::IntoFailure;
use crate::journal::Journal;
use crate::keyed;
use crate::keyed::prepare::passes;
use crate::metrics::{Meters, Pass, Passing, Trace};
use crate::policy::Policy;
use crate::problem::{Kind, Problem};
use crate::request_body::{Budgets, RequestBody};
use crate::response_body::AnswerBody;
use crate::rules::Rules;
use crate::shared::Shared;

/// Makes the requests to a service happen once for each key.
///
/// ```
/// # use std::convert::Infallible;
/// # use bytes::Bytes;
/// # use http::{Request, Response};
/// # use http_body_util::Full;
/// # use ichido_http::{IdempotencyLayer, RequestBody, Rules};
/// # use tower_layer::Layer;
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// #[derive(Clone)]
/// struct Orders;
/// # impl tower_service::Service<Request<RequestBody<Full<Bytes>>>> for Orders {
/// #     type Response = Response<Full<Bytes>>;
/// #     type Error = Infallible;
/// #     type Future = std::future::Ready<Result<Self::Response, Infallible>>;
/// #     fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> { std::task::Poll::Ready(Ok(())) }
/// #     fn call(&mut self, _: Request<RequestBody<Full<Bytes>>>) -> Self::Future { std::future::ready(Ok(Response::new(Full::default()))) }
/// # }
/// let ledger = ichido_ledger::open("memory:", ichido_ledger::Settings::default()).await?;
/// let layer = IdempotencyLayer::new(ledger, Rules::default());
/// let mut service = layer.layer(Orders);
/// # use tower_service::Service;
/// let order = || Request::post("/orders").header("idempotency-key", "\"k1\"").body(Full::<Bytes>::default());
/// assert!(!service.call(order()?).await?.headers().contains_key("idempotency-replayed"));
/// assert_eq!(service.call(order()?).await?.headers()["idempotency-replayed"], "true");
/// layer.drain().await;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct IdempotencyLayer {
    shared: Arc<Shared>,
    connection: Option<Connection>,
}

impl IdempotencyLayer {
    /// A layer with these rules, on this ledger.
    pub fn new(ledger: Ledger, rules: Rules) -> Self {
        Self::with(ledger, rules, None, None)
    }

    /// The same, with a ledger for routes that go on during an outage, and a journal for what an outage would lose.
    pub fn with(
        ledger: Ledger,
        rules: Rules,
        fallback: Option<Ledger>,
        journal: Option<Arc<Journal>>,
    ) -> Self {
        let chance = ledger.settings().entropy.draw();
        let shared = Shared {
            instance: format!("{}-{}", std::process::id(), hex::encode(&chance[..4])),
            fallback,
            journal,
            tasks: TaskTracker::new(),
            slots: Slots::new(&rules),
            budgets: Budgets::new(&rules),
            meters: Meters::new(&rules),
            lifetimes: rules.routes.iter().map(|route| route.retention.as_secs().into()).collect(),
            policy: Policy::new(&rules),
            ledger,
            rules,
        };
        Self { shared: Arc::new(shared), connection: None }
    }

    /// The same layer for the requests of one connection, which get a share of the work under way
    /// ([`Rules::inflight_max_per_connection`]). A server that makes a service for each connection uses this.
    pub fn for_connection(&self) -> Self {
        Self { shared: self.shared.clone(), connection: Some(self.shared.slots.connection()) }
    }

    /// Waits for the keyed work under way. New requests are still taken: stop those first.
    pub async fn drain(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    /// What notes of events call this instance: its process, and chance, for processes in containers are alike.
    pub fn instance(&self) -> &str {
        &self.shared.instance
    }

    /// How much keyed work is under way.
    pub fn in_flight(&self) -> usize {
        self.shared.tasks.len()
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotent<S>;

    fn layer(&self, inner: S) -> Idempotent<S> {
        Idempotent { inner, shared: self.shared.clone(), connection: self.connection.clone() }
    }
}

/// A service behind the layer.
#[derive(Clone, Debug)]
pub struct Idempotent<S> {
    inner: S,
    shared: Arc<Shared>,
    connection: Option<Connection>,
}

impl<S, B, A> Service<Request<B>> for Idempotent<S>
where
    S: Service<Request<RequestBody<B>>, Response = Response<A>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: IntoFailure + Send + 'static,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError> + Send,
    A: Body<Data = Bytes> + Unpin + Send + 'static,
    A::Error: Into<BoxError> + Send,
{
    type Response = Response<AnswerBody<A>>;
    type Error = S::Error;
    type Future = Answering<S::Future, S::Error, A>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let rules = &self.shared.rules;
        let route = rules.route(&parts.method, parts.uri.path());
        if rules.evades_signature(&parts.method, parts.uri.path(), route) {
            let why = "the path is another spelling of one whose requests must be signed";
            let response = self.refuse(&parts.method, Problem::new(Kind::RequestRefused, why));
            return Answering::Said { response: Some(response) };
        }
        let Some(route) = route else {
            if let Some(policy) = self.shared.policy.answer(&parts) {
                return Answering::Said { response: Some(policy) };
            }
            let why = if parts.method.is_safe() { Pass::Safe } else { Pass::Unmatched };
            return self.pass(why, parts, body);
        };
        if passes(&self.shared.rules.routes[route], &parts.headers) {
            return self.pass(Pass::Unkeyed(route), parts, body);
        }
        // The service that was asked whether it is ready is the one that is called.
        let next = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, next);
        let trace = Trace {
            started: Instant::now(),
            route,
            method: parts.method.clone(),
            index: None,
            attempt: 0,
            degraded: false,
            retry: Retry::of(self.shared.rules.routes[route].preset, &parts.headers),
        };
        let (shared, connection) = (self.shared.clone(), self.connection.clone());
        Answering::Keyed { future: Box::pin(keyed::keyed(shared, connection, inner, trace, parts, body)) }
    }
}

impl<S> Idempotent<S> {
    /// Refuses a request that is not even matched against the routes: counts it, logs it, and makes the answer.
    pub fn refuse<A>(&self, method: &Method, problem: Problem) -> Response<AnswerBody<A>> {
        self.shared.meters.refuse(method, &problem);
        problem.into_response(&self.shared.rules.policy_path)
    }

    fn pass<B, A>(&mut self, why: Pass, parts: Parts, body: B) -> Answering<S::Future, S::Error, A>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<A>>,
    {
        let passing = self.shared.meters.pass(why, &parts);
        let request = Request::from_parts(parts, RequestBody::passed(body));
        Answering::Passed { future: self.inner.call(request), passing }
    }
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

pin_project! {
    /// The future of an answer.
    #[project = AnsweringProj]
    #[allow(missing_docs, reason = "opaque to callers")]
    pub enum Answering<F, E, A> {
        #[doc(hidden)]
        Passed { #[pin] future: F, passing: Option<Passing> },
        #[doc(hidden)]
        Said { response: Option<Response<AnswerBody<A>>> },
        #[doc(hidden)]
        Keyed { future: Boxed<Result<Response<AnswerBody<A>>, E>> },
    }
}

impl<F, E, A> Future for Answering<F, E, A>
where
    F: Future<Output = Result<Response<A>, E>>,
{
    type Output = Result<Response<AnswerBody<A>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            AnsweringProj::Passed { future, passing } => {
                let answer = ready!(future.poll(cx));
                if let Some(passing) = passing.take() {
                    passing.end(answer.as_ref().ok().map(Response::status));
                }
                Poll::Ready(Ok(answer?.map(AnswerBody::passed)))
            }
            AnsweringProj::Said { response } => match response.take() {
                Some(response) => Poll::Ready(Ok(response)),
                None => Poll::Pending,
            },
            AnsweringProj::Keyed { future } => future.as_mut().poll(cx),
        }
    }
}
