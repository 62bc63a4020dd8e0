//! Requests and responses about claims in doubt, shared by server and client.

use ichido_ledger::{StateName, Summary};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Refusal;
use super::wire::{ResolveKind, ResolvedClaim, page_default};

/// The body of a request to ask a service about a claim.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AskService)]
pub(crate) struct AskBody {
    /// 1 to 1,024 bytes of UTF-8.
    #[schema(min_length = 1, max_length = 1024)]
    pub key: String,
    /// Needed if several claims have the same key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable, max_length = 1024)]
    pub tenant: Option<String>,
    /// Needed if several claims have the same key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable, max_length = 1024)]
    pub route: Option<String>,
    /// Resolve the claim, if the service says the same once more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<Confirmed>,
}

/// What somebody has confirmed after the service was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Confirmed {
    /// How the claim is to be resolved.
    pub resolve: ResolveKind,
    /// The version of the claim that was shown.
    pub version: String,
}

/// A claim, and what the service behind it says about its effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedClaim {
    /// The caller's key.
    pub key: String,
    /// The tenant of its scope.
    pub tenant: String,
    /// The route of its scope.
    pub route: String,
    /// The hash that identifies the key in a store.
    pub index: String,
    /// The state of the claim before.
    pub state: StateName,
    /// Names the state of the claim that was asked about.
    pub version: String,
    /// What the service said: done, absent or undecided.
    pub answer: String,
    /// The status of its response, if there was one.
    pub status: Option<u16>,
    /// What it said, as a sentence.
    pub detail: String,
    /// How the claim would be resolved.
    pub follows: Option<ResolveKind>,
    /// What follows, as a sentence.
    pub means: String,
    /// Whether the same question finds a completed request: found, not-found, or nothing if there is none to ask about.
    /// Only asked if the service says that the effect did not happen.
    pub control: Option<String>,
    /// After how many seconds an answer that the effect did not happen counts, if that is too early now.
    pub wait_seconds: Option<u64>,
    /// How the claim was resolved.
    pub resolved: Option<String>,
}

/// Which claims in doubt to show.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TriageQuery {
    pub route: Option<String>,
    pub reason: Option<String>,
    pub tenant: Option<String>,
    pub older_than_seconds: Option<u64>,
    #[serde(default = "page_default")]
    pub limit: usize,
}

/// A claim in doubt that somebody has seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SeenClaim {
    /// The caller's key.
    #[schema(min_length = 1, max_length = 1024)]
    pub key: String,
    /// The tenant of its scope.
    #[schema(max_length = 1024)]
    pub tenant: String,
    /// The route of its scope.
    #[schema(max_length = 1024)]
    pub route: String,
    /// Its version when it was seen.
    pub version: String,
}

impl From<&Summary> for SeenClaim {
    fn from(claim: &Summary) -> Self {
        let Summary { key, tenant, route, version, .. } = claim.clone();
        Self { key, tenant, route, version }
    }
}

/// The body of a request to resolve several claims.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ResolveClaims)]
pub(crate) struct ResolveAllBody {
    /// How each of them is resolved.
    #[serde(rename = "as")]
    pub kind: ResolveKind,
    /// The claims, as /v1/claims/triage lists them, at most 1,000.
    pub claims: Vec<SeenClaim>,
    /// Why, for the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable, min_length = 1, max_length = 1024)]
    pub reason: Option<String>,
}

/// What became of each claim.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = ResolvedClaims)]
pub(crate) struct ResolvedAll {
    /// In the order of the request.
    pub claims: Vec<SeenResult>,
}

/// What became of one of several claims.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SeenResult {
    /// The caller's key.
    pub key: String,
    /// The tenant of its scope.
    pub tenant: String,
    /// The route of its scope.
    pub route: String,
    /// Whether it was resolved.
    pub resolved: bool,
    /// The new state, or a code that says why it was not resolved, such as claim-changed.
    pub result: String,
}

impl SeenResult {
    pub(super) fn new(claim: &SeenClaim, resolved: Result<ResolvedClaim, Refusal>) -> Self {
        let SeenClaim { key, tenant, route, .. } = claim.clone();
        let (resolved, result) = match resolved {
            Ok(resolved) => (true, resolved.state),
            Err(refusal) => (false, refusal.code().to_owned()),
        };
        Self { key, tenant, route, resolved, result }
    }
}
