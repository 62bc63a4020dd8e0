//! Requests and responses of the operator API, shared by server and client.

use ichido_history::{Entry, Repeats};
use ichido_ledger::{MarkSummary, StateName};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::ResolveAs;

/// The most claims on one page.
pub const PAGE_MAX: usize = 1_000;
/// The number of claims on a page by default.
const PAGE_DEFAULT: usize = 100;

/// Selects a claim. Tenant and route are needed if several claims have the same key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimSelector {
    /// The caller's key.
    pub key: String,
    /// The tenant of its scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The route of its scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
}

/// Which claims to list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    pub state: Option<StateName>,
    pub prefix: Option<String>,
    #[serde(default = "page_default")]
    pub limit: usize,
    pub cursor: Option<String>,
}

pub(super) fn page_default() -> usize {
    PAGE_DEFAULT
}

/// Which events to list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventListQuery {
    pub prefix: Option<String>,
    #[serde(default = "page_default")]
    pub limit: usize,
    pub cursor: Option<String>,
}

/// Selects an event.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventSelector {
    pub key: String,
}

/// Selects a timeline.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimelineQuery {
    pub find: String,
    #[serde(default)]
    pub by: TimelineBy,
}

/// What was decided about a key.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Timeline {
    pub timeline: Vec<Entry>,
}

/// Selects what to follow.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TraceQuery {
    pub id: String,
}

/// How far back anomalies are shown.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnomaliesQuery {
    pub days: Option<u32>,
}

/// What the text that selects a timeline is.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TimelineBy {
    /// A key; or a hash, if no such key was recorded; or a request id, if that is not known either.
    #[default]
    Any,
    Key,
    Hash,
    RequestId,
}

/// The body of a request to resolve a claim.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResolveBody {
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    #[serde(rename = "as")]
    pub kind: ResolveKind,
    /// The outcome for retries as JSON, stored exactly as written.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Box<RawValue>>,
    /// The outcome for retries as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome_text: Option<String>,
}

/// How a claim in doubt is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ResolveKind {
    /// The effect happened.
    Done,
    /// It did not happen.
    Absent,
}

/// Distinguishes `null`, which is an outcome, from a missing field.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::deserialize(deserializer).map(Some)
}

impl ResolveBody {
    /// The claim and its resolution, or why the fields contradict each other.
    pub(crate) fn into_parts(self) -> Result<(ClaimSelector, ResolveAs), &'static str> {
        let outcome = match (self.outcome, self.outcome_text) {
            (Some(_), Some(_)) => return Err("outcome and outcome_text cannot be combined"),
            (Some(json), None) => Some(json.get().to_owned()),
            (None, text) => text,
        };
        let resolve_as = match (self.kind, outcome) {
            (ResolveKind::Done, outcome) => ResolveAs::Done(outcome),
            (ResolveKind::Absent, None) => ResolveAs::Absent,
            (ResolveKind::Absent, Some(_)) => return Err("an outcome requires \"as\":\"done\""),
        };
        Ok((ClaimSelector { key: self.key, tenant: self.tenant, route: self.route }, resolve_as))
    }

    pub(super) fn new(selector: ClaimSelector, resolve_as: &ResolveAs) -> Self {
        let (kind, outcome_text) = match resolve_as {
            ResolveAs::Done(outcome) => (ResolveKind::Done, outcome.clone()),
            ResolveAs::Absent => (ResolveKind::Absent, None),
        };
        Self {
            key: selector.key,
            tenant: selector.tenant,
            route: selector.route,
            kind,
            outcome: None,
            outcome_text,
        }
    }
}

/// The body of an operator's request to release a key.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ReleaseByOperator)]
pub(crate) struct ReleaseBody {
    /// 1 to 1,024 bytes of UTF-8.
    #[schema(min_length = 1, max_length = 1024)]
    pub key: String,
    /// Needed if several claims have the same key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable, max_length = 1024)]
    pub tenant: Option<String>,
    /// Needed if several claims have the same key. Claims of this API have the tenant "" and the route /v1/claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable, max_length = 1024)]
    pub route: Option<String>,
    /// Release the key even while its lease is valid.
    #[serde(default)]
    #[schema(default = false)]
    pub force: bool,
}

impl ReleaseBody {
    pub(crate) fn into_parts(self) -> (ClaimSelector, bool) {
        (ClaimSelector { key: self.key, tenant: self.tenant, route: self.route }, self.force)
    }

    pub(super) fn new(selector: ClaimSelector, force: bool) -> Self {
        Self { key: selector.key, tenant: selector.tenant, route: selector.route, force }
    }
}

/// The body of a request to forget or erase a completed claim.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ClaimAndReason)]
pub(crate) struct ClaimReasonBody {
    /// 1 to 1,024 bytes of UTF-8.
    #[schema(min_length = 1, max_length = 1024)]
    pub key: String,
    /// Needed if several claims have the same key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable, max_length = 1024)]
    pub tenant: Option<String>,
    /// Needed if several claims have the same key. Claims of this API have the tenant "" and the route /v1/claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable, max_length = 1024)]
    pub route: Option<String>,
    /// Why, for the audit log.
    #[schema(min_length = 1, max_length = 1024)]
    pub reason: String,
}

impl ClaimReasonBody {
    pub(crate) fn into_parts(self) -> (ClaimSelector, String) {
        (ClaimSelector { key: self.key, tenant: self.tenant, route: self.route }, self.reason)
    }

    pub(super) fn new(selector: ClaimSelector, reason: &str) -> Self {
        let ClaimSelector { key, tenant, route } = selector;
        Self { key, tenant, route, reason: reason.to_owned() }
    }
}

/// The body of a request to forget an event.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ForgetEvent)]
pub(crate) struct ForgetEventBody {
    /// 1 to 1,024 bytes of UTF-8.
    #[schema(min_length = 1, max_length = 1024)]
    pub key: String,
    /// Why the event is forgotten, for the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable, min_length = 1, max_length = 1024)]
    pub reason: Option<String>,
}

/// The body of a request to erase what callers wrote in the mark of an event.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = EraseEvent)]
pub(crate) struct EraseEventBody {
    /// 1 to 1,024 bytes of UTF-8.
    #[schema(min_length = 1, max_length = 1024)]
    pub key: String,
    /// Why, for the audit log.
    #[schema(min_length = 1, max_length = 1024)]
    pub reason: String,
}

/// The mark of an event, without what callers wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErasedEvent {
    /// The hash that identifies the key in a store.
    pub index: String,
    /// Whether the store needs the text of the key, and keeps it until the mark expires.
    pub key_kept: bool,
}

/// The body of a request to back up the ledger.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = BackupTo)]
pub(crate) struct BackupBody {
    /// An absolute path on the machine of this process. The directory must not exist, or be empty.
    #[schema(min_length = 1, example = "/var/backups/ichido/2026-01-31")]
    pub directory: String,
}

/// A claim that was resolved, released, forgotten or erased.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResolvedClaim {
    /// The caller's key.
    pub key: String,
    /// The tenant of its scope.
    pub tenant: String,
    /// The route of its scope.
    pub route: String,
    /// The hash that identifies the key in a store.
    pub index: String,
    /// The new state: done, absent, released, forgotten or erased.
    #[schema(pattern = "^(done|absent|released|forgotten|erased)$")]
    pub state: String,
}

/// An event that is marked, and how often it was repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventView {
    /// The event.
    #[serde(flatten)]
    pub event: MarkSummary,
    /// Its repeats, as far as the history tells. `None` if it does not.
    #[serde(default)]
    pub repeats: Option<Repeats>,
}

/// Everything about a claim except its token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClaimView(pub Map<String, Value>);

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<ResolveAs, String> {
        let body: ResolveBody = serde_json::from_str(json).map_err(|error| error.to_string())?;
        body.into_parts().map(|(_, resolve_as)| resolve_as).map_err(ToOwned::to_owned)
    }

    #[test]
    fn outcome_is_kept_as_written() {
        let done = |outcome: &str| Ok(ResolveAs::Done(Some(outcome.to_owned())));
        assert_eq!(
            read(r#"{"key":"k","as":"done","outcome":{"b": 12345678901234567890123, "a": 1.0}}"#),
            done(r#"{"b": 12345678901234567890123, "a": 1.0}"#)
        );
        assert_eq!(read(r#"{"key":"k","as":"done","outcome":null}"#), done("null"));
        assert_eq!(read(r#"{"key":"k","as":"done","outcome":"x"}"#), done(r#""x""#));
        assert_eq!(read(r#"{"key":"k","as":"done","outcome_text":"by hand"}"#), done("by hand"));
        assert_eq!(read(r#"{"key":"k","as":"done"}"#), Ok(ResolveAs::Done(None)));
    }

    #[test]
    fn contradictory_fields_are_refused() {
        for (json, why) in [
            (r#"{"key":"k","as":"absent","outcome":1}"#, "requires"),
            (r#"{"key":"k","as":"done","outcome":1,"outcome_text":"1"}"#, "combined"),
            (r#"{"key":"k","as":"maybe"}"#, "maybe"),
            (r#"{"key":"k","as":"done","tenent":"t"}"#, "tenent"),
            (r#"{"as":"done"}"#, "key"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.contains(why), "{json}: {error}");
        }
    }

    #[test]
    fn resolve_request_round_trips() {
        let selector = ClaimSelector { key: "k".to_owned(), tenant: Some(String::new()), route: None };
        for resolve_as in
            [ResolveAs::Done(Some("{\"id\": 1}".to_owned())), ResolveAs::Done(None), ResolveAs::Absent]
        {
            let json = serde_json::to_string(&ResolveBody::new(selector.clone(), &resolve_as)).unwrap();
            let body: ResolveBody = serde_json::from_str(&json).unwrap();
            assert_eq!(body.into_parts(), Ok((selector.clone(), resolve_as)));
        }
    }
}
