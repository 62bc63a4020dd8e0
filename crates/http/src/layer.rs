//! The tower layer and its service: decides which requests are claimed and which pass through.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response};
use http_body::Body;
use ichido_ledger::{BoxError, Ledger};
use ichido_similar::SimilarTexts;
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tower_layer::Layer;
use tower_service::Service;

use crate::concurrency::{ConcurrencyLimits, ConnectionLimit};
use crate::event_retry::EventRetry;
use crate::failure::IntoFailure;
use crate::journal::Journal;
use crate::keyed::{self, passes_without_key};
use crate::metrics::{Metrics, PassReason, PassedRequest, Trace};
use crate::policy::Policy;
use crate::problem::{Kind, Problem};
use crate::request_body::{Budgets, RequestBody};
use crate::request_id;
use crate::response_body::ResponseBody;
use crate::rules::{Route, Rules};
use crate::shared::Shared;
use crate::spans::{ActiveSpan, SpanSink, Tracer};
use crate::trace_context::TraceContext;

/// Runs each request to a service once per key.
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
    connection: Option<ConnectionLimit>,
}

impl IdempotencyLayer {
    /// Creates a layer with these rules on this ledger.
    pub fn new(ledger: Ledger, rules: Rules) -> Self {
        Self::with(ledger, rules, None, None)
    }

    /// Creates a layer with a fallback ledger and a completion journal. Routes with [`Outage::Fallback`] use the fallback
    /// ledger; the journal keeps the completions that an outage would lose.
    ///
    /// [`Outage::Fallback`]: crate::Outage::Fallback
    pub fn with(
        ledger: Ledger,
        rules: Rules,
        fallback: Option<Ledger>,
        journal: Option<Arc<Journal>>,
    ) -> Self {
        let random = ledger.settings().entropy.draw();
        let shared = Shared {
            instance: format!("{}-{}", std::process::id(), hex::encode(&random[..4])),
            fallback,
            journal,
            tasks: TaskTracker::new(),
            limits: ConcurrencyLimits::new(&rules),
            budgets: Budgets::new(&rules),
            metrics: Metrics::new(&rules),
            lifetimes: lifetimes(&rules),
            policy: Policy::new(&rules),
            tracer: None,
            similar: similar_texts(&rules, &ledger, None),
            ledger,
            rules,
        };
        Self { shared: Arc::new(shared), connection: None }
    }

    /// Returns this layer for requests that are traced. Each one becomes a span, unless its `traceparent` says otherwise, and
    /// carries an [`ActiveSpan`](crate::ActiveSpan) to the service in its extensions.
    pub fn traced(&self, sink: Arc<dyn SpanSink>) -> Self {
        self.replaced(self.shared.rules.clone(), Some(Tracer::new(sink, &self.shared.ledger)))
    }

    /// Returns a layer with other rules on the same ledger, to replace this one while requests are running.
    ///
    /// Requests that this layer has begun finish with its rules. They count towards the limits of both layers, and
    /// [`IdempotencyLayer::drain`] of either layer waits for the requests of both.
    pub fn with_rules(&self, rules: Rules) -> Self {
        self.replaced(rules, self.shared.tracer.clone())
    }

    fn replaced(&self, rules: Rules, tracer: Option<Tracer>) -> Self {
        let old = &*self.shared;
        let shared = Shared {
            instance: old.instance.clone(),
            fallback: old.fallback.clone(),
            journal: old.journal.clone(),
            tasks: old.tasks.clone(),
            limits: old.limits.with_rules(&rules),
            budgets: old.budgets.with_rules(&rules),
            metrics: old.metrics.with_rules(&rules),
            lifetimes: lifetimes(&rules),
            policy: Policy::new(&rules),
            tracer,
            similar: similar_texts(&rules, &old.ledger, Some(old)),
            ledger: old.ledger.clone(),
            rules,
        };
        Self { shared: Arc::new(shared), connection: self.connection.clone() }
    }

    /// Returns this layer for one connection, whose concurrent requests are limited by
    /// [`Rules::inflight_max_per_connection`]. Use it in servers that create a service for each connection.
    pub fn for_connection(&self) -> Self {
        Self { shared: self.shared.clone(), connection: Some(ConnectionLimit::default()) }
    }

    /// Returns this layer for the connection of another layer, whose running requests keep counting.
    pub fn for_connection_of(&self, other: &Self) -> Self {
        Self { shared: self.shared.clone(), connection: other.connection.clone() }
    }

    /// The rules of this layer.
    pub fn rules(&self) -> &Rules {
        &self.shared.rules
    }

    /// Waits until all keyed requests have finished. Stop accepting new requests first: the layer does not refuse them.
    pub async fn drain(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    /// Identifies this instance in event metadata: the process id and random digits, because process ids in containers are
    /// often the same.
    pub fn instance(&self) -> &str {
        &self.shared.instance
    }

    /// The number of keyed requests that are running.
    pub fn in_flight(&self) -> usize {
        self.shared.tasks.len()
    }
}

/// The recent texts of each route that compares texts. A route that stays the same keeps them.
fn similar_texts(rules: &Rules, ledger: &Ledger, old: Option<&Shared>) -> Vec<Option<Arc<SimilarTexts>>> {
    let texts = |route: &Route| {
        let rule = route.similar.as_ref()?;
        let known = old.and_then(|old| {
            let mut routes = old.rules.routes.iter().zip(&old.similar);
            let same = routes.find(|(old, _)| old.matches == route.matches && old.similar == route.similar);
            same.and_then(|(_, texts)| texts.clone())
        });
        let settings = ledger.settings();
        Some(known.unwrap_or_else(|| {
            Arc::new(SimilarTexts::with_entropy(rule.options, settings.clock.clone(), &*settings.entropy))
        }))
    };
    rules.routes.iter().map(texts).collect()
}

/// How long the responses of each route are stored, in seconds.
fn lifetimes(rules: &Rules) -> Vec<HeaderValue> {
    rules.routes.iter().map(|route| route.retention.as_secs().into()).collect()
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotent<S>;

    fn layer(&self, inner: S) -> Idempotent<S> {
        Idempotent { inner, shared: self.shared.clone(), connection: self.connection.clone() }
    }
}

/// The service that the layer makes of an inner service.
#[derive(Clone, Debug)]
pub struct Idempotent<S> {
    inner: S,
    shared: Arc<Shared>,
    connection: Option<ConnectionLimit>,
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
    type Response = Response<ResponseBody<A>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, S::Error, A>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let rules = &self.shared.rules;
        let route = rules.route(&parts.method, parts.uri.path());
        if rules.evades_signature(&parts.method, parts.uri.path(), route) {
            let detail = "the path is a different spelling of a path whose requests must be signed";
            let response = self.refuse(&parts.method, Problem::new(Kind::RequestRefused, detail));
            return ResponseFuture::Ready { response: Some(response) };
        }
        let Some(route) = route else {
            if let Some(policy) = self.shared.policy.respond(&parts) {
                return ResponseFuture::Ready { response: Some(policy) };
            }
            let reason = if parts.method.is_safe() { PassReason::Safe } else { PassReason::Unmatched };
            let span = self.begin_span(&mut parts).1;
            return self.pass(reason, parts, body, span);
        };
        let (context, span) = self.begin_span(&mut parts);
        if passes_without_key(&self.shared.rules.routes[route], &parts.headers) {
            return self.pass(PassReason::Unkeyed(route), parts, body, span);
        }
        // Call the service that was polled for readiness, not its clone.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        let trace = Trace {
            started: Instant::now(),
            route,
            method: parts.method.clone(),
            index: None,
            attempt: 0,
            degraded: false,
            reports: Vec::new(),
            retry: EventRetry::of(self.shared.rules.routes[route].preset, &parts.headers),
            context,
            request_id: request_id::of(&parts.headers),
            span,
        };
        let (shared, connection) = (self.shared.clone(), self.connection.clone());
        ResponseFuture::Keyed {
            future: Box::pin(keyed::handle(shared, connection, inner, trace, parts, body)),
        }
    }
}

impl<S> Idempotent<S> {
    /// Counts and logs a request that is refused before the routes are consulted, and builds the response.
    pub fn refuse<A>(&self, method: &Method, problem: Problem) -> Response<ResponseBody<A>> {
        self.shared.metrics.refuse(method, &problem);
        problem.into_response(&self.shared.rules.policy_path)
    }

    /// The trace that a request belongs to, and its span if it is traced.
    fn begin_span(&self, parts: &mut Parts) -> (Option<TraceContext>, Option<ActiveSpan>) {
        let caller = TraceContext::of(&parts.headers);
        let span = self.shared.tracer.as_ref().and_then(|tracer| tracer.begin(parts, caller));
        (span.as_ref().map(ActiveSpan::context).or(caller), span)
    }

    fn pass<B, A>(
        &mut self,
        reason: PassReason,
        parts: Parts,
        body: B,
        span: Option<ActiveSpan>,
    ) -> ResponseFuture<S::Future, S::Error, A>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<A>>,
    {
        let passed = self.shared.metrics.pass(reason, &parts, span);
        let request = Request::from_parts(parts, RequestBody::passed(body));
        ResponseFuture::Passed { future: self.inner.call(request), passed }
    }
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

pin_project! {
    /// The future of a response.
    #[project = ResponseFutureProj]
    #[allow(missing_docs, reason = "opaque to callers")]
    pub enum ResponseFuture<F, E, A> {
        #[doc(hidden)]
        Passed { #[pin] future: F, passed: Option<PassedRequest> },
        #[doc(hidden)]
        Ready { response: Option<Response<ResponseBody<A>>> },
        #[doc(hidden)]
        Keyed { future: Boxed<Result<Response<ResponseBody<A>>, E>> },
    }
}

impl<F, E, A> Future for ResponseFuture<F, E, A>
where
    F: Future<Output = Result<Response<A>, E>>,
{
    type Output = Result<Response<ResponseBody<A>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            ResponseFutureProj::Passed { future, passed } => {
                let response = ready!(future.poll(cx));
                if let Some(passed) = passed.take() {
                    passed.finish(response.as_ref().ok().map(Response::status));
                }
                Poll::Ready(Ok(response?.map(ResponseBody::passed)))
            }
            ResponseFutureProj::Ready { response } => match response.take() {
                Some(response) => Poll::Ready(Ok(response)),
                None => Poll::Pending,
            },
            ResponseFutureProj::Keyed { future } => future.as_mut().poll(cx),
        }
    }
}
