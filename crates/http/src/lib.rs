//! Idempotency for HTTP services.
//!
//! [`IdempotencyLayer`] is a tower layer. It claims each request that carries a key, runs it once, and stores the response
//! before sending it; retries get the stored response. All other requests pass through unchanged.

mod cloudevents;
mod concurrency;
mod content;
mod content_encoding;
mod event_retry;
mod failure;
mod fingerprint;
mod hop_by_hop;
mod journal;
mod json;
pub mod key;
mod key_source;
mod keyed;
mod layer;
mod metadata;
mod metrics;
mod operation;
mod options;
mod parse_error;
mod pointer;
mod policy;
mod preset;
mod problem;
mod question;
mod request_body;
mod request_id;
mod response_body;
mod rules;
mod shared;
mod signature;
mod spans;
mod stored_response;
mod tenant;
mod trace_context;
mod trait_aliases;
mod verdict;

pub use failure::{Failure, IntoFailure};
pub use hop_by_hop::strip_hop_by_hop;
pub use journal::Journal;
pub use key_source::{IDEMPOTENCY_KEY, KeySource, Template};
pub use layer::{IdempotencyLayer, Idempotent, ResponseFuture};
pub use metadata::MetadataSource;
pub use options::{
    AnswerKept, Automatic, ClientErrors, InDoubt, Mode, NoStore, Outage, Preset, ServerErrors, SetCookie,
};
pub use parse_error::ParseError;
pub use pointer::Pointer;
pub use problem::{ErrorMember, Kind as ProblemKind, Problem, set_should_retry};
pub use question::{
    Answer, AskService, Asked, NotAsked, Placeholder, Question, QuestionPath, Schedule, is_answer,
};
pub use request_body::{Progress, RequestBody};
pub use response_body::ResponseBody;
pub use rules::{ContentRule, FingerprintRule, InFlight, Match, Route, Rules, SimilarRule};
pub use signature::{Algorithm, Encoding, Scheme, Secret, Signature, SignatureRule, SignedText};
pub use spans::{
    ActiveSpan, Attribute, AttributeValue, CallSpan, Span, SpanEvent, SpanKind, SpanSink, Tracer,
};
pub use stored_response::{StoredResponse, UnreadableResponse};
pub use tenant::{Tenant, TenantError, TenantResolver};
pub use trace_context::TraceContext;
pub use verdict::{Verdict, verdict};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
