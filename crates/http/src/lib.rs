//! Claims around an HTTP service.
//!
//! [`IdempotencyLayer`] is a tower layer: a request that carries a key is claimed, run once, and
//! its answer is kept before it is sent; repeats get the kept answer. Everything else passes as it came.

mod answer;
mod body;
mod bounds;
mod budget;
mod cloudevents;
mod collect;
mod events;
mod failure;
mod fingerprint;
mod journal;
mod json;
pub mod key;
mod layer;
mod meters;
mod observe;
mod policy;
mod prepare;
mod preset;
mod problem;
mod request;
mod rules;
mod run;
mod signature;
mod slots;
mod source;
mod tenant;
mod verdict;
mod words;
mod work;

pub use answer::{Answer, Unreadable, strip_hop_by_hop};
pub use body::AnswerBody;
pub use events::Note;
pub use failure::{Failure, IntoFailure};
pub use journal::Journal;
pub use layer::{Answering, IdempotencyLayer, Idempotent};
pub use problem::{ErrorMember, Kind as ProblemKind, Problem, tell_should_retry};
pub use request::{Progress, RequestBody};
pub use rules::{FingerprintRule, InFlight, Match, Route, Rules};
pub use signature::{Scheme, Secret, Signature};
pub use source::{IDEMPOTENCY_KEY, KeySource, Pointer, SourceError, Template};
pub use tenant::{Tenant, TenantError, TenantOf};
pub use verdict::{Verdict, verdict};
pub use words::{ClientErrors, InDoubt, Mode, NoStore, Outage, Preset, ServerErrors, SetCookie};
