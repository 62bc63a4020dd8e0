//! Properties of the rules: any sequence of actions on one key, at advancing times.
//!
//! A history is a list of events. Each is applied to the record that the earlier events left, and [`Run`] keeps track of
//! the tokens that were ever granted.

use std::collections::{BTreeMap, BTreeSet};

use ichido_core::rules::{self, Change, Decision};
use ichido_core::{
    Caller, Claim, ClaimRequest, CurrentState, Done, Fingerprint, Holder, InDoubtPolicy, Key, MarkKey,
    Metadata, Nonce, Outcome, Phase, Record, Resolution, Resolved, Scope, Seen, Settle, Settled, State,
    Timestamp, Token, mark,
};
use proptest::collection::vec;
use proptest::prelude::*;

const DAY_MS: u64 = 86_400_000;

/// An action, some time after the previous one.
#[derive(Clone, Debug)]
struct Event {
    after_ms: u64,
    action: Action,
}

#[derive(Clone, Debug)]
enum Action {
    Claim(Request),
    /// Settles with the token of the n-th grant so far, counted back from the newest.
    Settle(usize, Settle),
    Resolve(Resolution),
}

#[derive(Clone, Debug)]
struct Request {
    nonce: u8,
    request: u8,
    caller: Option<u8>,
    lease_ms: u64,
    retention_ms: u64,
    in_doubt: InDoubtPolicy,
}

/// Mostly short pauses, sometimes longer than every lease, retention and doubt.
fn pause() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..20_u64,
        4 => 0..200_u64,
        1 => Just(DAY_MS),
        1 => (0..3_u64).prop_map(|over| 30 * DAY_MS - 1 + over),
    ]
}

fn any_request() -> impl Strategy<Value = Request> {
    let in_doubt = prop_oneof![
        Just(InDoubtPolicy::Reject),
        (0..150_u64).prop_map(|silent_ms| InDoubtPolicy::Retry { silent_ms }),
    ];
    let request = prop_oneof![4 => Just(0_u8), 1 => Just(1_u8)];
    let caller = prop_oneof![6 => Just(Some(0_u8)), 1 => Just(Some(1_u8)), 1 => Just(None)];
    (0..4_u8, request, caller, 1..100_u64, 1..300_u64, in_doubt).prop_map(
        |(nonce, request, caller, lease_ms, retention_ms, in_doubt)| Request {
            nonce,
            request,
            caller,
            lease_ms,
            retention_ms,
            in_doubt,
        },
    )
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        any::<u32>().prop_map(|number| Outcome::kept(number.to_string())),
        Just(Outcome::Tombstone("too large".to_owned())),
    ]
}

fn settle() -> impl Strategy<Value = Settle> {
    prop_oneof![
        2 => (1..100_u64).prop_map(|lease_ms| Settle::Renew { lease_ms }),
        2 => outcome().prop_map(Settle::Complete),
        1 => Just(Settle::Release),
        1 => "[a-z]{0,3}".prop_map(Settle::Doubt),
    ]
}

fn seen() -> impl Strategy<Value = Seen> {
    (1..4_usize, 0..2_u32).prop_map(|(number, renewals)| Seen { token: token(number), renewals })
}

fn resolution() -> impl Strategy<Value = Resolution> {
    prop_oneof![
        outcome().prop_map(Resolution::Done),
        Just(Resolution::Absent),
        Just(Resolution::Release),
        (seen(), outcome()).prop_map(|(seen, outcome)| Resolution::DoneAsSeen(seen, outcome)),
        seen().prop_map(Resolution::AbsentAsSeen),
        (1..4_usize).prop_map(|number| Resolution::Forget(token(number))),
        (1..4_usize).prop_map(|number| Resolution::Erase(token(number))),
    ]
}

fn history() -> impl Strategy<Value = Vec<Event>> {
    let action = prop_oneof![
        5 => any_request().prop_map(Action::Claim),
        4 => (0..3_usize, settle()).prop_map(|(back, settle)| Action::Settle(back, settle)),
        1 => resolution().prop_map(Action::Resolve),
    ];
    vec((pause(), action).prop_map(|(after_ms, action)| Event { after_ms, action }), 1..40)
}

/// The record after the events so far, and the tokens that were granted.
struct Run {
    now: Timestamp,
    record: Option<Record>,
    /// Every token ever granted, oldest first. All but the last are stale forever.
    granted: Vec<Token>,
}

/// What one event did.
struct Turn {
    now: Timestamp,
    before: Option<Record>,
    after: Option<Record>,
    effect: Effect,
}

enum Effect {
    Claim(Box<ClaimRequest>, Decision<Claim, Record>),
    Settle(Token, Settle, Decision<Settled, Record>),
    Resolve(Resolution, Decision<Resolved, Record>),
}

impl Run {
    fn new() -> Self {
        Run { now: Timestamp(1_000_000), record: None, granted: Vec::new() }
    }

    fn apply(&mut self, event: &Event) -> Turn {
        self.now = self.now + event.after_ms;
        let (now, before) = (self.now, self.record.clone());
        let current = before.as_ref();
        let effect = match &event.action {
            Action::Claim(request) => {
                let request = claim_request(request, token(self.granted.len() + 1));
                let decision = rules::claim(current, &request, now);
                self.write(decision.change.clone());
                Effect::Claim(Box::new(request), decision)
            }
            Action::Settle(back, settle) => {
                let token = self.granted.iter().rev().nth(*back).copied().unwrap_or(token(0));
                let decision = rules::settle(current, token, settle, now);
                self.write(decision.change.clone());
                Effect::Settle(token, settle.clone(), decision)
            }
            Action::Resolve(resolution) => {
                let decision = rules::resolve(current, resolution, now);
                self.write(decision.change.clone());
                Effect::Resolve(resolution.clone(), decision)
            }
        };
        Turn { now, before, after: self.record.clone(), effect }
    }

    fn write(&mut self, change: Change<Record>) {
        match change {
            Change::Keep => {}
            Change::Remove => self.record = None,
            Change::Put(record) => {
                if self.granted.last() != Some(&record.token) {
                    self.granted.push(record.token);
                }
                self.record = Some(record);
            }
        }
    }
}

fn token(number: usize) -> Token {
    Token::from_bytes((number as u128).to_be_bytes())
}

fn claim_request(request: &Request, token: Token) -> ClaimRequest {
    ClaimRequest {
        key: Key::unscoped("k").unwrap(),
        fingerprint: Fingerprint::from_bytes([request.request; 32]),
        caller: request.caller.map(|byte| Caller::from_bytes([byte; 32])),
        nonce: Nonce::from_bytes([request.nonce; 16]),
        token,
        lease_ms: request.lease_ms,
        retention_ms: request.retention_ms,
        holder: Holder::Remote,
        metadata: Metadata::default(),
        in_doubt: request.in_doubt,
    }
}

fn play(history: &[Event]) -> Vec<Turn> {
    let mut run = Run::new();
    history.iter().map(|event| run.apply(event)).collect()
}

/// The current state, including that of an absent record.
fn current_state(record: Option<&Record>, now: Timestamp) -> CurrentState {
    record.map_or(CurrentState::Absent, |record| rules::current_state(record, now))
}

impl Turn {
    fn is_refusal(&self) -> bool {
        match &self.effect {
            Effect::Claim(_, decision) => match decision.result {
                Claim::Held { .. } | Claim::InDoubt(_) | Claim::Done(_) => true,
                Claim::Mismatch | Claim::CallerChanged => true,
                Claim::Granted(_) => false,
            },
            Effect::Settle(_, _, decision) => decision.result != Settled::Applied,
            Effect::Resolve(_, decision) => decision.result != Resolved::Applied,
        }
    }

    fn writes_nothing(&self) -> bool {
        match &self.effect {
            Effect::Claim(_, decision) => decision.change == Change::Keep,
            Effect::Settle(_, _, decision) => decision.change == Change::Keep,
            Effect::Resolve(_, decision) => decision.change == Change::Keep,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn a_refusal_writes_nothing(history in history()) {
        for turn in play(&history) {
            prop_assert!(!turn.is_refusal() || turn.writes_nothing());
            prop_assert!(!turn.writes_nothing() || turn.before == turn.after);
        }
    }

    #[test]
    fn a_stale_token_never_becomes_current_again(history in history()) {
        let mut stale = BTreeSet::new();
        for turn in play(&history) {
            let current = turn.after.as_ref().map(|record| record.token);
            if let Some(before) = &turn.before && current != Some(before.token) {
                stale.insert(before.token);
            }
            prop_assert!(current.is_none_or(|token| !stale.contains(&token)));
        }
    }

    #[test]
    fn an_older_token_changes_nothing(history in history()) {
        for turn in play(&history) {
            let Effect::Settle(token, _, decision) = &turn.effect else { continue };
            if turn.before.as_ref().is_none_or(|record| record.token != *token) {
                let state = current_state(turn.before.as_ref(), turn.now);
                prop_assert_eq!(&decision.result, &Settled::Stale(state));
                prop_assert_eq!(turn.before, turn.after);
            }
        }
    }

    #[test]
    fn an_outcome_never_changes_within_its_retention_unless_an_operator_forgets_or_erases_it(history in history()) {
        for turn in play(&history) {
            let Some(before) = &turn.before else { continue };
            if let Effect::Resolve(Resolution::Forget(_) | Resolution::Erase(_), _) = &turn.effect {
                continue;
            }
            if let Phase::Done(_) = before.phase(turn.now) {
                prop_assert_eq!(&turn.before, &turn.after);
            }
        }
    }

    #[test]
    fn only_a_takeover_increments_the_attempt(history in history()) {
        for turn in play(&history) {
            let Some(after) = &turn.after else { continue };
            let same = turn.before.as_ref().filter(|before| before.token == after.token);
            if let Some(before) = same {
                prop_assert_eq!(before.attempt, after.attempt);
                continue;
            }
            let Effect::Claim(request, _) = &turn.effect else {
                return Err(TestCaseError::fail("only a claim creates a token"));
            };
            let open = turn.before.as_ref().filter(|before| current_state(Some(before), turn.now) != CurrentState::Absent);
            let Some(before) = open else {
                prop_assert_eq!(after.attempt, 1);
                continue;
            };
            prop_assert_eq!(current_state(Some(before), turn.now), CurrentState::InDoubt);
            prop_assert_eq!(after.attempt, before.attempt + 1);
            let InDoubtPolicy::Retry { silent_ms } = request.in_doubt else {
                return Err(TestCaseError::fail("the claim was taken over without the policy"));
            };
            prop_assert!(turn.now >= before.renewed_at + silent_ms);
        }
    }

    #[test]
    fn a_different_fingerprint_is_a_mismatch_and_changes_nothing(history in history()) {
        for turn in play(&history) {
            let (Effect::Claim(request, decision), Some(before)) = (&turn.effect, &turn.before) else { continue };
            let known = rules::current_state(before, turn.now) != CurrentState::Absent;
            let other = before.fingerprint != request.fingerprint;
            let changed = Caller::is_other(request.caller, before.caller);
            prop_assert_eq!(decision.result == Claim::Mismatch, known && other && !changed);
            if known && other {
                prop_assert_eq!(&turn.before, &turn.after);
            }
        }
    }

    #[test]
    fn a_different_caller_learns_nothing_and_changes_nothing(history in history()) {
        for turn in play(&history) {
            let (Effect::Claim(request, decision), Some(before)) = (&turn.effect, &turn.before) else { continue };
            let known = rules::current_state(before, turn.now) != CurrentState::Absent;
            let changed = Caller::is_other(request.caller, before.caller);
            prop_assert_eq!(decision.result == Claim::CallerChanged, known && changed);
            if known && changed {
                prop_assert_eq!(&turn.before, &turn.after);
            }
        }
    }

    #[test]
    fn the_same_nonce_has_the_same_token_while_the_claim_is_open(history in history()) {
        for turn in play(&history) {
            let (Effect::Claim(request, decision), Some(before)) = (&turn.effect, &turn.before) else { continue };
            if Caller::is_other(request.caller, before.caller) {
                continue;
            }
            let open = matches!(rules::current_state(before, turn.now), CurrentState::Running | CurrentState::InDoubt);
            if let (true, State::InDoubt(doubt)) = (open && before.nonce == request.nonce, &before.state) {
                let other = before.fingerprint != request.fingerprint;
                let expected = if other { Claim::Mismatch } else { Claim::InDoubt(doubt.clone()) };
                prop_assert_eq!(&decision.result, &expected);
                prop_assert_eq!(&turn.before, &turn.after);
            } else if open && before.nonce == request.nonce && before.fingerprint == request.fingerprint {
                let Claim::Granted(grant) = decision.result else {
                    return Err(TestCaseError::fail("the same nonce was not granted again"));
                };
                prop_assert_eq!((grant.token, grant.attempt), (before.token, before.attempt));
                prop_assert_eq!(&turn.before, &turn.after);
            }
        }
    }

    #[test]
    fn the_result_of_a_claim_agrees_with_the_phase(history in history()) {
        for turn in play(&history) {
            let Effect::Claim(request, decision) = &turn.effect else { continue };
            let phase = turn.before.as_ref().map(|record| record.phase(turn.now));
            match &decision.result {
                Claim::Held { retry_after_ms } => {
                    prop_assert_eq!(phase, Some(Phase::Running { left_ms: *retry_after_ms }));
                    prop_assert!(*retry_after_ms > 0);
                }
                Claim::InDoubt(doubt) => prop_assert_eq!(phase, Some(Phase::InDoubt(doubt.clone()))),
                Claim::Done(outcome) => {
                    let is_done = matches!(phase, Some(Phase::Done(done)) if done.outcome == *outcome);
                    prop_assert!(is_done);
                }
                Claim::Mismatch | Claim::CallerChanged => {
                    let unknown = matches!(phase, None | Some(Phase::Expired { .. }));
                    prop_assert!(!unknown);
                }
                Claim::Granted(grant) => {
                    let after = turn.after.as_ref().unwrap();
                    prop_assert_eq!((grant.token, grant.attempt), (after.token, after.attempt));
                    prop_assert_eq!((after.nonce, after.fingerprint), (request.nonce, request.fingerprint));
                    prop_assert!(!matches!(phase, Some(Phase::Done(_))));
                }
            }
        }
    }

    #[test]
    fn an_applied_completion_is_recorded(history in history()) {
        for turn in play(&history) {
            let Effect::Settle(_, Settle::Complete(outcome), decision) = &turn.effect else { continue };
            if decision.result != Settled::Applied {
                continue;
            }
            let first = turn.before.as_ref().and_then(|record| match record.phase(turn.now) {
                Phase::Done(done) => Some(done.clone()),
                Phase::Running { .. } | Phase::InDoubt(_) | Phase::Expired { .. } => None,
            });
            let fresh = Done { outcome: outcome.clone(), completed_at: turn.now };
            let expected = State::Done(first.unwrap_or(fresh));
            prop_assert_eq!(turn.after.map(|record| record.state), Some(expected));
        }
    }

    #[test]
    fn an_operator_resolves_only_open_claims_and_forgets_only_the_completed_one_that_was_seen(history in history()) {
        for turn in play(&history) {
            let Effect::Resolve(resolution, decision) = &turn.effect else { continue };
            let before = current_state(turn.before.as_ref(), turn.now);
            let is_allowed = match resolution {
                Resolution::Done(_) | Resolution::Absent => before == CurrentState::InDoubt,
                Resolution::DoneAsSeen(seen, _) | Resolution::AbsentAsSeen(seen) => {
                    let is_seen = turn.before.as_ref().is_some_and(|record| {
                        record.token == seen.token && record.renewals == seen.renewals
                    });
                    is_seen && before == CurrentState::InDoubt
                }
                Resolution::Release => matches!(before, CurrentState::InDoubt | CurrentState::Running),
                Resolution::Forget(token) | Resolution::Erase(token) => {
                    let is_seen = turn.before.as_ref().is_some_and(|record| record.token == *token);
                    is_seen && matches!(before, CurrentState::Done(_))
                }
            };
            prop_assert_eq!(decision.result == Resolved::Applied, is_allowed);
            if is_allowed {
                let after = current_state(turn.after.as_ref(), turn.now);
                let expected = match resolution {
                    Resolution::Done(outcome) | Resolution::DoneAsSeen(_, outcome) => {
                        CurrentState::Done(outcome.clone())
                    }
                    Resolution::Erase(_) => {
                        CurrentState::Done(Outcome::Tombstone("erased by an operator".to_owned()))
                    }
                    Resolution::Absent
                    | Resolution::AbsentAsSeen(_)
                    | Resolution::Release
                    | Resolution::Forget(_) => CurrentState::Absent,
                };
                prop_assert_eq!(after, expected);
            }
        }
    }

    #[test]
    fn a_record_expires_exactly_at_its_expiry(history in history()) {
        for turn in play(&history) {
            let Some(record) = &turn.after else { continue };
            let end = record.expires_at();
            prop_assert_ne!(rules::current_state(record, Timestamp(end.0 - 1)), CurrentState::Absent);
            prop_assert_eq!(rules::current_state(record, end), CurrentState::Absent);
        }
    }

    #[test]
    fn a_mark_is_new_once_per_nonce_and_expiry(
        events in vec((pause(), 0..3_u8, 1..300_u64), 1..40)
    ) {
        let (mut now, mut record) = (Timestamp(1_000_000), None::<mark::Record>);
        for (after_ms, nonce, retention_ms) in events {
            now = now + after_ms;
            let request = mark::Request {
                key: MarkKey::new("E1").unwrap(),
                nonce: Nonce::from_bytes([nonce; 16]),
                retention_ms,
                metadata: Metadata::default(),
            };
            let decision = rules::mark(record.as_ref(), &request, now);
            let alive = record.as_ref().filter(|record| now < record.expires_at);
            match (&decision.result, alive) {
                (mark::Mark::Seen { first_seen, .. }, Some(record)) => {
                    prop_assert_ne!(record.nonce, request.nonce);
                    prop_assert_eq!(*first_seen, record.marked_at);
                }
                (mark::Mark::New, Some(record)) => prop_assert_eq!(record.nonce, request.nonce),
                (result, None) => prop_assert_eq!(result, &mark::Mark::New),
            }
            prop_assert_eq!(decision.change == Change::Keep, alive.is_some());
            if let Change::Put(new) = decision.change {
                prop_assert_eq!(new.expires_at, now + retention_ms);
                record = Some(new);
            }
        }
    }
}

/// Short texts of common separators, so that joined parts often look alike.
fn part() -> impl Strategy<Value = String> {
    "[ab:/|\u{0}\u{1f}é]{0,4}"
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn keys_are_equal_only_if_all_their_parts_are(parts in vec((part(), part(), part()), 2..40)) {
        let mut seen = BTreeMap::new();
        for parts in parts.into_iter().filter(|parts| !parts.2.is_empty()) {
            let (tenant, route, text) = parts.clone();
            let index = Key::new(Scope::new(tenant, route), text).unwrap().index();
            let first = seen.entry(index).or_insert_with(|| parts.clone());
            prop_assert_eq!(&*first, &parts);
        }
    }

    /// The same text, split at any two positions.
    #[test]
    fn a_moved_boundary_makes_a_different_key(text in "[ab:/|]{3,8}", cuts in vec((1..8_usize, 1..8_usize), 2..20)) {
        let mut seen = BTreeMap::new();
        for (one, other) in cuts {
            let (one, other) = (one.min(other).min(text.len() - 1), one.max(other).min(text.len() - 1));
            let scope = Scope::new(&text[..one], &text[one..other]);
            let index = Key::new(scope, &text[other..]).unwrap().index();
            prop_assert_eq!(*seen.entry((one, other)).or_insert(index), index);
        }
        let indexes: BTreeSet<_> = seen.values().collect();
        prop_assert_eq!(indexes.len(), seen.len());
    }

    #[test]
    fn fingerprints_are_equal_only_if_all_their_parts_are(lists in vec(vec(part(), 0..4), 2..40)) {
        let mut seen = BTreeMap::new();
        for list in lists {
            let digest = *Fingerprint::of(&list).as_bytes();
            let first = seen.entry(digest).or_insert_with(|| list.clone());
            prop_assert_eq!(&*first, &list);
        }
    }

    #[test]
    fn marks_and_claims_never_collide(tenant in part(), route in part(), text in "[ab:/|]{1,4}") {
        let mark = MarkKey::new(text.as_str()).unwrap().index();
        prop_assert_ne!(Key::new(Scope::new(tenant, route), text).unwrap().index(), mark);
    }
}
