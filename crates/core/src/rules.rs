//! The state table of claims and marks, as pure functions.
//!
//! Each function takes the current record, a request and the time, and returns the result and the change to write. A
//! backend must read, decide and write in one atomic step.

use crate::mark::{self, Erased, Forgotten, Mark};
use crate::{
    Adopted, Caller, Claim, ClaimRequest, CurrentState, Done, Doubt, DoubtReason, Grant, InDoubtPolicy,
    Nonce, Outcome, Phase, Record, Resolution, Resolved, Seen, Settle, Settled, State, Timestamp, Token,
};

/// A result, and the change that must be written before the result is returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<T, R> {
    /// The result for the caller.
    pub result: T,
    /// The change to write first.
    pub change: Change<R>,
}

/// A change to one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<R> {
    /// Nothing to write.
    Keep,
    /// Write this record instead of the old one.
    Put(R),
    /// Remove the record.
    Remove,
}

impl<T, R> Decision<T, R> {
    fn keep(result: T) -> Self {
        Decision { result, change: Change::Keep }
    }

    fn put(result: T, record: R) -> Self {
        Decision { result, change: Change::Put(record) }
    }
}

/// Claims a key.
pub fn claim(current: Option<&Record>, request: &ClaimRequest, now: Timestamp) -> Decision<Claim, Record> {
    let Some(record) = current else { return grant(request, 1, now) };
    match record.phase(now) {
        Phase::Expired { .. } => grant(request, 1, now),
        _ if Caller::is_other(request.caller, record.caller) => Decision::keep(Claim::CallerChanged),
        _ if record.fingerprint != request.fingerprint => Decision::keep(Claim::Mismatch),
        // The holder itself declared that the effect may have happened, so its own call must neither run it again nor
        // take the claim over.
        Phase::InDoubt(doubt @ Doubt { reason: DoubtReason::Declared(_), .. })
            if record.nonce == request.nonce =>
        {
            Decision::keep(Claim::InDoubt(doubt))
        }
        Phase::Running { .. } | Phase::InDoubt(_) if record.nonce == request.nonce => {
            Decision::keep(Claim::Granted(grant_of(record, now)))
        }
        Phase::Running { left_ms } => Decision::keep(Claim::Held { retry_after_ms: left_ms }),
        Phase::InDoubt(doubt) => match request.in_doubt {
            InDoubtPolicy::Retry { silent_ms } if now >= record.renewed_at + silent_ms => {
                grant(request, record.attempt.saturating_add(1), now)
            }
            InDoubtPolicy::Retry { .. } | InDoubtPolicy::Reject => Decision::keep(Claim::InDoubt(doubt)),
        },
        Phase::Done(done) => Decision::keep(Claim::Done(done.outcome.clone())),
    }
}

/// Settles a claim. Only the token is compared, never the rest of the record.
pub fn settle(
    current: Option<&Record>,
    token: Token,
    action: &Settle,
    now: Timestamp,
) -> Decision<Settled, Record> {
    let Some(record) = current else { return Decision::keep(Settled::Stale(CurrentState::Absent)) };
    let state = current_state(record, now);
    if record.token != token {
        return Decision::keep(Settled::Stale(state));
    }
    match (state, action) {
        (CurrentState::Running | CurrentState::InDoubt, _) => settle_open(record, action, now),
        (CurrentState::Done(_), Settle::Complete(_)) => Decision::keep(Settled::Applied),
        (stale @ (CurrentState::Done(_) | CurrentState::Absent), _) => Decision::keep(Settled::Stale(stale)),
    }
}

/// Resolves a claim for an operator.
pub fn resolve(
    current: Option<&Record>,
    resolution: &Resolution,
    now: Timestamp,
) -> Decision<Resolved, Record> {
    let Some(record) = current else { return Decision::keep(Resolved::Refused(CurrentState::Absent)) };
    match (current_state(record, now), resolution) {
        (CurrentState::InDoubt, Resolution::Done(outcome)) => {
            Decision::put(Resolved::Applied, done(record, outcome.clone(), now))
        }
        (CurrentState::InDoubt, Resolution::DoneAsSeen(seen, outcome)) if *seen == Seen::of(record) => {
            Decision::put(Resolved::Applied, done(record, outcome.clone(), now))
        }
        (CurrentState::InDoubt, Resolution::AbsentAsSeen(seen)) if *seen == Seen::of(record) => {
            Decision { result: Resolved::Applied, change: Change::Remove }
        }
        (CurrentState::InDoubt, Resolution::Absent | Resolution::Release)
        | (CurrentState::Running, Resolution::Release) => {
            Decision { result: Resolved::Applied, change: Change::Remove }
        }
        (CurrentState::Done(_), Resolution::Forget(token)) if record.token == *token => {
            Decision { result: Resolved::Applied, change: Change::Remove }
        }
        (CurrentState::Done(_), Resolution::Erase(token)) if record.token == *token => {
            match record.key.is_erased() {
                true => Decision::keep(Resolved::Applied),
                false => Decision::put(Resolved::Applied, record.erased()),
            }
        }
        (
            state @ (CurrentState::Absent
            | CurrentState::Running
            | CurrentState::InDoubt
            | CurrentState::Done(_)),
            _,
        ) => Decision::keep(Resolved::Refused(state)),
    }
}

/// Marks an event.
pub fn mark(
    current: Option<&mark::Record>,
    request: &mark::Request,
    now: Timestamp,
) -> Decision<Mark, mark::Record> {
    match current {
        Some(record) if now < record.expires_at => Decision::keep(if record.nonce == request.nonce {
            Mark::New
        } else {
            Mark::Seen { first_seen: record.marked_at, metadata: record.metadata.clone() }
        }),
        Some(_) | None => Decision::put(
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

/// Forgets a mark for an operator, if it is still the one that the operator saw.
pub fn forget_mark(
    current: Option<&mark::Record>,
    seen: Nonce,
    now: Timestamp,
) -> Decision<Forgotten, mark::Record> {
    match current {
        Some(record) if now < record.expires_at && record.nonce == seen => {
            Decision { result: Forgotten::Removed, change: Change::Remove }
        }
        Some(_) | None => Decision::keep(Forgotten::Gone),
    }
}

/// Erases what callers wrote in a mark, if it is still the one that was seen. The event stays marked.
pub fn erase_mark(
    current: Option<&mark::Record>,
    seen: Nonce,
    now: Timestamp,
) -> Decision<Erased, mark::Record> {
    match current {
        Some(record) if now < record.expires_at && record.nonce == seen => match record.key.is_erased() {
            true => Decision::keep(Erased::Whole),
            false => Decision::put(Erased::Whole, record.erased()),
        },
        Some(_) | None => Decision::keep(Erased::Gone),
    }
}

/// Adopts a record from a different ledger: stores it if the key is free or held by the same grant, otherwise the first
/// record stays.
///
/// A running claim gets a full lease from now on, as if its holder had renewed it, because the clock of the other ledger
/// means nothing here.
pub fn adopt(current: Option<&Record>, foreign: &Record, now: Timestamp) -> Decision<Adopted, Record> {
    let free = match current {
        None => true,
        Some(record) => match record.phase(now) {
            Phase::Expired { .. } => true,
            Phase::Running { .. } | Phase::InDoubt(_) => record.token == foreign.token,
            Phase::Done(_) if record.token == foreign.token => return Decision::keep(Adopted::Stored),
            Phase::Done(_) => false,
        },
    };
    if !free {
        return Decision::keep(Adopted::Conflict);
    }
    let record = match foreign.state {
        State::Running => {
            Record { renewed_at: now, renewals: foreign.renewals.saturating_add(1), ..foreign.clone() }
        }
        State::InDoubt(_) | State::Done(_) => foreign.clone(),
    };
    Decision::put(Adopted::Stored, record)
}

/// The current state of a claim.
pub fn current_state(record: &Record, now: Timestamp) -> CurrentState {
    match record.phase(now) {
        Phase::Running { .. } => CurrentState::Running,
        Phase::InDoubt(_) => CurrentState::InDoubt,
        Phase::Done(done) => CurrentState::Done(done.outcome.clone()),
        Phase::Expired { .. } => CurrentState::Absent,
    }
}

fn grant(request: &ClaimRequest, attempt: u32, now: Timestamp) -> Decision<Claim, Record> {
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
    Decision::put(Claim::Granted(grant_of(&record, now)), record)
}

fn grant_of(record: &Record, now: Timestamp) -> Grant {
    let left_ms = record.lease_until().ms_since(now);
    Grant { token: record.token, attempt: record.attempt, lease_ms: record.lease_ms, left_ms }
}

fn settle_open(record: &Record, action: &Settle, now: Timestamp) -> Decision<Settled, Record> {
    let next = match action {
        Settle::Release => return Decision { result: Settled::Applied, change: Change::Remove },
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
                Phase::Running { .. } | Phase::Done(_) | Phase::Expired { .. } => now,
            };
            let doubt = Doubt { since, reason: DoubtReason::Declared(reason.clone()) };
            Record { state: State::InDoubt(doubt), ..record.clone() }
        }
    };
    Decision::put(Settled::Applied, next)
}

fn done(record: &Record, outcome: Outcome, now: Timestamp) -> Record {
    Record { state: State::Done(Done { outcome, completed_at: now }), ..record.clone() }
}

#[cfg(test)]
mod tests;
