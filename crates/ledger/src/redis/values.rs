//! Records, written as arguments of scripts.

use ichido_core::mark;
use ichido_core::{DoubtReason, Holder, Metadata, Outcome, Record, State, Timestamp};

use super::record::{FORMAT, Found};
use crate::{Error, Kind, Result};

/// How the times of a record are written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Times {
    /// As they are.
    AsGiven,
    /// As far from the server's clock at the moment of writing as they are from this moment.
    CountedFrom(Timestamp),
}

impl Times {
    fn write(self, time: Timestamp) -> Vec<u8> {
        match self {
            Times::AsGiven => time.to_string(),
            // Every time of a grant is at or after the grant.
            Times::CountedFrom(origin) => time.ms_since(origin).to_string(),
        }
        .into_bytes()
    }
}

/// The arguments of `put.lua`: over `seen`, or if the key is absent.
pub(super) fn put(record: &Record, seen: Option<&Found>, times: Times) -> Result<Vec<Vec<u8>>> {
    let (token, version) =
        seen.map_or_else(Default::default, |seen| (hex(seen.record.token.as_bytes()), seen.version.clone()));
    let (doubt_at, completed_at) = match &record.state {
        State::Running => (times.write(record.lease_until()), Vec::new()),
        State::InDoubt(doubt) => (times.write(doubt.since), Vec::new()),
        State::Done(done) => (Vec::new(), times.write(done.completed_at)),
    };
    let mut values = vec![
        token,
        version,
        flag(matches!(times, Times::CountedFrom(_))),
        flag(matches!(record.state, State::Done(_))),
        times.write(record.claimed_at),
        times.write(record.renewed_at),
        doubt_at,
        completed_at,
        times.write(record.over_at()),
    ];
    let mut set = |name: &str, value: &[u8]| values.extend([name.as_bytes().to_vec(), value.to_vec()]);
    set("format", FORMAT.as_bytes());
    set("tenant", record.key.scope().tenant.as_bytes());
    set("route", record.key.scope().route.as_bytes());
    set("key", record.key.text().as_bytes());
    set("fingerprint", &hex(record.fingerprint.as_bytes()));
    set("nonce", &hex(record.nonce.as_bytes()));
    set("token", &hex(record.token.as_bytes()));
    set("attempt", record.attempt.to_string().as_bytes());
    set("holder", holder(record.holder));
    set("renewals", record.renewals.to_string().as_bytes());
    set("lease_ms", record.lease_ms.to_string().as_bytes());
    set("retention_ms", record.retention_ms.to_string().as_bytes());
    set("metadata", &metadata(&record.metadata)?);
    put_state(&record.state, set);
    Ok(values)
}

fn put_state(state: &State, mut set: impl FnMut(&str, &[u8])) {
    match state {
        State::Running => set("state", b"running"),
        State::InDoubt(doubt) => {
            set("state", b"in-doubt");
            match &doubt.reason {
                DoubtReason::LeaseLapsed => set("doubt_kind", b"lease-lapsed"),
                DoubtReason::HolderGone => set("doubt_kind", b"holder-gone"),
                DoubtReason::Declared(reason) => {
                    set("doubt_kind", b"declared");
                    set("doubt_reason", reason.as_bytes());
                }
            }
        }
        State::Done(done) => {
            let (kept, bytes) = outcome(&done.outcome);
            set("state", b"done");
            set("outcome_kept", &kept);
            set("outcome", bytes);
        }
    }
}

/// The arguments of `mark.lua`.
pub(super) fn mark(request: &mark::Request) -> Result<Vec<Vec<u8>>> {
    let mut values = vec![request.retention_ms.to_string().into_bytes()];
    let mut set = |name: &str, value: &[u8]| values.extend([name.as_bytes().to_vec(), value.to_vec()]);
    set("format", FORMAT.as_bytes());
    set("key", request.key.text().as_bytes());
    set("nonce", &hex(request.nonce.as_bytes()));
    set("metadata", &metadata(&request.metadata)?);
    Ok(values)
}

/// An outcome as it is stored: whether it was kept, and its bytes or the reason why not.
pub(super) fn outcome(outcome: &Outcome) -> (Vec<u8>, &[u8]) {
    match outcome {
        Outcome::Kept(bytes) => (flag(true), bytes),
        Outcome::Tombstone(reason) => (flag(false), reason.as_bytes()),
    }
}

/// An id as it is stored.
pub(super) fn hex(bytes: &[u8]) -> Vec<u8> {
    hex::encode(bytes).into_bytes()
}

fn holder(holder: Holder) -> &'static [u8] {
    match holder {
        Holder::Process => b"process",
        Holder::Remote => b"remote",
    }
}

fn flag(on: bool) -> Vec<u8> {
    if on { b"1".to_vec() } else { b"0".to_vec() }
}

fn metadata(metadata: &Metadata) -> Result<Vec<u8>> {
    serde_json::to_vec(metadata).map_err(|cause| {
        Error::new(Kind::Corrupt("metadata cannot be written as JSON".to_owned()), "writing to Redis")
            .caused_by(cause)
    })
}
