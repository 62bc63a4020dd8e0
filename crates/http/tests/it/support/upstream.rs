//! The inner service: it counts its effects and follows a script.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use ichido_http::{Failure, RequestBody};
use ichido_ledger::BoxError;
use tokio::sync::watch;
use tower_service::Service;

pub(crate) type AnyBody = UnsyncBoxBody<Bytes, Cut>;
pub(crate) type Reply = Result<Response<AnyBody>, Failure>;
type Script = dyn Fn(Call) -> Pin<Box<dyn Future<Output = Reply> + Send>> + Send + Sync;

/// A call that reached the service.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// 1 for the first run.
    pub(crate) run: usize,
    pub(crate) parts: Parts,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

/// A service that counts its effects. Clones are the same service.
#[derive(Clone)]
pub(crate) struct Upstream {
    script: Arc<Script>,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    runs: AtomicUsize,
    ended: AtomicUsize,
    calls: Mutex<Vec<Call>>,
}

impl Upstream {
    /// A service that responds as the script says.
    pub(crate) fn new<F>(script: impl Fn(Call) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Reply> + Send + 'static,
    {
        Self { script: Arc::new(move |call| Box::pin(script(call))), seen: Arc::default() }
    }

    /// Responds with 201 and the number of the run.
    pub(crate) fn counting() -> Self {
        Self::new(|call| async move { Ok(text(201, &format!("run {}", call.run))) })
    }

    /// Responds with 201 and the number of the run, once the gate is open.
    pub(crate) fn gated(gate: &Gate) -> Self {
        let gate = gate.clone();
        Self::new(move |call| {
            let gate = gate.clone();
            async move {
                gate.opened().await;
                Ok(text(201, &format!("run {}", call.run)))
            }
        })
    }

    /// Responds with this status and the number of the run.
    pub(crate) fn responding(status: u16) -> Self {
        Self::new(move |call| async move { Ok(text(status, &format!("run {}", call.run))) })
    }

    /// How many runs have started.
    pub(crate) fn runs(&self) -> usize {
        self.seen.runs.load(Ordering::SeqCst)
    }

    /// How many runs have ended.
    pub(crate) fn ended(&self) -> usize {
        self.seen.ended.load(Ordering::SeqCst)
    }

    /// All calls that reached the service.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.seen.calls.lock().unwrap().clone()
    }

    /// Waits until this many runs have started.
    pub(crate) async fn started(&self, runs: usize) {
        super::until(&format!("the service has started {runs} runs"), async || self.runs() >= runs).await;
    }
}

impl<B> Service<Request<RequestBody<B>>> for Upstream
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<AnyBody>;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Reply> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody<B>>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_err(Failure::NotSent)?;
            let trailers = body.trailers().cloned();
            let body = body.to_bytes();
            let run = service.seen.runs.fetch_add(1, Ordering::SeqCst) + 1;
            let call = Call { run, parts, body, trailers };
            service.seen.calls.lock().unwrap().push(call.clone());
            let reply = (service.script)(call).await;
            service.seen.ended.fetch_add(1, Ordering::SeqCst);
            reply
        })
    }
}

/// The error of a body that is cut off.
#[derive(Debug)]
pub(crate) struct Cut(pub(crate) &'static str);

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Cut {}

/// A gate that runs wait for.
#[derive(Clone)]
pub(crate) struct Gate(Arc<watch::Sender<usize>>);

impl Gate {
    pub(crate) fn closed() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    pub(crate) fn open(&self) {
        self.0.send_replace(usize::MAX);
    }

    /// Lets runs with numbers up to `turns` pass [`Gate::turn`].
    pub(crate) fn open_for(&self, turns: usize) {
        self.0.send_replace(turns);
    }

    pub(crate) async fn opened(&self) {
        self.turn(1).await;
    }

    pub(crate) async fn turn(&self, number: usize) {
        self.0.subscribe().wait_for(|open| *open >= number).await.unwrap();
    }
}

pub(crate) fn body(bytes: impl Into<Bytes>) -> AnyBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body that arrives in these chunks, and ends with trailers or is cut off.
pub(crate) fn chunks(parts: Vec<Result<Bytes, &'static str>>, trailers: Option<HeaderMap>) -> AnyBody {
    let frames = parts.into_iter().map(|part| part.map(Frame::data).map_err(Cut));
    let last = trailers.map(|trailers| Ok(Frame::trailers(trailers)));
    StreamBody::new(stream::iter(frames.chain(last).collect::<Vec<_>>())).boxed_unsync()
}

pub(crate) fn text(status: u16, content: &str) -> Response<AnyBody> {
    Response::builder().status(status).body(body(content.to_owned())).unwrap()
}
