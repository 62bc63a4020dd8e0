//! Records as the parameters of `insert.sql`, `replace.sql` and `claim.sql`.

use ichido_core::{DoubtReason, Holder, Metadata, Outcome, Record, State, Timestamp};
use tokio_postgres::types::Json;

use super::connections::Param;

/// How the times of a record are written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Times {
    /// Unchanged.
    AsGiven,
    /// Relative to the server's clock when the row is written, by their distance from this moment.
    CountedFrom(Timestamp),
}

impl Times {
    fn write(self, time: Timestamp) -> i64 {
        match self {
            Times::AsGiven => number(time.0),
            Times::CountedFrom(origin) => number(time.0) - number(origin.0),
        }
    }
}

/// The parameters of a record.
pub(super) struct Values<'a> {
    index: Vec<u8>,
    tenant: &'a [u8],
    route: &'a [u8],
    key: &'a [u8],
    fingerprint: &'a [u8],
    nonce: &'a [u8],
    token: &'a [u8],
    attempt: i64,
    holder: &'static str,
    lease_ms: i64,
    retention_ms: i64,
    metadata: Json<&'a Metadata>,
    renewals: i64,
    state: StateValues<'a>,
    claimed_at: i64,
    renewed_at: i64,
    over_at: i64,
    from_now: bool,
    caller: Option<&'a [u8]>,
}

/// The parameters that depend on the state; the others are null.
#[derive(Default)]
struct StateValues<'a> {
    name: &'static str,
    doubt_kind: Option<&'static str>,
    doubt_reason: Option<&'a [u8]>,
    outcome_kept: Option<bool>,
    outcome: Option<&'a [u8]>,
    doubt_at: Option<i64>,
    completed_at: Option<i64>,
}

impl<'a> Values<'a> {
    pub(super) fn of(record: &'a Record, times: Times) -> Self {
        let scope = record.key.scope();
        Self {
            index: record.key.index().as_bytes().to_vec(),
            tenant: scope.tenant.as_bytes(),
            route: scope.route.as_bytes(),
            key: record.key.text().as_bytes(),
            fingerprint: record.fingerprint.as_bytes(),
            nonce: record.nonce.as_bytes(),
            token: record.token.as_bytes(),
            attempt: i64::from(record.attempt),
            holder: match record.holder {
                Holder::Process => "process",
                Holder::Remote => "remote",
            },
            lease_ms: number(record.lease_ms),
            retention_ms: number(record.retention_ms),
            metadata: Json(&record.metadata),
            renewals: i64::from(record.renewals),
            state: StateValues::of(record, times),
            claimed_at: times.write(record.claimed_at),
            renewed_at: times.write(record.renewed_at),
            over_at: times.write(record.expires_at()),
            from_now: matches!(times, Times::CountedFrom(_)),
            caller: record.caller.as_ref().map(|caller| caller.as_bytes().as_slice()),
        }
    }

    /// In the order of the statements' parameters.
    pub(super) fn params(&self) -> [Param<'_>; 25] {
        let state = &self.state;
        [
            &self.index,
            &self.tenant,
            &self.route,
            &self.key,
            &self.fingerprint,
            &self.nonce,
            &self.token,
            &self.attempt,
            &self.holder,
            &self.lease_ms,
            &self.retention_ms,
            &self.metadata,
            &self.renewals,
            &state.name,
            &state.doubt_kind,
            &state.doubt_reason,
            &state.outcome_kept,
            &state.outcome,
            &self.claimed_at,
            &self.renewed_at,
            &state.doubt_at,
            &state.completed_at,
            &self.over_at,
            &self.from_now,
            &self.caller,
        ]
    }
}

/// The parameters of many grants, column by column.
pub(super) struct Grants<'a> {
    /// Index, tenant, route, key, fingerprint, nonce, token.
    bytes: [Vec<&'a [u8]>; 7],
    attempts: Vec<i64>,
    holders: Vec<&'static str>,
    leases_ms: Vec<i64>,
    retentions_ms: Vec<i64>,
    metadata: Vec<String>,
    doubt_after: Vec<Option<i64>>,
    over_after: Vec<i64>,
    callers: Vec<Option<&'a [u8]>>,
}

impl<'a> Grants<'a> {
    /// Grants with times relative to now.
    pub(super) fn of(grants: &'a [Values<'a>]) -> serde_json::Result<Self> {
        fn column<'v, T>(values: &'v [Values<'v>], of: impl Fn(&'v Values<'v>) -> T) -> Vec<T> {
            values.iter().map(of).collect()
        }
        let metadata = grants.iter().map(|values| serde_json::to_string(values.metadata.0));
        Ok(Self {
            bytes: [
                column(grants, |values| values.index.as_slice()),
                column(grants, |values| values.tenant),
                column(grants, |values| values.route),
                column(grants, |values| values.key),
                column(grants, |values| values.fingerprint),
                column(grants, |values| values.nonce),
                column(grants, |values| values.token),
            ],
            attempts: column(grants, |values| values.attempt),
            holders: column(grants, |values| values.holder),
            leases_ms: column(grants, |values| values.lease_ms),
            retentions_ms: column(grants, |values| values.retention_ms),
            metadata: metadata.collect::<Result<_, _>>()?,
            doubt_after: column(grants, |values| values.state.doubt_at),
            over_after: column(grants, |values| values.over_at),
            callers: column(grants, |values| values.caller),
        })
    }

    /// In the order of the parameters of `claim.sql`.
    pub(super) fn params(&self) -> [Param<'_>; 15] {
        let [index, tenant, route, key, fingerprint, nonce, token] = &self.bytes;
        [
            index,
            tenant,
            route,
            key,
            fingerprint,
            nonce,
            token,
            &self.attempts,
            &self.holders,
            &self.leases_ms,
            &self.retentions_ms,
            &self.metadata,
            &self.doubt_after,
            &self.over_after,
            &self.callers,
        ]
    }
}

impl<'a> StateValues<'a> {
    fn of(record: &'a Record, times: Times) -> Self {
        match &record.state {
            State::Running => {
                Self { name: "running", doubt_at: Some(times.write(record.lease_until())), ..Self::default() }
            }
            State::InDoubt(doubt) => {
                let (kind, reason) = match &doubt.reason {
                    DoubtReason::LeaseLapsed => ("lease-lapsed", None),
                    DoubtReason::HolderGone => ("holder-gone", None),
                    DoubtReason::Declared(reason) => ("declared", Some(reason.as_bytes())),
                };
                Self {
                    name: "in-doubt",
                    doubt_kind: Some(kind),
                    doubt_reason: reason,
                    doubt_at: Some(times.write(doubt.since)),
                    ..Self::default()
                }
            }
            State::Done(done) => {
                let (kept, outcome) = outcome(&done.outcome);
                Self {
                    name: "done",
                    outcome_kept: Some(kept),
                    outcome: Some(outcome),
                    completed_at: Some(times.write(done.completed_at)),
                    ..Self::default()
                }
            }
        }
    }
}

/// An outcome as stored: whether it was kept, and its bytes or the reason why not.
pub(super) fn outcome(outcome: &Outcome) -> (bool, &[u8]) {
    match outcome {
        Outcome::Kept(bytes) => (true, bytes),
        Outcome::Tombstone(reason) => (false, reason.as_bytes()),
    }
}

/// Limits keep all numbers far below the maximum.
pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
