//! Records as values.

use std::borrow::Cow;

use ichido_core::{
    DoubtReason, MarkKey, Metadata, Nonce, Outcome, Record, Settle, State, Timestamp, Token, mark, to_hex,
};
use redis::Cmd;
use serde::Serialize;

use super::layout::{
    COUNT, DECLARED, Event, FORMAT, FORMAT_CALLER, Fixed, GONE, HEAD, KEPT, LAPSED, LENGTH, RUNNING,
    STATE_AT, TIME, TIMES_AT, TOMBSTONE,
};
use crate::{Error, Kind, Result};

/// The longest duration and the latest time: sums of a few still fit into a head, and Lua computes them exactly.
const TIME_MAX: u64 = 999_999_999_999_999;
/// Versions start again at this number.
const VERSION_LIMIT: u64 = 10_000_000_000;

/// Adds the arguments of `grant.lua`, whose times are relative to the server's clock.
pub(super) fn grant(command: &mut Cmd, record: &Record, version: u64) -> Result<()> {
    let from_claim = |time: Timestamp| time.ms_since(record.claimed_at).min(TIME_MAX);
    let mut value = buffer(record, 0);
    push_opening(&mut value, format(record), record.token, RUNNING, 0);
    push_rest(&mut value, record, version)?;
    let (start, rest) = value.split_at(TIMES_AT);
    command.arg(start).arg(from_claim(record.lease_until())).arg(from_claim(record.expires_at())).arg(rest);
    Ok(())
}

/// A claim in its current state.
pub(super) fn claim(record: &Record, version: u64) -> Result<Vec<u8>> {
    let (state, since, tail) = match &record.state {
        State::Running => (RUNNING, record.lease_until(), &[][..]),
        State::InDoubt(doubt) => match &doubt.reason {
            DoubtReason::LeaseLapsed => (LAPSED, doubt.since, &[][..]),
            DoubtReason::HolderGone => (GONE, doubt.since, &[][..]),
            DoubtReason::Declared(reason) => (DECLARED, doubt.since, reason.as_bytes()),
        },
        State::Done(done) => {
            let (state, tail) = outcome(&done.outcome);
            (state, done.completed_at, tail)
        }
    };
    let mut value = buffer(record, tail.len());
    push_opening(&mut value, format(record), record.token, state, tail.len());
    for time in [since, record.expires_at(), record.claimed_at, record.renewed_at] {
        number(&mut value, time.0, TIME);
    }
    push_rest(&mut value, record, version)?;
    value.extend_from_slice(tail);
    Ok(value)
}

/// Adds the arguments of `settle.lua`: the token, the action, and what it writes.
pub(super) fn settle(command: &mut Cmd, token: Token, action: &Settle) {
    let (state, tail) = match action {
        Settle::Complete(done) => outcome(done),
        Settle::Doubt(reason) => (DECLARED, reason.as_bytes()),
        Settle::Renew { .. } | Settle::Release => (RUNNING, &[][..]),
    };
    let mut start = Vec::with_capacity(TIMES_AT);
    // The claim keeps its format.
    push_opening(&mut start, FORMAT, token, state, tail.len());
    let (prefix, state) = start.split_at(STATE_AT);
    command.arg(&prefix[1..]);
    match action {
        Settle::Complete(_) => command.arg("complete").arg(state).arg(tail),
        Settle::Doubt(_) => command.arg("doubt").arg(state).arg(tail),
        Settle::Renew { lease_ms } => command.arg("renew").arg(lease_ms.min(&TIME_MAX)),
        Settle::Release => command.arg("release"),
    };
}

/// The version after this one.
pub(super) fn next(version: u64) -> u64 {
    (version + 1) % VERSION_LIMIT
}

/// When a claim expires, as an argument of `put.lua`.
pub(super) fn expiry(record: &Record) -> Option<u64> {
    match record.state {
        State::Running | State::InDoubt(_) => None,
        State::Done(_) => Some(record.expires_at().0.min(TIME_MAX)),
    }
}

/// The state and the tail of a completed claim.
fn outcome(outcome: &Outcome) -> (u8, &[u8]) {
    match outcome {
        Outcome::Kept(bytes) => (KEPT, bytes),
        Outcome::Tombstone(reason) => (TOMBSTONE, reason.as_bytes()),
    }
}

fn format(record: &Record) -> u8 {
    if record.caller.is_some() { FORMAT_CALLER } else { FORMAT }
}

/// The value of a claim up to its times: format and token, then the state and the length of the tail.
fn push_opening(value: &mut Vec<u8>, format: u8, token: Token, state: u8, tail: usize) {
    value.push(format);
    value.extend_from_slice(to_hex(token.as_bytes()).as_bytes());
    value.push(state);
    number(value, tail as u64, COUNT);
}

/// Adds the arguments of `mark.lua`: the retention, and what follows the mark's times.
pub(super) fn mark(command: &mut Cmd, request: &mark::Request) -> Result<()> {
    let mut value = Vec::with_capacity(128);
    push_event(&mut value, &request.key, request.nonce, &request.metadata)?;
    // Redis does not accept a key that expires at once.
    command.arg(request.retention_ms.clamp(1, TIME_MAX)).arg(value);
    Ok(())
}

/// The value of a mark.
pub(super) fn stored_mark(record: &mark::Record) -> Result<Vec<u8>> {
    let mut value = vec![FORMAT];
    number(&mut value, record.marked_at.0, TIME);
    number(&mut value, record.expires_at.0, TIME);
    push_event(&mut value, &record.key, record.nonce, &record.metadata)?;
    Ok(value)
}

fn push_event(value: &mut Vec<u8>, key: &MarkKey, nonce: Nonce, metadata: &Metadata) -> Result<()> {
    json(value, &Event { key: Cow::Borrowed(key.text()), nonce, metadata: Cow::Borrowed(metadata) })
}

fn buffer(record: &Record, tail: usize) -> Vec<u8> {
    let scope = record.key.scope();
    let texts = scope.tenant.len() + scope.route.len() + record.key.text().len();
    // Names and digits of the JSON take about 200 bytes.
    Vec::with_capacity(HEAD + 256 + texts + tail)
}

/// The value of a claim from its version to its tail.
fn push_rest(value: &mut Vec<u8>, record: &Record, version: u64) -> Result<()> {
    number(value, version, COUNT);
    number(value, u64::from(record.renewals), COUNT);
    number(value, record.lease_ms, TIME);
    number(value, record.retention_ms, TIME);
    let length = value.len();
    number(value, 0, LENGTH);
    let scope = record.key.scope();
    let fixed = Fixed {
        tenant: Cow::Borrowed(&scope.tenant),
        route: Cow::Borrowed(&scope.route),
        key: Cow::Borrowed(record.key.text()),
        fingerprint: record.fingerprint,
        caller: record.caller,
        nonce: record.nonce,
        attempt: record.attempt,
        holder: record.holder,
        metadata: Cow::Borrowed(&record.metadata),
    };
    json(value, &fixed)?;
    let start = length + LENGTH;
    let bytes = value.len() - start;
    write_digits(&mut value[length..start], bytes as u64);
    Ok(())
}

fn number(value: &mut Vec<u8>, number: u64, width: usize) {
    let start = value.len();
    value.resize(start + width, b'0');
    write_digits(&mut value[start..], number.min(TIME_MAX));
}

fn write_digits(target: &mut [u8], mut number: u64) {
    for digit in target.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

fn json(value: &mut Vec<u8>, what: &impl Serialize) -> Result<()> {
    serde_json::to_writer(value, what).map_err(|cause| {
        Error::new(Kind::Corrupt("a record cannot be serialized as JSON".to_owned()), "writing to Redis")
            .caused_by(cause)
    })
}
