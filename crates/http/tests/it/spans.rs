//! Spans of requests: their parents, what they tell, and what the service gets.

use std::sync::{Arc, Mutex};

use http::Request;
use ichido_http::{AttributeValue, Failure, Span, SpanEvent, SpanKind, SpanSink};

use crate::support::*;

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[derive(Debug, Default)]
struct Ended(Mutex<Vec<Span>>);

impl SpanSink for Ended {
    fn ended(&self, span: Span) {
        self.0.lock().unwrap().push(span);
    }
}

/// An instance whose requests are traced.
async fn traced(upstream: &Upstream) -> (Instance, Arc<Ended>) {
    let ended = Arc::new(Ended::default());
    let mut instance = Instance::new(&Store::memory(), route(), upstream).await;
    instance.layer = instance.layer.traced(ended.clone());
    instance.service = tower_layer::Layer::layer(&instance.layer, upstream.clone());
    (instance, ended)
}

fn with_trace(mut request: Request<AnyBody>, traceparent: &str) -> Request<AnyBody> {
    request.headers_mut().insert("traceparent", traceparent.parse().unwrap());
    request
}

fn attribute<'a>(span: &'a Span, name: &str) -> Option<&'a AttributeValue> {
    span.attributes.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
}

impl Ended {
    fn take(&self) -> Span {
        let mut spans = self.0.lock().unwrap();
        assert_eq!(spans.len(), 1, "{spans:?}");
        spans.remove(0)
    }
}

#[tokio::test]
async fn a_valid_traceparent_continues_the_trace() {
    let (instance, ended) = traced(&Upstream::counting()).await;
    instance.send(with_trace(order("k"), TRACEPARENT)).await.assert_first(201, "run 1");
    let first = ended.take();
    assert_eq!(first.context.trace_id_text(), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(first.parent.map(|id| hex(&id)).as_deref(), Some("b7ad6b7169203331"));
    assert_eq!((first.kind, first.name.as_str()), (SpanKind::Server, "POST /**"));
    assert_eq!(attribute(&first, "ichido.outcome"), Some(&"first".into()));
    assert_eq!(attribute(&first, "http.response.status_code"), Some(&AttributeValue::Number(201)));
    assert_eq!((attribute(&first, "url.path"), &first.failure), (Some(&"/orders".into()), &None));
    assert!(first.end_ns >= first.start_ns && first.events.is_empty());
    // A retry is a request of its own, and may belong to another trace.
    instance.send(order("k")).await.assert_replay(201, "run 1");
    let replay = ended.take();
    assert_eq!((replay.parent, attribute(&replay, "ichido.outcome")), (None, Some(&"replayed".into())));
    assert_ne!(replay.context.trace_id, first.context.trace_id);
    // The claim tells which trace ran it.
    let record = instance.record("k").await.unwrap();
    assert_eq!(record.metadata.get("trace_id"), Some("0af7651916cd43dd8448eb211c80319c"));
}

#[tokio::test]
async fn a_trace_that_its_caller_does_not_sample_has_no_span() {
    let (instance, ended) = traced(&Upstream::counting()).await;
    instance
        .send(with_trace(order("k"), &TRACEPARENT.replace("-01", "-00")))
        .await
        .assert_first(201, "run 1");
    assert!(ended.0.lock().unwrap().is_empty());
    // It is still the trace that the claim belongs to.
    let record = instance.record("k").await.unwrap();
    assert_eq!(record.metadata.get("trace_id"), Some("0af7651916cd43dd8448eb211c80319c"));
}

#[tokio::test]
async fn an_invalid_traceparent_is_ignored() {
    let (instance, ended) = traced(&Upstream::counting()).await;
    instance.send(with_trace(order("k"), &TRACEPARENT.to_uppercase())).await.assert_first(201, "run 1");
    let span = ended.take();
    assert_eq!(span.parent, None);
    assert_ne!(span.context.trace_id_text(), "0af7651916cd43dd8448eb211c80319c");
}

#[tokio::test]
async fn doubt_is_an_event_of_the_span() {
    let (instance, ended) =
        traced(&Upstream::new(|_| async { Err(Failure::Lost("connection reset".into())) })).await;
    instance.send(order("k")).await.assert_problem(502, "answer-lost");
    let reason = |event: &SpanEvent| event.attributes[0].1.clone();
    let lost = ended.take();
    assert_eq!((lost.events[0].name, lost.events.len()), ("in doubt", 1));
    let AttributeValue::Text(why) = reason(&lost.events[0]) else { panic!("{lost:?}") };
    assert!(why.starts_with("the response was lost"), "{why}");
    assert_eq!(lost.failure.as_deref(), Some(""));
    assert_eq!(attribute(&lost, "error.type"), Some(&"answer-lost".to_owned().into()));
    // So does everyone who asks again.
    instance.send(order("k")).await.assert_problem(409, "in-doubt");
    let again = ended.take();
    assert_eq!(reason(&again.events[0]), "an earlier request with this key is in doubt".into());
    assert_eq!((attribute(&again, "ichido.outcome"), &again.failure), (Some(&"in-doubt".into()), &None));
}

#[tokio::test]
async fn a_request_that_passes_has_a_span_too() {
    let (instance, ended) = traced(&Upstream::counting()).await;
    instance.send(get("/orders")).await;
    let span = ended.take();
    assert_eq!((span.name.as_str(), attribute(&span, "ichido.outcome")), ("GET", Some(&"safe".into())));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
