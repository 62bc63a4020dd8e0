//! Claims around an HTTP service.
//!
//! [`IdempotencyLayer`] is a tower layer: a request that carries a key is claimed, run once, and
//! its answer is kept before it is sent; repeats get the kept answer. Everything else passes as it came.

mod cloudevents;
mod concurrency;
mod content_encoding;
mod events;
mod failure;
mod fingerprint;
mod hop_by_hop;
mod journal;
mod json;
pub mod key;
mod key_source;
mod keyed;
mod layer;
mod metrics;
mod operation;
mod options;
mod parse_error;
mod pointer;
mod policy;
mod preset;
mod problem;
mod request_body;
mod response_body;
mod rules;
mod shared;
mod signature;
mod stored_response;
mod tenant;
mod trait_aliases;
mod verdict;

pub use events::Note;
pub use failure::{Failure, IntoFailure};
pub use hop_by_hop::strip_hop_by_hop;
pub use journal::Journal;
pub use key_source::{IDEMPOTENCY_KEY, KeySource, Template};
pub use layer::{Answering, IdempotencyLayer, Idempotent};
pub use options::{ClientErrors, InDoubt, Mode, NoStore, Outage, Preset, ServerErrors, SetCookie};
pub use parse_error::SourceError;
pub use pointer::Pointer;
pub use problem::{ErrorMember, Kind as ProblemKind, Problem, tell_should_retry};
pub use request_body::{Progress, RequestBody};
pub use response_body::AnswerBody;
pub use rules::{FingerprintRule, InFlight, Match, Route, Rules};
pub use signature::{Scheme, Secret, Signature};
pub use stored_response::{Answer, Unreadable};
pub use tenant::{Tenant, TenantError, TenantOf};
pub use verdict::{Verdict, verdict};
