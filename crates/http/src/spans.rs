//! Spans: what a tracing tool shows of a request.
//!
//! Without a [`Tracer`], nothing here runs. A trace that its caller does not sample is passed on as it came.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, StatusCode};
use ichido_core::{Clock, Entropy};
use ichido_ledger::Ledger;
use tokio::time::Instant;

use crate::trace_context::{TRACESTATE, TraceContext};

/// Longer texts are cut.
const TEXT_BYTES_MAX: usize = 1024;

/// Takes spans that have ended.
pub trait SpanSink: fmt::Debug + Send + Sync + 'static {
    /// Takes a span. It is called on the path of requests, so it must be quick and cannot fail.
    fn ended(&self, span: Span);
}

/// A span that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Its trace and its own id.
    pub context: TraceContext,
    /// The span that caused it.
    pub parent: Option<[u8; 8]>,
    /// The `tracestate` of its caller.
    pub state: String,
    /// Whose work it describes.
    pub kind: SpanKind,
    /// A name that many spans share.
    pub name: String,
    /// Nanoseconds since 1970.
    pub start_ns: u64,
    /// Nanoseconds since 1970.
    pub end_ns: u64,
    /// What is known about it.
    pub attributes: Vec<Attribute>,
    /// What happened meanwhile.
    pub events: Vec<SpanEvent>,
    /// Why it failed, if it did.
    pub failure: Option<String>,
}

/// Whose work a span describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// The answer to a request.
    Server,
    /// A request to another service.
    Client,
}

/// Something that happened during a span.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanEvent {
    /// Nanoseconds since 1970.
    pub at_ns: u64,
    /// What happened.
    pub name: &'static str,
    /// What is known about it.
    pub attributes: Vec<Attribute>,
}

/// A name and a value.
pub type Attribute = (&'static str, AttributeValue);

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum AttributeValue {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
}

impl From<&'static str> for AttributeValue {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(cut(text).into())
    }
}

impl From<u32> for AttributeValue {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<StatusCode> for AttributeValue {
    fn from(status: StatusCode) -> Self {
        Self::Number(status.as_u16().into())
    }
}

impl From<bool> for AttributeValue {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

fn cut(mut text: String) -> String {
    let end = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or(0));
    text
}

/// Starts spans.
#[derive(Clone, Debug)]
pub struct Tracer {
    sink: Arc<dyn SpanSink>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

impl Tracer {
    /// Creates a tracer, with the clock and the entropy of a ledger.
    pub fn new(sink: Arc<dyn SpanSink>, ledger: &Ledger) -> Self {
        let settings = ledger.settings();
        Self { sink, clock: settings.clock.clone(), entropy: settings.entropy.clone() }
    }

    /// Starts the span of a request, which its extensions carry from then on. `None` if its caller does not sample the trace.
    pub fn begin(&self, parts: &mut Parts, caller: Option<TraceContext>) -> Option<ActiveSpan> {
        if caller.is_some_and(|caller| !caller.is_sampled) {
            return None;
        }
        let lines = parts.headers.get_all(TRACESTATE).iter().filter_map(|line| line.to_str().ok());
        let state = caller.map(|_| lines.collect::<Vec<_>>().join(","));
        let trace_id = caller.map_or_else(|| self.entropy.draw(), |caller| caller.trace_id);
        let span = ActiveSpan(Arc::new(Active {
            context: TraceContext { trace_id, span_id: self.span_id(), is_sampled: true },
            parent: caller.map(|caller| caller.span_id),
            state: state.unwrap_or_default(),
            start_ns: self.clock.now().0.saturating_mul(1_000_000),
            started: Instant::now(),
            path: cut(parts.uri.path().to_owned()),
            noted: Mutex::default(),
            tracer: self.clone(),
        }));
        parts.extensions.insert(span.clone());
        Some(span)
    }

    fn span_id(&self) -> [u8; 8] {
        let drawn = self.entropy.draw();
        let (id, _) = drawn.split_first_chunk().unwrap_or((&[1; 8], &[]));
        *id
    }
}

/// The span of a request that is being answered. The extensions of the request carry it to the service.
#[derive(Clone, Debug)]
pub struct ActiveSpan(Arc<Active>);

#[derive(Debug)]
struct Active {
    context: TraceContext,
    parent: Option<[u8; 8]>,
    state: String,
    start_ns: u64,
    started: Instant,
    path: String,
    noted: Mutex<Noted>,
    tracer: Tracer,
}

/// What was noted before the end.
#[derive(Debug, Default)]
struct Noted {
    attributes: Vec<Attribute>,
    events: Vec<SpanEvent>,
}

impl ActiveSpan {
    /// Its trace and its own id.
    pub fn context(&self) -> TraceContext {
        self.0.context
    }

    fn now_ns(&self) -> u64 {
        self.0.start_ns.saturating_add(nanos(self.0.started.elapsed()))
    }

    /// Notes what became known about the request.
    pub fn note(&self, name: &'static str, value: impl Into<AttributeValue>) {
        self.noted().attributes.push((name, value.into()));
    }

    /// Notes that nobody knows whether the request took effect.
    pub fn in_doubt(&self, reason: &str) {
        let attributes = vec![("ichido.reason", reason.to_owned().into())];
        let event = SpanEvent { at_ns: self.now_ns(), name: "in doubt", attributes };
        self.noted().events.push(event);
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the span of a request. `route` is the path of its route.
    pub fn end(&self, method: &str, route: Option<&str>, status: StatusCode, about: Vec<Attribute>) {
        let active = &self.0;
        let Noted { attributes: noted, events } = std::mem::take(&mut *self.noted());
        let mut attributes = vec![
            ("http.request.method", method.to_owned().into()),
            ("url.path", active.path.clone().into()),
            ("http.response.status_code", status.into()),
        ];
        attributes.extend(route.map(|route| ("http.route", route.to_owned().into())));
        attributes.extend(about);
        attributes.extend(noted);
        active.tracer.sink.ended(Span {
            context: active.context,
            parent: active.parent,
            state: active.state.clone(),
            kind: SpanKind::Server,
            name: route.map_or_else(|| method.to_owned(), |route| format!("{method} {route}")),
            start_ns: active.start_ns,
            end_ns: self.now_ns(),
            attributes,
            events,
            failure: status.is_server_error().then(String::new),
        });
    }

    /// Starts the span of a request to another service, and names it in the headers of that request.
    pub fn call(&self, method: &str, server: &str, headers: &mut HeaderMap) -> CallSpan {
        let context = TraceContext { span_id: self.0.tracer.span_id(), ..self.0.context };
        context.set(headers);
        if self.0.parent.is_none() {
            // It belonged to a trace that could not be read.
            headers.remove(TRACESTATE);
        }
        let attributes = vec![
            ("http.request.method", method.to_owned().into()),
            ("server.address", server.to_owned().into()),
            ("url.path", self.0.path.clone().into()),
        ];
        CallSpan {
            caller: self.clone(),
            span: Some(Span {
                context,
                parent: Some(self.0.context.span_id),
                state: self.0.state.clone(),
                kind: SpanKind::Client,
                name: method.to_owned(),
                start_ns: self.now_ns(),
                end_ns: 0,
                attributes,
                events: Vec::new(),
                failure: None,
            }),
        }
    }
}

/// The span of a request to another service. If it is dropped before the response has come, it ends as a failure.
#[derive(Debug)]
pub struct CallSpan {
    caller: ActiveSpan,
    span: Option<Span>,
}

impl CallSpan {
    /// Ends the span with the status of the response, or with the reason for its absence.
    pub fn end(mut self, result: Result<StatusCode, String>) {
        self.finish(result);
    }

    fn finish(&mut self, result: Result<StatusCode, String>) {
        let Some(mut span) = self.span.take() else { return };
        span.end_ns = self.caller.now_ns();
        match result {
            Ok(status) => {
                span.attributes.push(("http.response.status_code", status.into()));
                // To the one who calls, a request that was refused has failed.
                let is_failure = status.is_client_error() || status.is_server_error();
                span.failure = is_failure.then(String::new);
            }
            Err(why) => span.failure = Some(cut(why)),
        }
        self.caller.0.tracer.sink.ended(span);
    }
}

impl Drop for CallSpan {
    fn drop(&mut self) {
        self.finish(Err("the response did not come in time, or nobody waited for it".to_owned()));
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
