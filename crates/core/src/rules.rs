//! The state table, as pure functions.
//!
//! Each function takes what is remembered, what is asked and the time, and returns the answer together with the
//! change to write. A backend must make reading, deciding and writing one atomic step; what it decides is here.

use crate::mark::{self, Mark};
use crate::{
    Adopted, Caller, Claim, ClaimRequest, Done, Doubt, DoubtReason, Grant, InDoubtPolicy, Now, Outcome,
    Phase, Record, Resolution, Resolved, Settle, Settled, State, Timestamp, Token,
};

/// An answer, and what must be written before it may be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step<A, R> {
    /// What the caller is told.
    pub answer: A,
    /// What the store does first.
    pub change: Change<R>,
}

/// A change of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<R> {
    /// Nothing to write.
    Keep,
    /// Write this record in place of the old.
    Put(R),
    /// Remove the record.
    Remove,
}

impl<A, R> Step<A, R> {
    fn keep(answer: A) -> Self {
        Step { answer, change: Change::Keep }
    }

    fn put(answer: A, record: R) -> Self {
        Step { answer, change: Change::Put(record) }
    }
}

/// A claim on a key.
pub fn claim(current: Option<&Record>, request: &ClaimRequest, now: Timestamp) -> Step<Claim, Record> {
    let Some(record) = current else { return grant(request, 1, now) };
    match record.phase(now) {
        Phase::Over { .. } => grant(request, 1, now),
        _ if Caller::is_other(request.caller, record.caller) => Step::keep(Claim::CallerChanged),
        _ if record.fingerprint != request.fingerprint => Step::keep(Claim::Mismatch),
        // The holder itself said that the effect may have happened: its own call must not run it again, nor take it over.
        Phase::InDoubt(doubt @ Doubt { reason: DoubtReason::Declared(_), .. })
            if record.nonce == request.nonce =>
        {
            Step::keep(Claim::InDoubt(doubt))
        }
        Phase::Running { .. } | Phase::InDoubt(_) if record.nonce == request.nonce => {
            Step::keep(Claim::Granted(grant_of(record, now)))
        }
        Phase::Running { left_ms } => Step::keep(Claim::Held { retry_after_ms: left_ms }),
        Phase::InDoubt(doubt) => match request.in_doubt {
            InDoubtPolicy::Retry { silent_ms } if now >= record.renewed_at + silent_ms => {
                grant(request, record.attempt.saturating_add(1), now)
            }
            InDoubtPolicy::Retry { .. } | InDoubtPolicy::Reject => Step::keep(Claim::InDoubt(doubt)),
        },
        Phase::Done(done) => Step::keep(Claim::Done(done.outcome.clone())),
    }
}

/// A holder's word on its claim. Only the token is compared, never a snapshot.
pub fn settle(
    current: Option<&Record>,
    token: Token,
    word: &Settle,
    now: Timestamp,
) -> Step<Settled, Record> {
    let Some(record) = current else { return Step::keep(Settled::Stale(Now::Absent)) };
    let standing = standing(record, now);
    if record.token != token {
        return Step::keep(Settled::Stale(standing));
    }
    match (standing, word) {
        (Now::Running | Now::InDoubt, _) => settle_open(record, word, now),
        (Now::Done(_), Settle::Complete(_)) => Step::keep(Settled::Applied),
        (stale @ (Now::Done(_) | Now::Absent), _) => Step::keep(Settled::Stale(stale)),
    }
}

/// An operator's word on a claim.
pub fn resolve(current: Option<&Record>, word: &Resolution, now: Timestamp) -> Step<Resolved, Record> {
    let Some(record) = current else { return Step::keep(Resolved::Refused(Now::Absent)) };
    match (standing(record, now), word) {
        (Now::InDoubt, Resolution::Done(outcome)) => {
            Step::put(Resolved::Applied, done(record, outcome.clone(), now))
        }
        (Now::InDoubt, Resolution::Absent | Resolution::Release) | (Now::Running, Resolution::Release) => {
            Step { answer: Resolved::Applied, change: Change::Remove }
        }
        (standing @ (Now::Running | Now::Done(_) | Now::Absent), _) => {
            Step::keep(Resolved::Refused(standing))
        }
    }
}

/// A mark on an event.
pub fn mark(
    current: Option<&mark::Record>,
    request: &mark::Request,
    now: Timestamp,
) -> Step<Mark, mark::Record> {
    match current {
        Some(record) if now < record.expires_at => Step::keep(if record.nonce == request.nonce {
            Mark::New
        } else {
            Mark::Seen { first_seen: record.marked_at, metadata: record.metadata.clone() }
        }),
        Some(_) | None => Step::put(
            Mark::New,
            mark::Record {
                key: request.key.clone(),
                nonce: request.nonce,
                marked_at: now,
                expires_at: now + request.retention_ms,
                metadata: request.metadata.clone(),
            },
        ),
    }
}

/// A record that comes from another ledger: put if the key is free or held by the same grant; else the first wins.
///
/// A running claim gets a whole lease from now on, as if its holder had renewed it: the other ledger's clock means
/// nothing here.
pub fn adopt(current: Option<&Record>, foreign: &Record, now: Timestamp) -> Step<Adopted, Record> {
    let free = match current {
        None => true,
        Some(record) => match record.phase(now) {
            Phase::Over { .. } => true,
            Phase::Running { .. } | Phase::InDoubt(_) => record.token == foreign.token,
            Phase::Done(_) if record.token == foreign.token => return Step::keep(Adopted::Stored),
            Phase::Done(_) => false,
        },
    };
    if !free {
        return Step::keep(Adopted::Conflict);
    }
    let record = match foreign.state {
        State::Running => {
            Record { renewed_at: now, renewals: foreign.renewals.saturating_add(1), ..foreign.clone() }
        }
        State::InDoubt(_) | State::Done(_) => foreign.clone(),
    };
    Step::put(Adopted::Stored, record)
}

/// What holds now, for someone who may not change it.
pub fn standing(record: &Record, now: Timestamp) -> Now {
    match record.phase(now) {
        Phase::Running { .. } => Now::Running,
        Phase::InDoubt(_) => Now::InDoubt,
        Phase::Done(done) => Now::Done(done.outcome.clone()),
        Phase::Over { .. } => Now::Absent,
    }
}

fn grant(request: &ClaimRequest, attempt: u32, now: Timestamp) -> Step<Claim, Record> {
    let record = Record {
        key: request.key.clone(),
        fingerprint: request.fingerprint,
        caller: request.caller,
        nonce: request.nonce,
        token: request.token,
        attempt,
        holder: request.holder,
        claimed_at: now,
        renewed_at: now,
        renewals: 0,
        lease_ms: request.lease_ms,
        retention_ms: request.retention_ms,
        metadata: request.metadata.clone(),
        state: State::Running,
    };
    Step::put(Claim::Granted(grant_of(&record, now)), record)
}

fn grant_of(record: &Record, now: Timestamp) -> Grant {
    let left_ms = record.lease_until().ms_since(now);
    Grant { token: record.token, attempt: record.attempt, lease_ms: record.lease_ms, left_ms }
}

fn settle_open(record: &Record, word: &Settle, now: Timestamp) -> Step<Settled, Record> {
    let next = match word {
        Settle::Release => return Step { answer: Settled::Applied, change: Change::Remove },
        Settle::Complete(outcome) => done(record, outcome.clone(), now),
        Settle::Renew { lease_ms } => Record {
            renewed_at: now,
            renewals: record.renewals.saturating_add(1),
            lease_ms: *lease_ms,
            state: State::Running,
            ..record.clone()
        },
        Settle::Doubt(reason) => {
            let since = match record.phase(now) {
                Phase::InDoubt(doubt) => doubt.since,
                Phase::Running { .. } | Phase::Done(_) | Phase::Over { .. } => now,
            };
            let doubt = Doubt { since, reason: DoubtReason::Declared(reason.clone()) };
            Record { state: State::InDoubt(doubt), ..record.clone() }
        }
    };
    Step::put(Settled::Applied, next)
}

fn done(record: &Record, outcome: Outcome, now: Timestamp) -> Record {
    Record { state: State::Done(Done { outcome, completed_at: now }), ..record.clone() }
}

#[cfg(test)]
mod tests;
