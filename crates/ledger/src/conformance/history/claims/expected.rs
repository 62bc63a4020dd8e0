//! Results: which of them the model allows, and how they are described.

use std::ops::RangeInclusive;

use ichido_core::{
    Claim, CurrentState, DoubtReason, InDoubtPolicy, Outcome, Resolution, Resolved, Seen, Settle, Settled,
    Token,
};

use super::super::model::Bounds;
use super::super::operation::{ClaimAnswer, ClaimCall, ClaimOperation, End, short};
use super::super::time_window::TimeWindow;
use super::remembered::Remembered;

/// A legal result.
#[derive(Clone, Debug)]
pub(super) enum Expected {
    Granted { token: Token, attempt: u32, lease_ms: u64, left_ms: RangeInclusive<u64> },
    Held { left_ms: RangeInclusive<u64> },
    InDoubt { declared: Option<String> },
    Done(Outcome),
    Mismatch,
    CallerChanged,
    Settled(Settled),
    Resolved(Resolved),
    Nothing,
    Record(Box<Remembered>),
}

impl Expected {
    pub(super) fn allows(&self, answer: &ClaimAnswer) -> bool {
        match answer {
            ClaimAnswer::Claim(claim) => self.allows_claim(claim),
            ClaimAnswer::Settle(settled) => {
                matches!(self, Expected::Settled(expected) if expected == settled)
            }
            ClaimAnswer::Resolve(resolved) => {
                matches!(self, Expected::Resolved(expected) if expected == resolved)
            }
            ClaimAnswer::Get(None) => matches!(self, Expected::Nothing),
            ClaimAnswer::Get(Some(record)) => matches!(self, Expected::Record(kept) if kept.is(record)),
        }
    }

    fn allows_claim(&self, claim: &Claim) -> bool {
        match (self, claim) {
            (Expected::Granted { token, attempt, lease_ms, left_ms }, Claim::Granted(grant)) => {
                (*token, *attempt, *lease_ms) == (grant.token, grant.attempt, grant.lease_ms)
                    && left_ms.contains(&grant.left_ms)
            }
            (Expected::Held { left_ms }, Claim::Held { retry_after_ms }) => left_ms.contains(retry_after_ms),
            (Expected::InDoubt { declared }, Claim::InDoubt(doubt)) => match (&doubt.reason, declared) {
                (DoubtReason::LeaseLapsed, None) => true,
                (DoubtReason::Declared(state), Some(declared)) => state == declared,
                (DoubtReason::LeaseLapsed | DoubtReason::HolderGone | DoubtReason::Declared(_), _) => false,
            },
            (Expected::Done(expected), Claim::Done(outcome)) => expected == outcome,
            (Expected::Mismatch, Claim::Mismatch) | (Expected::CallerChanged, Claim::CallerChanged) => true,
            _ => false,
        }
    }
}

/// How much of a lease can be left. A store without a clock of its own may report any value.
pub(super) fn left_ms(
    renewed: TimeWindow,
    lease_ms: u64,
    now: TimeWindow,
    bounds: &Bounds,
) -> RangeInclusive<u64> {
    if bounds.watched {
        return 0..=lease_ms;
    }
    let end_us = |renewed_us: u64| renewed_us.saturating_add(lease_ms * 1_000);
    let least_us = end_us(renewed.from_us).saturating_sub(now.to_us).saturating_sub(bounds.tolerance_us);
    let most_us = end_us(renewed.to_us).saturating_sub(now.from_us).saturating_add(bounds.tolerance_us);
    least_us / 1_000..=most_us.div_ceil(1_000)
}

pub(super) fn describe(operation: &ClaimOperation) -> String {
    let answer = match &operation.end {
        End::Open => "?".to_owned(),
        End::Answered { answer, .. } => describe_answer(answer),
    };
    format!("{} -> {answer}", describe_call(&operation.call))
}

fn describe_seen(seen: &Seen) -> String {
    format!("token {} after {} renewals", short(seen.token.as_bytes()), seen.renewals)
}

fn describe_call(call: &ClaimCall) -> String {
    match call {
        ClaimCall::Get => "get".to_owned(),
        ClaimCall::Resolve(Resolution::Done(outcome)) => {
            format!("operator: done {}", describe_outcome(outcome))
        }
        ClaimCall::Resolve(Resolution::Absent) => "operator: absent".to_owned(),
        ClaimCall::Resolve(Resolution::DoneAsSeen(seen, outcome)) => {
            format!("operator: done {}, {}", describe_outcome(outcome), describe_seen(seen))
        }
        ClaimCall::Resolve(Resolution::AbsentAsSeen(seen)) => {
            format!("operator: absent, {}", describe_seen(seen))
        }
        ClaimCall::Resolve(Resolution::Release) => "operator: release".to_owned(),
        ClaimCall::Resolve(Resolution::Forget(token)) => {
            format!("operator: forget token {}", short(token.as_bytes()))
        }
        ClaimCall::Resolve(Resolution::Erase(token)) => {
            format!("operator: erase token {}", short(token.as_bytes()))
        }
        ClaimCall::Settle(token, action) => {
            let action = match action {
                Settle::Renew { lease_ms } => format!("renew for {lease_ms} ms"),
                Settle::Complete(outcome) => format!("complete {}", describe_outcome(outcome)),
                Settle::Release => "release".to_owned(),
                Settle::Doubt(reason) => format!("doubt {reason:?}"),
            };
            format!("{action}, token {}", short(token.as_bytes()))
        }
        ClaimCall::Claim(request) => {
            let policy = match request.in_doubt {
                InDoubtPolicy::Reject => "reject".to_owned(),
                InDoubtPolicy::Retry { silent_ms } => format!("retry after {silent_ms} ms"),
            };
            let (nonce, token) = (short(request.nonce.as_bytes()), short(request.token.as_bytes()));
            let (fingerprint, caller) = (request.fingerprint, request.caller);
            let (lease_ms, retention_ms) = (request.lease_ms, request.retention_ms);
            format!(
                "claim nonce {nonce} token {token} {fingerprint:?} {caller:?} lease {lease_ms} ms, kept {retention_ms} ms, {policy}"
            )
        }
    }
}

fn describe_answer(answer: &ClaimAnswer) -> String {
    match answer {
        ClaimAnswer::Claim(Claim::Granted(grant)) => {
            let token = short(grant.token.as_bytes());
            format!("granted {token}, attempt {}, {} of {} ms", grant.attempt, grant.left_ms, grant.lease_ms)
        }
        ClaimAnswer::Claim(Claim::Held { retry_after_ms }) => format!("held for {retry_after_ms} ms"),
        ClaimAnswer::Claim(Claim::InDoubt(doubt)) => format!("in doubt: {}", doubt.reason),
        ClaimAnswer::Claim(Claim::Done(outcome)) => format!("done {}", describe_outcome(outcome)),
        ClaimAnswer::Claim(Claim::Mismatch) => "mismatch".to_owned(),
        ClaimAnswer::Claim(Claim::CallerChanged) => "caller changed".to_owned(),
        ClaimAnswer::Settle(Settled::Applied) | ClaimAnswer::Resolve(Resolved::Applied) => {
            "applied".to_owned()
        }
        ClaimAnswer::Settle(Settled::Stale(now)) => format!("stale: {}", describe_state(now)),
        ClaimAnswer::Resolve(Resolved::Refused(now)) => format!("refused: {}", describe_state(now)),
        ClaimAnswer::Get(None) => "nothing".to_owned(),
        ClaimAnswer::Get(Some(record)) => {
            let (token, nonce) = (short(record.token.as_bytes()), short(record.nonce.as_bytes()));
            let (attempt, renewals, state) = (record.attempt, record.renewals, &record.state);
            format!("token {token} nonce {nonce}, attempt {attempt}, {renewals} renewals, {state:?}")
        }
    }
}

fn describe_state(now: &CurrentState) -> String {
    match now {
        CurrentState::Absent => "absent".to_owned(),
        CurrentState::Running => "running".to_owned(),
        CurrentState::InDoubt => "in doubt".to_owned(),
        CurrentState::Done(outcome) => format!("done {}", describe_outcome(outcome)),
    }
}

fn describe_outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Kept(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
        Outcome::Tombstone(reason) => format!("(not kept: {reason})"),
    }
}
