//! Spans as messages of the protocol.

use ichido_http::{Attribute, AttributeValue, Span, SpanEvent, SpanKind};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Status, span};

use super::{attribute, scope};

/// The lowest bits are the flags of `traceparent`.
const SAMPLED: u32 = 1;

pub(super) fn request(resource: &Resource, spans: &[Span]) -> ExportTraceServiceRequest {
    let spans = spans.iter().map(message).collect();
    let scope_spans = vec![ScopeSpans { scope: Some(scope()), spans, ..ScopeSpans::default() }];
    let resource = Some(resource.clone());
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }],
    }
}

fn message(span: &Span) -> opentelemetry_proto::tonic::trace::v1::Span {
    let kind = match span.kind {
        SpanKind::Server => span::SpanKind::Server,
        SpanKind::Client => span::SpanKind::Client,
    };
    let failure = span.failure.as_ref();
    opentelemetry_proto::tonic::trace::v1::Span {
        trace_id: span.context.trace_id.to_vec(),
        span_id: span.context.span_id.to_vec(),
        trace_state: span.state.clone(),
        parent_span_id: span.parent.map(|parent| parent.to_vec()).unwrap_or_default(),
        flags: if span.context.is_sampled { SAMPLED } else { 0 },
        name: span.name.clone(),
        kind: kind.into(),
        start_time_unix_nano: span.start_ns,
        end_time_unix_nano: span.end_ns,
        attributes: attributes(&span.attributes),
        events: span.events.iter().map(event).collect(),
        status: failure.map(|why| Status { message: why.clone(), code: StatusCode::Error.into() }),
        ..Default::default()
    }
}

fn event(event: &SpanEvent) -> span::Event {
    span::Event {
        time_unix_nano: event.at_ns,
        name: event.name.to_owned(),
        attributes: attributes(&event.attributes),
        dropped_attributes_count: 0,
    }
}

fn attributes(attributes: &[Attribute]) -> Vec<KeyValue> {
    let value = |value: &AttributeValue| match value {
        AttributeValue::Text(text) => Value::StringValue(text.clone().into_owned()),
        AttributeValue::Number(number) => Value::IntValue(*number),
        AttributeValue::Flag(flag) => Value::BoolValue(*flag),
    };
    attributes.iter().map(|(name, known)| attribute(name, value(known))).collect()
}
