//! Schemas of what the API returns.
//!
//! The responses themselves are written field by field, or are types of other crates. Nothing constructs these types.
#![expect(dead_code, reason = "only their schemas are used")]

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use utoipa::openapi::schema::{AdditionalProperties, Object, ObjectBuilder, SchemaType, Type};
use utoipa::{IntoParams, ToSchema};

/// Metadata in a request. Reserved names are refused.
pub(super) fn metadata() -> Object {
    let nullable = SchemaType::Array(vec![Type::Object, Type::Null]);
    let text = ObjectBuilder::new().schema_type(Type::String);
    let name = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .pattern(Some("^(?!ichido_)(?!(event_key|processed_at|ttl)$)"));
    ObjectBuilder::new()
        .schema_type(nullable)
        .additional_properties(Some(AdditionalProperties::from(text)))
        .property_names(Some(name))
        .description(Some(
            "Names and values that are stored with the key, 8,192 bytes in total. The names event_key, processed_at and \
             ttl, and names that start with ichido_, are reserved.",
        ))
        .build()
}

/// The content of an event in a request.
pub(super) fn content() -> Object {
    let text = ObjectBuilder::new().schema_type(Type::String).min_length(Some(1));
    let name = ObjectBuilder::new().schema_type(Type::String).min_length(Some(1));
    ObjectBuilder::new()
        .schema_type(SchemaType::Array(vec![Type::Object, Type::Null]))
        .additional_properties(Some(AdditionalProperties::from(text)))
        .property_names(Some(name))
        .max_properties(Some(8))
        .description(Some(
            "Parts of the content, such as {\"file\": \"F1\"}. The same value under the same name in an event with another key is \
             a hit. The names in the setting claims.similar.fields are compared with similar texts instead.",
        ))
        .build()
}

/// A problem, as in RFC 9457.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Problem {
    /// Identifies the problem by its last segment.
    #[serde(rename = "type")]
    kind: String,
    title: String,
    status: u16,
    detail: String,
    error: ErrorMember,
    /// The invalid field, such as events[3].key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    field: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, inline)]
    state: Option<CurrentState>,
    /// The number of claims with this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    count: Option<u64>,
}

/// The problem in the format of Stripe's API: its SDKs take a response without it for a success.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ErrorMember {
    #[serde(rename = "type")]
    #[schema(inline)]
    kind: ErrorType,
    /// The last segment of the problem's type.
    code: String,
    message: String,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::enum_variant_names, reason = "the names of Stripe's API")]
enum ErrorType {
    ApiError,
    AuthenticationError,
    IdempotencyError,
    InvalidRequestError,
}

/// The current state of the claim.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum CurrentState {
    Absent,
    Running,
    InDoubt,
    Done,
}

/// Why a claim is not granted, or why its token is not accepted.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Conflict {
    #[serde(rename = "type")]
    #[schema(inline)]
    kind: ConflictType,
    title: String,
    status: u16,
    detail: String,
    error: ErrorMember,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, inline)]
    state: Option<CurrentState>,
    /// For in-flight: how long the holder's lease lasts unless it is renewed. After that the claim is done, released or
    /// in doubt. Retry-After says when to ask again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    doubt_since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    doubt_reason: Option<String>,
    /// The stored outcome, if the claim is done.
    #[schema(required = false)]
    outcome: Value,
    /// Why there is no outcome although the claim is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    outcome_not_kept: Option<String>,
    /// Present and true if the fallback answered during an outage of the ledger.
    #[schema(required = false)]
    degraded: bool,
}

#[derive(Serialize, ToSchema)]
enum ConflictType {
    #[serde(rename = "/problems/in-flight")]
    InFlight,
    #[serde(rename = "/problems/in-doubt")]
    InDoubt,
    #[serde(rename = "/problems/key-reused")]
    KeyReused,
    #[serde(rename = "/problems/stale-token")]
    StaleToken,
}

#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Results {
    /// In the order of the events. A key that occurs twice in one batch is new once.
    results: Vec<EventResult>,
}

#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum EventResult {
    New(New),
    Duplicate(Duplicate),
    Refused(Refused),
}

/// An event that was not known before. It is known from now on.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct New {
    key: String,
    /// Always true.
    is_new: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    content_hits: Option<Vec<SameContent>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, inline)]
    similar_to: Option<SimilarTo>,
    /// The ledger is unreachable and the fallback answered: another instance may answer differently.
    degraded: bool,
}

/// An event that is already known.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Duplicate {
    key: String,
    /// Always false.
    is_new: bool,
    /// "Already processed by another instance", or "In-memory duplicate check" while `degraded`.
    reason: String,
    #[schema(format = DateTime)]
    first_seen: String,
    /// The metadata of the first request.
    metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    content_hits: Option<Vec<SameContent>>,
    /// The ledger is unreachable and the fallback answered: another instance may answer differently.
    degraded: bool,
}

/// An event whose key is new, but whose content is not.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Refused {
    key: String,
    /// Always false.
    is_new: bool,
    /// "Same content as another event" or "Similar to another event".
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    content_hits: Option<Vec<SameContent>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, inline)]
    similar_to: Option<SimilarTo>,
    /// The ledger is unreachable and the fallback answered: another instance may answer differently.
    degraded: bool,
}

/// Content that was seen in another event.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SameContent {
    /// The name of the content.
    name: String,
    /// The key of the other event.
    event: String,
    #[schema(format = DateTime)]
    first_seen: String,
}

/// The most similar text of another event.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SimilarTo {
    /// The key of the other event.
    event: String,
    /// The similarity, from 0 to 1.
    score: f64,
}

#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Granted {
    #[schema(inline)]
    state: OnlyGranted,
    /// Needed to renew, complete, release or declare in doubt.
    #[schema(pattern = "^[0-9a-fA-F]{32}$")]
    token: String,
    #[schema(minimum = 1)]
    attempt: u64,
    #[schema(minimum = 1)]
    lease_ms: u64,
    /// What is left of the lease, if this request is a retry: renew first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    left_ms: Option<u64>,
    /// Present and true if the fallback answered during an outage of the ledger.
    #[schema(required = false)]
    degraded: bool,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum OnlyGranted {
    Granted,
}

#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Done {
    #[schema(inline)]
    state: OnlyDone,
    /// The outcome exactly as it was written.
    outcome: Value,
    /// Why there is no outcome although the claim is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    outcome_not_kept: Option<String>,
    /// Present and true if the fallback answered during an outage of the ledger.
    #[schema(required = false)]
    degraded: bool,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum OnlyDone {
    Done,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum OnlyAbsent {
    Absent,
}

#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Settled {
    #[schema(inline)]
    state: SettledState,
    /// The new lease, after renewing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1)]
    lease_ms: Option<u64>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum SettledState {
    Running,
    Done,
    Released,
    InDoubt,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListParameters {
    /// Only claims in this state.
    #[param(required = false, inline)]
    state: ClaimState,
    /// Only keys that start with this text.
    #[param(required = false)]
    prefix: String,
    /// The most claims on one page.
    #[param(required = false, minimum = 1, maximum = 1_000, default = 100)]
    limit: u64,
    /// The cursor of the page before.
    #[param(required = false)]
    cursor: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ClaimParameters {
    #[param(min_length = 1, max_length = 1024)]
    key: String,
    /// Needed if several claims have the same key.
    #[param(required = false, max_length = 1024)]
    tenant: String,
    /// Needed if several claims have the same key.
    #[param(required = false, max_length = 1024)]
    route: String,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum ClaimState {
    Running,
    Done,
    InDoubt,
}

/// Who renews the lease.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum Holder {
    Process,
    Remote,
}

#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    claims: Vec<Summary>,
    /// The cursor of the next page, if there may be one.
    #[schema(required = true)]
    cursor: Option<String>,
    /// The ledger is unreachable: these are only the claims that this process granted during the outage. Left out if
    /// false.
    #[schema(required = false)]
    degraded: bool,
}

macro_rules! claim_schema {
    ($(#[$attribute:meta])* $name:ident { $($(#[$field_attribute:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$attribute])*
        #[derive(Serialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name {
            key: String,
            tenant: String,
            route: String,
            /// The hash that identifies the key in a store.
            index: String,
            #[schema(inline)]
            state: ClaimState,
            /// Names this state of the claim: a newer grant and a renewed lease have another version.
            version: String,
            /// How often the claim was granted.
            #[schema(minimum = 1)]
            attempt: u64,
            #[schema(inline)]
            holder: Holder,
            /// Milliseconds since the Unix epoch.
            claimed_at: u64,
            /// Milliseconds since the Unix epoch.
            renewed_at: u64,
            /// Milliseconds since the Unix epoch.
            #[schema(required = false)]
            lease_until: u64,
            /// Milliseconds since the Unix epoch.
            #[schema(required = false)]
            doubt_since: u64,
            #[schema(required = false)]
            doubt_reason: String,
            /// Milliseconds since the Unix epoch.
            #[schema(required = false)]
            completed_at: u64,
            /// Milliseconds since the Unix epoch.
            #[schema(required = false)]
            expires_at: u64,
            #[schema(required = false)]
            outcome_bytes: u64,
            #[schema(required = false)]
            metadata: BTreeMap<String, String>,
            /// Granted by this process during an outage, and not handed over to the ledger yet. Left out if false.
            #[schema(required = false)]
            local: bool,
            $($(#[$field_attribute])* $field: $type,)*
        }
    };
}

claim_schema! {
    /// A claim in a list.
    Summary {}
}

claim_schema! {
    /// Everything about a claim except its token.
    ClaimView {
        fingerprint: String,
        renewals: u64,
        lease_ms: u64,
        retention_ms: u64,
        /// The outcome, if it is not an HTTP response.
        #[schema(required = false)]
        outcome: Value,
        /// The stored HTTP response.
        #[schema(required = false)]
        answer: Object,
        /// Why there is no outcome although the claim is done.
        #[schema(required = false)]
        answer_not_kept: String,
    }
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct TriageParameters {
    /// Only claims on this route, such as POST /orders.
    #[param(required = false)]
    route: String,
    /// Only claims whose reason contains this text.
    #[param(required = false)]
    reason: String,
    /// Only claims of this tenant.
    #[param(required = false)]
    tenant: String,
    /// Only claims that have been in doubt for so long.
    #[param(required = false, minimum = 0, maximum = 1_000_000_000)]
    older_than_seconds: u64,
    /// The most claims that are listed. All are counted.
    #[param(required = false, minimum = 1, maximum = 1_000, default = 100)]
    limit: u64,
}

/// Claims in doubt.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Triage {
    /// How many claims match.
    matched: u64,
    /// Whether all claims in doubt were read. At most 10,000 are.
    complete: bool,
    /// The ledger is unreachable: these are only the claims that this process granted during the outage. Left out if
    /// false.
    #[schema(required = false)]
    degraded: bool,
    /// Counts by route and reason, the largest first, at most 100.
    groups: Vec<crate::operator::Group>,
    /// Oldest first.
    claims: Vec<Summary>,
}

/// A claim, and what the service behind it says about its effect.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AskedClaim {
    key: String,
    tenant: String,
    route: String,
    /// The hash that identifies the key in a store.
    index: String,
    #[schema(inline)]
    state: ClaimState,
    /// Names the state of the claim that was asked about.
    version: String,
    /// What the service said.
    #[schema(pattern = "^(done|absent|undecided)$")]
    answer: String,
    /// The status of its response, if there was one.
    #[schema(required = true)]
    status: Option<u16>,
    /// What it said, as a sentence.
    detail: String,
    /// How the claim would be resolved, if anything follows.
    #[schema(required = true)]
    follows: Option<crate::operator::ResolveKind>,
    /// What follows, as a sentence.
    means: String,
    /// Whether the same question finds a completed request of the route: found, not-found, or nothing if there is none to ask
    /// about. Null unless the service says that the effect did not happen.
    #[schema(required = true)]
    control: Option<String>,
    /// After how many seconds such an answer counts, if it is too early now.
    #[schema(required = true)]
    wait_seconds: Option<u64>,
    /// How the claim was resolved.
    #[schema(required = true)]
    resolved: Option<String>,
}

/// How a claim in doubt ended.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum Resolve {
    DoneWithOutcome(ResolveDoneWithOutcome),
    Done(ResolveDone),
    Absent(ResolveAbsent),
}

macro_rules! resolve_schema {
    ($(#[$attribute:meta])* $name:ident as $state:ty { $($(#[$field_attribute:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$attribute])*
        #[derive(Serialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name {
            /// 1 to 1,024 bytes of UTF-8.
            #[schema(min_length = 1, max_length = 1024)]
            key: String,
            /// Needed if several claims have the same key.
            #[schema(max_length = 1024)]
            tenant: Option<String>,
            /// Needed if several claims have the same key. Claims of this API have the tenant "" and the route /v1/claims.
            #[schema(max_length = 1024)]
            route: Option<String>,
            #[serde(rename = "as")]
            #[schema(inline)]
            state: $state,
            $($(#[$field_attribute])* $field: $type,)*
        }
    };
}

resolve_schema! {
    /// The effect happened, with this outcome.
    ResolveDoneWithOutcome as OnlyDone {
        /// Stored exactly as written. Retries get it as their response.
        outcome: Value,
    }
}

resolve_schema! {
    /// The effect happened.
    ResolveDone as OnlyDone {
        /// The outcome as text. Without it, retries learn that the response was not kept.
        outcome_text: Option<String>,
    }
}

resolve_schema! {
    /// The effect did not happen. The next request with this key runs it.
    ResolveAbsent as OnlyAbsent {}
}

#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Swept {
    /// Expired claims and marks that were removed.
    removed: u64,
    /// Of these, claims that were in doubt and never resolved.
    doubts_ended: u64,
    /// Whether there may be more to remove: call again.
    more: bool,
}

/// What was read, and what is damaged.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Verified {
    /// The last commit.
    commit: u64,
    /// Files with commits.
    segments: u64,
    /// Bytes of commits.
    bytes: u64,
    /// Records of claims, including those that were replaced or have expired.
    claims: u64,
    /// Records of marks, including those that have expired.
    marks: u64,
    /// What is damaged, and what to do. Empty if the ledger is intact.
    problems: Vec<String>,
}

/// A copy of the ledger.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Backup {
    /// The last commit in the copy.
    commit: u64,
    /// Copied files.
    files: u64,
    /// Copied bytes.
    bytes: u64,
}

/// How much is stored. Null where counting would need a full scan.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Stats {
    #[schema(required = true)]
    running: Option<u64>,
    #[schema(required = true)]
    in_doubt: Option<u64>,
    #[schema(required = true)]
    done: Option<u64>,
    #[schema(required = true)]
    marks: Option<u64>,
    /// The state of the fallback. Left out if this process has none.
    #[schema(required = false)]
    fallback: FallbackStatus,
}

#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct FallbackStatus {
    /// The ledger is unreachable and the fallback answers. The counts are those of the fallback.
    degraded: bool,
    /// Claims that are not in the ledger yet.
    owed_claims: u64,
    /// Marks that are not in the ledger yet.
    owed_marks: u64,
    /// Of these, keys whose record in the ledger cannot be read.
    refused: u64,
    /// Keys that another instance used as well, the latest first.
    conflicts: Vec<KeyConflict>,
}

#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct KeyConflict {
    key: String,
    tenant: String,
    route: String,
    index: String,
    kind: ConflictKind,
    #[schema(minimum = 1)]
    count: u64,
    /// Milliseconds since the Unix epoch.
    found_at: u64,
}

#[derive(Serialize, ToSchema)]
#[serde(tag = "what", rename_all = "kebab-case")]
enum ConflictKind {
    Mark,
    Claim {
        #[schema(inline)]
        local_state: ClaimState,
    },
}

/// What the ledger guarantees.
#[derive(Serialize, ToSchema)]
pub(super) struct Capabilities {
    backend: String,
    reach: String,
    survives: Vec<String>,
    expiry: String,
    fencing: String,
    listing: String,
    clock: String,
    outcome_bytes: u64,
}

#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Alive {
    /// Always "ok".
    status: String,
}

#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Readiness {
    #[schema(inline)]
    status: ReadinessStatus,
    checks: Vec<Check>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum ReadinessStatus {
    Ready,
    NotReady,
}

#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Check {
    name: String,
    ok: bool,
    #[schema(required = false)]
    detail: String,
}
