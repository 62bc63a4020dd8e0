//! Properties of the rules: any sequence of verbs, at advancing times, on one key.
//!
//! A history is a list of moves. Each is played on the record that the moves before it left, and [`Play`] keeps what
//! a bystander would write down: which tokens were ever current, and what was first said to be done.

#![allow(clippy::unwrap_used, reason = "this crate is a test")]

use std::collections::{BTreeMap, BTreeSet};

use ichido_core::rules::{self, Change, Step};
use ichido_core::{
    Caller, Claim, ClaimRequest, Done, Fingerprint, Holder, InDoubtPolicy, Key, MarkKey, Metadata, Nonce,
    Now, Outcome, Phase, Record, Resolution, Resolved, Scope, Settle, Settled, State, Timestamp, Token, mark,
};
use proptest::collection::vec;
use proptest::prelude::*;

const DAY_MS: u64 = 86_400_000;

/// Something that happens to the key, some time after the move before it.
#[derive(Clone, Debug)]
struct Move {
    after_ms: u64,
    verb: Verb,
}

#[derive(Clone, Debug)]
enum Verb {
    Claim(Ask),
    /// A word with the token of the n-th grant so far, counted back from the newest.
    Settle(usize, Settle),
    Resolve(Resolution),
}

#[derive(Clone, Debug)]
struct Ask {
    nonce: u8,
    request: u8,
    caller: Option<u8>,
    lease_ms: u64,
    retention_ms: u64,
    in_doubt: InDoubtPolicy,
}

/// Mostly short steps, sometimes past every lease, retention and doubt.
fn pause() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..20_u64,
        4 => 0..200_u64,
        1 => Just(DAY_MS),
        1 => (0..3_u64).prop_map(|over| 30 * DAY_MS - 1 + over),
    ]
}

fn ask() -> impl Strategy<Value = Ask> {
    let in_doubt = prop_oneof![
        Just(InDoubtPolicy::Reject),
        (0..150_u64).prop_map(|silent_ms| InDoubtPolicy::Retry { silent_ms }),
    ];
    let request = prop_oneof![4 => Just(0_u8), 1 => Just(1_u8)];
    let caller = prop_oneof![6 => Just(Some(0_u8)), 1 => Just(Some(1_u8)), 1 => Just(None)];
    (0..4_u8, request, caller, 1..100_u64, 1..300_u64, in_doubt).prop_map(
        |(nonce, request, caller, lease_ms, retention_ms, in_doubt)| Ask {
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

fn word() -> impl Strategy<Value = Settle> {
    prop_oneof![
        2 => (1..100_u64).prop_map(|lease_ms| Settle::Renew { lease_ms }),
        2 => outcome().prop_map(Settle::Complete),
        1 => Just(Settle::Release),
        1 => "[a-z]{0,3}".prop_map(Settle::Doubt),
    ]
}

fn resolution() -> impl Strategy<Value = Resolution> {
    prop_oneof![outcome().prop_map(Resolution::Done), Just(Resolution::Absent), Just(Resolution::Release)]
}

fn history() -> impl Strategy<Value = Vec<Move>> {
    let verb = prop_oneof![
        5 => ask().prop_map(Verb::Claim),
        4 => (0..3_usize, word()).prop_map(|(back, word)| Verb::Settle(back, word)),
        1 => resolution().prop_map(Verb::Resolve),
    ];
    vec((pause(), verb).prop_map(|(after_ms, verb)| Move { after_ms, verb }), 1..40)
}

/// The record as the moves so far left it, and what a bystander wrote down.
struct Play {
    now: Timestamp,
    record: Option<Record>,
    /// Every token ever granted, oldest first. All but the last are stale for good.
    granted: Vec<Token>,
}

/// What one move did.
struct Turn {
    now: Timestamp,
    before: Option<Record>,
    after: Option<Record>,
    did: Did,
}

enum Did {
    Claim(Box<ClaimRequest>, Step<Claim, Record>),
    Settle(Token, Settle, Step<Settled, Record>),
    Resolve(Resolution, Step<Resolved, Record>),
}

impl Play {
    fn new() -> Self {
        Play { now: Timestamp(1_000_000), record: None, granted: Vec::new() }
    }

    fn turn(&mut self, step: &Move) -> Turn {
        self.now = self.now + step.after_ms;
        let (now, before) = (self.now, self.record.clone());
        let current = before.as_ref();
        let did = match &step.verb {
            Verb::Claim(ask) => {
                let request = request(ask, token(self.granted.len() + 1));
                let step = rules::claim(current, &request, now);
                self.write(step.change.clone());
                Did::Claim(Box::new(request), step)
            }
            Verb::Settle(back, word) => {
                let token = self.granted.iter().rev().nth(*back).copied().unwrap_or(token(0));
                let step = rules::settle(current, token, word, now);
                self.write(step.change.clone());
                Did::Settle(token, word.clone(), step)
            }
            Verb::Resolve(word) => {
                let step = rules::resolve(current, word, now);
                self.write(step.change.clone());
                Did::Resolve(word.clone(), step)
            }
        };
        Turn { now, before, after: self.record.clone(), did }
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

fn request(ask: &Ask, token: Token) -> ClaimRequest {
    ClaimRequest {
        key: Key::unscoped("k").unwrap(),
        fingerprint: Fingerprint::from_bytes([ask.request; 32]),
        caller: ask.caller.map(|byte| Caller::from_bytes([byte; 32])),
        nonce: Nonce::from_bytes([ask.nonce; 16]),
        token,
        lease_ms: ask.lease_ms,
        retention_ms: ask.retention_ms,
        holder: Holder::Remote,
        metadata: Metadata::default(),
        in_doubt: ask.in_doubt,
    }
}

fn play(history: &[Move]) -> Vec<Turn> {
    let mut play = Play::new();
    history.iter().map(|step| play.turn(step)).collect()
}

/// What stands at a moment, an absent record included.
fn standing(record: Option<&Record>, now: Timestamp) -> Now {
    record.map_or(Now::Absent, |record| rules::standing(record, now))
}

impl Turn {
    fn is_refusal(&self) -> bool {
        match &self.did {
            Did::Claim(_, step) => match step.answer {
                Claim::Held { .. } | Claim::InDoubt(_) | Claim::Done(_) => true,
                Claim::Mismatch | Claim::CallerChanged => true,
                Claim::Granted(_) => false,
            },
            Did::Settle(_, _, step) => step.answer != Settled::Applied,
            Did::Resolve(_, step) => step.answer != Resolved::Applied,
        }
    }

    fn is_kept(&self) -> bool {
        match &self.did {
            Did::Claim(_, step) => step.change == Change::Keep,
            Did::Settle(_, _, step) => step.change == Change::Keep,
            Did::Resolve(_, step) => step.change == Change::Keep,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn a_refusal_writes_nothing(history in history()) {
        for turn in play(&history) {
            prop_assert!(!turn.is_refusal() || turn.is_kept());
            prop_assert!(!turn.is_kept() || turn.before == turn.after);
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
            let Did::Settle(token, _, step) = &turn.did else { continue };
            if turn.before.as_ref().is_none_or(|record| record.token != *token) {
                let standing = standing(turn.before.as_ref(), turn.now);
                prop_assert_eq!(&step.answer, &Settled::Stale(standing));
                prop_assert_eq!(turn.before, turn.after);
            }
        }
    }

    #[test]
    fn an_outcome_never_changes_within_its_retention(history in history()) {
        for turn in play(&history) {
            let Some(before) = &turn.before else { continue };
            if let Phase::Done(_) = before.phase(turn.now) {
                prop_assert_eq!(&turn.before, &turn.after);
            }
        }
    }

    #[test]
    fn an_attempt_grows_by_one_and_only_by_a_takeover(history in history()) {
        for turn in play(&history) {
            let Some(after) = &turn.after else { continue };
            let same = turn.before.as_ref().filter(|before| before.token == after.token);
            if let Some(before) = same {
                prop_assert_eq!(before.attempt, after.attempt);
                continue;
            }
            let Did::Claim(request, _) = &turn.did else {
                return Err(TestCaseError::fail("only a claim mints a token"));
            };
            let open = turn.before.as_ref().filter(|before| standing(Some(before), turn.now) != Now::Absent);
            let Some(before) = open else {
                prop_assert_eq!(after.attempt, 1);
                continue;
            };
            prop_assert_eq!(standing(Some(before), turn.now), Now::InDoubt);
            prop_assert_eq!(after.attempt, before.attempt + 1);
            let InDoubtPolicy::Retry { silent_ms } = request.in_doubt else {
                return Err(TestCaseError::fail("taken over without the policy"));
            };
            prop_assert!(turn.now >= before.renewed_at + silent_ms);
        }
    }

    #[test]
    fn another_fingerprint_is_a_mismatch_and_changes_nothing(history in history()) {
        for turn in play(&history) {
            let (Did::Claim(request, step), Some(before)) = (&turn.did, &turn.before) else { continue };
            let known = rules::standing(before, turn.now) != Now::Absent;
            let other = before.fingerprint != request.fingerprint;
            let changed = Caller::is_other(request.caller, before.caller);
            prop_assert_eq!(step.answer == Claim::Mismatch, known && other && !changed);
            if known && other {
                prop_assert_eq!(&turn.before, &turn.after);
            }
        }
    }

    #[test]
    fn another_caller_learns_nothing_and_changes_nothing(history in history()) {
        for turn in play(&history) {
            let (Did::Claim(request, step), Some(before)) = (&turn.did, &turn.before) else { continue };
            let known = rules::standing(before, turn.now) != Now::Absent;
            let changed = Caller::is_other(request.caller, before.caller);
            prop_assert_eq!(step.answer == Claim::CallerChanged, known && changed);
            if known && changed {
                prop_assert_eq!(&turn.before, &turn.after);
            }
        }
    }

    #[test]
    fn the_same_nonce_has_the_same_token_while_the_claim_is_open(history in history()) {
        for turn in play(&history) {
            let (Did::Claim(request, step), Some(before)) = (&turn.did, &turn.before) else { continue };
            if Caller::is_other(request.caller, before.caller) {
                continue;
            }
            let open = matches!(rules::standing(before, turn.now), Now::Running | Now::InDoubt);
            if let (true, State::InDoubt(doubt)) = (open && before.nonce == request.nonce, &before.state) {
                let other = before.fingerprint != request.fingerprint;
                let expected = if other { Claim::Mismatch } else { Claim::InDoubt(doubt.clone()) };
                prop_assert_eq!(&step.answer, &expected);
                prop_assert_eq!(&turn.before, &turn.after);
            } else if open && before.nonce == request.nonce && before.fingerprint == request.fingerprint {
                let Claim::Granted(grant) = step.answer else {
                    return Err(TestCaseError::fail("the winner did not win again"));
                };
                prop_assert_eq!((grant.token, grant.attempt), (before.token, before.attempt));
                prop_assert_eq!(&turn.before, &turn.after);
            }
        }
    }

    #[test]
    fn the_answer_to_a_claim_agrees_with_the_phase(history in history()) {
        for turn in play(&history) {
            let Did::Claim(request, step) = &turn.did else { continue };
            let phase = turn.before.as_ref().map(|record| record.phase(turn.now));
            match &step.answer {
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
                    let unknown = matches!(phase, None | Some(Phase::Over { .. }));
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
    fn an_applied_completion_is_on_record(history in history()) {
        for turn in play(&history) {
            let Did::Settle(_, Settle::Complete(outcome), step) = &turn.did else { continue };
            if step.answer != Settled::Applied {
                continue;
            }
            let first = turn.before.as_ref().and_then(|record| match record.phase(turn.now) {
                Phase::Done(done) => Some(done.clone()),
                Phase::Running { .. } | Phase::InDoubt(_) | Phase::Over { .. } => None,
            });
            let fresh = Done { outcome: outcome.clone(), completed_at: turn.now };
            let expected = State::Done(first.unwrap_or(fresh));
            prop_assert_eq!(turn.after.map(|record| record.state), Some(expected));
        }
    }

    #[test]
    fn an_operator_ends_only_what_is_open(history in history()) {
        for turn in play(&history) {
            let Did::Resolve(word, step) = &turn.did else { continue };
            let before = standing(turn.before.as_ref(), turn.now);
            let may = before == Now::InDoubt || (before == Now::Running && *word == Resolution::Release);
            prop_assert_eq!(step.answer == Resolved::Applied, may);
            if may {
                let after = standing(turn.after.as_ref(), turn.now);
                let expected = match word {
                    Resolution::Done(outcome) => Now::Done(outcome.clone()),
                    Resolution::Absent | Resolution::Release => Now::Absent,
                };
                prop_assert_eq!(after, expected);
            }
        }
    }

    #[test]
    fn a_record_is_over_exactly_from_its_end_on(history in history()) {
        for turn in play(&history) {
            let Some(record) = &turn.after else { continue };
            let end = record.over_at();
            prop_assert_ne!(rules::standing(record, Timestamp(end.0 - 1)), Now::Absent);
            prop_assert_eq!(rules::standing(record, end), Now::Absent);
        }
    }

    #[test]
    fn a_mark_is_new_once_per_nonce_and_expiry(
        moves in vec((pause(), 0..3_u8, 1..300_u64), 1..40)
    ) {
        let (mut now, mut record) = (Timestamp(1_000_000), None::<mark::Record>);
        for (after_ms, nonce, retention_ms) in moves {
            now = now + after_ms;
            let request = mark::Request {
                key: MarkKey::new("E1").unwrap(),
                nonce: Nonce::from_bytes([nonce; 16]),
                retention_ms,
                metadata: Metadata::default(),
            };
            let step = rules::mark(record.as_ref(), &request, now);
            let alive = record.as_ref().filter(|record| now < record.expires_at);
            match (&step.answer, alive) {
                (mark::Mark::Seen { first_seen, .. }, Some(record)) => {
                    prop_assert_ne!(record.nonce, request.nonce);
                    prop_assert_eq!(*first_seen, record.marked_at);
                }
                (mark::Mark::New, Some(record)) => prop_assert_eq!(record.nonce, request.nonce),
                (answer, None) => prop_assert_eq!(answer, &mark::Mark::New),
            }
            prop_assert_eq!(step.change == Change::Keep, alive.is_some());
            if let Change::Put(new) = step.change {
                prop_assert_eq!(new.expires_at, now + retention_ms);
                record = Some(new);
            }
        }
    }
}

/// Short texts made of what people use as separators, so that joined parts often look alike.
fn part() -> impl Strategy<Value = String> {
    "[ab:/|\u{0}\u{1f}é]{0,4}"
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn keys_meet_only_if_all_their_parts_are_equal(parts in vec((part(), part(), part()), 2..40)) {
        let mut seen = BTreeMap::new();
        for parts in parts.into_iter().filter(|parts| !parts.2.is_empty()) {
            let (tenant, route, text) = parts.clone();
            let index = Key::new(Scope::new(tenant, route), text).unwrap().index();
            let first = seen.entry(index).or_insert_with(|| parts.clone());
            prop_assert_eq!(&*first, &parts);
        }
    }

    /// The same text, cut at any two places.
    #[test]
    fn a_border_moved_makes_another_key(text in "[ab:/|]{3,8}", cuts in vec((1..8_usize, 1..8_usize), 2..20)) {
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
    fn fingerprints_meet_only_if_all_their_parts_are_equal(lists in vec(vec(part(), 0..4), 2..40)) {
        let mut seen = BTreeMap::new();
        for list in lists {
            let digest = *Fingerprint::of(&list).as_bytes();
            let first = seen.entry(digest).or_insert_with(|| list.clone());
            prop_assert_eq!(&*first, &list);
        }
    }

    #[test]
    fn marks_and_claims_never_meet(tenant in part(), route in part(), text in "[ab:/|]{1,4}") {
        let mark = MarkKey::new(text.as_str()).unwrap().index();
        prop_assert_ne!(Key::new(Scope::new(tenant, route), text).unwrap().index(), mark);
    }
}
