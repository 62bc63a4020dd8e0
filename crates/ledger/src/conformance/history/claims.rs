//! The model of a claim: the state table, stated independently of the rules that backends share.
//!
//! Where the rules ask what time it is, the model asks what time it can have been, and continues with each
//! possibility ([`Remembered::phases`]).

use ichido_core::{
    ClaimRequest, CurrentState, InDoubtPolicy, Outcome, Resolution, Resolved, Seen, Settle, Settled, Token,
};

mod expected;
mod remembered;

use self::expected::Expected;
use self::remembered::{Remembered, RememberedState};
use super::model::{Bounds, Model};
use super::operation::{ClaimAnswer, ClaimCall, ClaimOperation, End};
use super::time_window::TimeWindow;

/// What is remembered of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State(Option<Remembered>);

/// The state in which a claim can be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    InDoubt,
    Done,
    Over,
}

/// A result that the model allows, and the state after it.
type Step = (Expected, State);

impl Model for State {
    type Call = ClaimCall;
    type Answer = ClaimAnswer;

    fn after(&self, operation: &ClaimOperation, bounds: &Bounds) -> Vec<Self> {
        let now = TimeWindow::of(operation);
        let steps = match &self.0 {
            None => vec![absent(&operation.call, now)],
            Some(kept) => {
                let phases = kept.phases(now, bounds).into_iter();
                phases
                    .flat_map(|(phase, now, kept)| kept.steps(phase, &operation.call, now, bounds))
                    .collect()
            }
        };
        let legal = steps.into_iter().filter(|(expected, after)| match &operation.end {
            End::Answered { answer, .. } => expected.allows(answer),
            End::Open => !after.is_like(self),
        });
        legal.filter_map(|(_, after)| after.settled_before(now)).collect()
    }

    fn describe(operation: &ClaimOperation) -> String {
        expected::describe(operation)
    }
}

impl State {
    /// Whether both are the same apart from their times.
    fn is_like(&self, other: &Self) -> bool {
        let timeless = |state: &State| {
            let moment = TimeWindow { from_us: 0, to_us: 0 };
            let mut state = state.clone();
            if let Some(kept) = &mut state.0 {
                kept.renewed = moment;
                if let RememberedState::Done { at, .. } = &mut kept.state {
                    *at = moment;
                }
            }
            state
        };
        timeless(self) == timeless(other)
    }

    /// This state, with the knowledge that everything in it happened before the end of `now`. `None` if that is
    /// impossible.
    fn settled_before(self, now: TimeWindow) -> Option<Self> {
        let Some(kept) = self.0 else { return Some(self) };
        let renewed = kept.renewed.no_later_than(now);
        let state = match kept.state {
            RememberedState::Done { outcome, at } => {
                RememberedState::Done { outcome, at: at.no_later_than(now) }
            }
            other @ (RememberedState::Running | RememberedState::Doubt(_)) => other,
        };
        let is_possible =
            !renewed.is_empty() && !matches!(&state, RememberedState::Done { at, .. } if at.is_empty());
        is_possible.then_some(State(Some(Remembered { renewed, state, ..kept })))
    }
}

/// A call on a key without a record.
fn absent(call: &ClaimCall, now: TimeWindow) -> Step {
    let nothing = State::default();
    match call {
        ClaimCall::Claim(request) => granted(request, 1, now),
        ClaimCall::Settle(..) => (Expected::Settled(Settled::Stale(CurrentState::Absent)), nothing),
        ClaimCall::Resolve(_) => (Expected::Resolved(Resolved::Refused(CurrentState::Absent)), nothing),
        ClaimCall::Get => (Expected::Nothing, nothing),
    }
}

fn granted(request: &ClaimRequest, attempt: u32, now: TimeWindow) -> Step {
    let kept = Remembered {
        fingerprint: request.fingerprint,
        caller: request.caller,
        nonce: request.nonce,
        token: request.token,
        attempt,
        renewals: 0,
        lease_ms: request.lease_ms,
        retention_ms: request.retention_ms,
        renewed: now,
        state: RememberedState::Running,
    };
    let lease_ms = request.lease_ms;
    let left_ms = lease_ms..=lease_ms;
    (Expected::Granted { token: request.token, attempt, lease_ms, left_ms }, State(Some(kept)))
}

impl Remembered {
    /// What the claim can have been at `now`, and what each possibility implies about the times.
    fn phases(&self, now: TimeWindow, bounds: &Bounds) -> Vec<(Phase, TimeWindow, Remembered)> {
        match &self.state {
            RememberedState::Doubt(_) => vec![(Phase::InDoubt, now, self.clone())],
            RememberedState::Running => {
                let lease_us = self.lease_ms * 1_000;
                let good = self.renewed.still_within(lease_us, now, bounds);
                // If the store has no clock, a lapse may go unnoticed.
                let good = if bounds.watched { Some((now, self.renewed)) } else { good };
                let lapsed = self.renewed.run_out(lease_us, now, bounds);
                let found = |phase, (now, renewed)| (phase, now, Remembered { renewed, ..self.clone() });
                let good = good.map(|good| found(Phase::Running, good));
                good.into_iter().chain(lapsed.map(|lapsed| found(Phase::InDoubt, lapsed))).collect()
            }
            RememberedState::Done { outcome, at } => {
                let retention_us = self.retention_ms * 1_000;
                let found = |phase, (now, at)| {
                    let state = RememberedState::Done { outcome: outcome.clone(), at };
                    (phase, now, Remembered { state, ..self.clone() })
                };
                let kept = at.still_within(retention_us, now, bounds).map(|kept| found(Phase::Done, kept));
                let over = at.run_out(retention_us, now, bounds).map(|over| found(Phase::Over, over));
                kept.into_iter().chain(over).collect()
            }
        }
    }

    fn steps(self, phase: Phase, call: &ClaimCall, now: TimeWindow, bounds: &Bounds) -> Vec<Step> {
        if phase == Phase::Over {
            let (expected, after) = absent(call, now);
            // An expired record counts as absent, but calls that change nothing leave it in place.
            let after = if after == State::default() { State(Some(self)) } else { after };
            return vec![(expected, after)];
        }
        match call {
            ClaimCall::Claim(request) => self.claim(phase, request, now, bounds),
            ClaimCall::Settle(token, action) => vec![self.settle(phase, *token, action, now)],
            ClaimCall::Resolve(resolution) => vec![self.resolve(phase, resolution, now)],
            ClaimCall::Get => vec![(self.record(), State(Some(self)))],
        }
    }

    fn claim(self, phase: Phase, request: &ClaimRequest, now: TimeWindow, bounds: &Bounds) -> Vec<Step> {
        if request.caller.is_some() && self.caller != request.caller {
            return vec![(Expected::CallerChanged, State(Some(self)))];
        }
        if self.fingerprint != request.fingerprint {
            return vec![(Expected::Mismatch, State(Some(self)))];
        }
        let is_same_call = self.nonce == request.nonce;
        if let (Phase::InDoubt, true, RememberedState::Doubt(reason)) = (phase, is_same_call, &self.state) {
            return vec![(Expected::InDoubt { declared: Some(reason.clone()) }, State(Some(self)))];
        }
        match phase {
            Phase::Done => vec![(Expected::Done(self.outcome()), State(Some(self)))],
            Phase::Running | Phase::InDoubt if is_same_call => {
                let left_ms = expected::left_ms(self.renewed, self.lease_ms, now, bounds);
                let Remembered { token, attempt, lease_ms, .. } = self;
                vec![(Expected::Granted { token, attempt, lease_ms, left_ms }, State(Some(self)))]
            }
            Phase::Running => {
                let left_ms = expected::left_ms(self.renewed, self.lease_ms, now, bounds);
                vec![(Expected::Held { left_ms }, State(Some(self)))]
            }
            Phase::InDoubt | Phase::Over => self.claim_in_doubt(request, now, bounds),
        }
    }

    fn claim_in_doubt(self, request: &ClaimRequest, now: TimeWindow, bounds: &Bounds) -> Vec<Step> {
        let reason = match &self.state {
            RememberedState::Doubt(reason) => Some(reason.clone()),
            RememberedState::Running | RememberedState::Done { .. } => None,
        };
        let refused = |kept: Remembered| (Expected::InDoubt { declared: reason.clone() }, State(Some(kept)));
        let InDoubtPolicy::Retry { silent_ms } = request.in_doubt else { return vec![refused(self)] };
        let silent_us = silent_ms * 1_000;
        let early = self.renewed.still_within(silent_us, now, bounds);
        // Silence, too, may go unnoticed.
        let early = if bounds.watched { Some((now, self.renewed)) } else { early };
        let late = self.renewed.run_out(silent_us, now, bounds);
        let early = early.map(|(_, renewed)| refused(Remembered { renewed, ..self.clone() }));
        let takeover = late.map(|(now, _)| granted(request, self.attempt + 1, now));
        early.into_iter().chain(takeover).collect()
    }

    fn settle(self, phase: Phase, token: Token, action: &Settle, now: TimeWindow) -> Step {
        if token != self.token {
            return (Expected::Settled(Settled::Stale(self.standing(phase))), State(Some(self)));
        }
        let after = match (phase, action) {
            (Phase::Running | Phase::InDoubt, Settle::Renew { lease_ms }) => Some(Remembered {
                renewed: now,
                renewals: self.renewals + 1,
                lease_ms: *lease_ms,
                state: RememberedState::Running,
                ..self
            }),
            (Phase::Running | Phase::InDoubt, Settle::Complete(outcome)) => Some(self.done(outcome, now)),
            (Phase::Running | Phase::InDoubt, Settle::Release) => None,
            (Phase::Running | Phase::InDoubt, Settle::Doubt(reason)) => {
                Some(Remembered { state: RememberedState::Doubt(reason.clone()), ..self })
            }
            // The first outcome stays.
            (Phase::Done | Phase::Over, Settle::Complete(_)) => Some(self),
            (Phase::Done | Phase::Over, Settle::Renew { .. } | Settle::Release | Settle::Doubt(_)) => {
                return (Expected::Settled(Settled::Stale(self.standing(phase))), State(Some(self)));
            }
        };
        (Expected::Settled(Settled::Applied), State(after))
    }

    fn resolve(self, phase: Phase, resolution: &Resolution, now: TimeWindow) -> Step {
        let after = match (phase, resolution) {
            (Phase::InDoubt, Resolution::Done(outcome)) => Some(self.done(outcome, now)),
            (Phase::InDoubt, Resolution::DoneAsSeen(seen, outcome)) if self.is_seen(seen) => {
                Some(self.done(outcome, now))
            }
            (Phase::InDoubt, Resolution::AbsentAsSeen(seen)) if self.is_seen(seen) => None,
            (Phase::InDoubt, Resolution::Absent | Resolution::Release)
            | (Phase::Running, Resolution::Release) => None,
            (Phase::Done, Resolution::Forget(token)) if *token == self.token => None,
            (Phase::Done, Resolution::Erase(token)) if *token == self.token => Some(self.erased()),
            (Phase::Running, Resolution::Done(_) | Resolution::Absent)
            | (Phase::Running | Phase::InDoubt, Resolution::DoneAsSeen(..) | Resolution::AbsentAsSeen(_))
            | (Phase::Running | Phase::InDoubt, Resolution::Forget(_) | Resolution::Erase(_))
            | (Phase::Done | Phase::Over, _) => {
                return (Expected::Resolved(Resolved::Refused(self.standing(phase))), State(Some(self)));
            }
        };
        (Expected::Resolved(Resolved::Applied), State(after))
    }

    fn is_seen(&self, seen: &Seen) -> bool {
        seen.token == self.token && seen.renewals == self.renewals
    }

    fn done(self, outcome: &Outcome, now: TimeWindow) -> Remembered {
        Remembered { state: RememberedState::Done { outcome: outcome.clone(), at: now }, ..self }
    }

    fn erased(self) -> Remembered {
        let RememberedState::Done { at, .. } = self.state else {
            unreachable!("only what is done is erased")
        };
        let outcome = Outcome::Tombstone("erased by an operator".to_owned());
        Remembered { state: RememberedState::Done { outcome, at }, ..self }
    }

    fn outcome(&self) -> Outcome {
        match &self.state {
            RememberedState::Done { outcome, .. } => outcome.clone(),
            RememberedState::Running | RememberedState::Doubt(_) => {
                unreachable!("only what is done has an outcome")
            }
        }
    }

    fn standing(&self, phase: Phase) -> CurrentState {
        match phase {
            Phase::Running => CurrentState::Running,
            Phase::InDoubt => CurrentState::InDoubt,
            Phase::Done => CurrentState::Done(self.outcome()),
            Phase::Over => CurrentState::Absent,
        }
    }

    fn record(&self) -> Expected {
        Expected::Record(Box::new(self.clone()))
    }
}
