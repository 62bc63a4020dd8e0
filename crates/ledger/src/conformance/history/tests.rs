//! Hand-written histories: what the checker must accept, and what it must reject.

use ichido_core::mark::{self, Mark};
use ichido_core::{
    Claim, ClaimRequest, CurrentState, Doubt, DoubtReason, Fingerprint, Grant, Holder, InDoubtPolicy, Key,
    MarkKey, Metadata, Nonce, Outcome, Resolution, Resolved, Settle, Settled, Timestamp, Token,
};

use super::{Bounds, ClaimAnswer, ClaimCall, ClaimOperation, End, History, MarkOperation, Operation};

const LEASE_MS: u64 = 100;
const KEPT_MS: u64 = 500;
const CLOCKED: Bounds =
    Bounds { tolerance_us: 2_000, watched: false, mark_granularity_us: 1_000, states: 10_000 };
const WATCHED: Bounds = Bounds { watched: true, ..CLOCKED };

/// A call and its reply at these times, in milliseconds.
fn answered(asked_ms: u64, answered_ms: u64, call: ClaimCall, answer: ClaimAnswer) -> ClaimOperation {
    let end = End::Answered { at_us: answered_ms * 1_000, answer };
    Operation { client: 0, call, asked_us: asked_ms * 1_000, end }
}

/// A call with an unknown result.
fn open(asked_ms: u64, call: ClaimCall) -> ClaimOperation {
    Operation { client: 0, call, asked_us: asked_ms * 1_000, end: End::Open }
}

fn request(caller: u8, in_doubt: InDoubtPolicy) -> ClaimRequest {
    ClaimRequest {
        key: Key::unscoped("k").unwrap(),
        fingerprint: Fingerprint::NONE,
        caller: None,
        nonce: Nonce::from_bytes([caller; 16]),
        token: token(caller),
        lease_ms: LEASE_MS,
        retention_ms: KEPT_MS,
        holder: Holder::Process,
        metadata: Metadata::default(),
        in_doubt,
    }
}

fn token(caller: u8) -> Token {
    Token::from_bytes([caller; 16])
}

/// Caller number `caller` claims the key.
fn claim(caller: u8) -> ClaimCall {
    ClaimCall::Claim(Box::new(request(caller, InDoubtPolicy::Reject)))
}

fn take_over(caller: u8) -> ClaimCall {
    ClaimCall::Claim(Box::new(request(caller, InDoubtPolicy::Retry { silent_ms: 0 })))
}

fn granted(caller: u8, attempt: u32, left_ms: u64) -> ClaimAnswer {
    ClaimAnswer::Claim(Claim::Granted(Grant { token: token(caller), attempt, lease_ms: LEASE_MS, left_ms }))
}

fn held(left_ms: u64) -> ClaimAnswer {
    ClaimAnswer::Claim(Claim::Held { retry_after_ms: left_ms })
}

fn lapsed() -> ClaimAnswer {
    let doubt = Doubt { since: Timestamp(0), reason: DoubtReason::LeaseLapsed };
    ClaimAnswer::Claim(Claim::InDoubt(doubt))
}

fn outcome() -> Outcome {
    Outcome::kept("x")
}

fn complete(caller: u8) -> ClaimCall {
    ClaimCall::Settle(token(caller), Settle::Complete(outcome()))
}

const APPLIED: ClaimAnswer = ClaimAnswer::Settle(Settled::Applied);

fn done() -> ClaimAnswer {
    ClaimAnswer::Claim(Claim::Done(outcome()))
}

fn check(operations: &[ClaimOperation], bounds: &Bounds) -> Result<(), String> {
    let claims = [("k".to_owned(), operations.to_vec())].into();
    History { claims, ..History::default() }.check(bounds).map(drop)
}

#[track_caller]
fn legal(operations: &[ClaimOperation]) {
    check(operations, &CLOCKED).unwrap();
}

#[track_caller]
fn illegal(operations: &[ClaimOperation]) {
    for bounds in [CLOCKED, WATCHED] {
        assert!(check(operations, &bounds).unwrap_err().contains("no order explains"));
    }
}

#[test]
fn sequential_calls_are_legal() {
    legal(&[
        answered(0, 1, claim(1), granted(1, 1, LEASE_MS)),
        answered(2, 3, claim(2), held(98)),
        answered(4, 5, complete(1), APPLIED),
        answered(6, 7, claim(2), done()),
        answered(600, 601, claim(3), granted(3, 1, LEASE_MS)),
    ]);
}

#[test]
fn overlapping_calls_may_take_effect_in_any_order() {
    legal(&[answered(0, 10, claim(1), held(100)), answered(1, 12, claim(2), granted(2, 1, LEASE_MS))]);
    legal(&[
        answered(0, 10, claim(1), done()),
        answered(0, 11, claim(2), granted(2, 1, LEASE_MS)),
        answered(0, 12, complete(2), APPLIED),
    ]);
}

#[test]
fn calls_that_do_not_overlap_keep_their_order() {
    illegal(&[answered(0, 10, claim(1), held(100)), answered(11, 12, claim(2), granted(2, 1, LEASE_MS))]);
    illegal(&[
        answered(0, 1, claim(1), granted(1, 1, LEASE_MS)),
        answered(2, 3, complete(1), APPLIED),
        answered(4, 5, claim(2), held(96)),
    ]);
}

#[test]
fn a_key_has_one_holder() {
    illegal(&[
        answered(0, 10, claim(1), granted(1, 1, LEASE_MS)),
        answered(0, 10, claim(2), granted(2, 1, LEASE_MS)),
    ]);
}

#[test]
fn open_call_may_or_may_not_have_happened() {
    legal(&[open(0, claim(1)), answered(20, 21, claim(2), held(80))]);
    legal(&[open(0, claim(1)), answered(20, 21, claim(2), granted(2, 1, LEASE_MS))]);
    // Long after the call, even though the lease would be over by now if it had taken effect at once.
    legal(&[
        open(0, claim(1)),
        answered(20, 21, claim(2), granted(2, 1, LEASE_MS)),
        answered(22, 23, complete(2), APPLIED),
        answered(700, 710, claim(3), held(95)),
    ]);
}

#[test]
fn open_call_happens_at_most_once_and_not_before_it_was_made() {
    illegal(&[answered(0, 1, claim(2), held(100)), open(2, claim(1))]);
    illegal(&[
        open(0, ClaimCall::Settle(token(1), Settle::Release)),
        answered(1, 2, claim(1), granted(1, 1, LEASE_MS)),
        answered(3, 4, claim(2), granted(2, 1, LEASE_MS)),
        answered(5, 6, claim(3), granted(3, 1, LEASE_MS)),
    ]);
}

#[test]
fn retry_after_a_lost_reply_gets_the_same_grant() {
    legal(&[open(0, claim(1)), answered(30, 31, claim(1), granted(1, 1, 75))]);
    illegal(&[answered(0, 1, claim(1), granted(1, 1, LEASE_MS)), answered(30, 31, claim(1), held(70))]);
}

#[test]
fn lease_lapses_neither_early_nor_late() {
    let grant = answered(0, 10, claim(1), granted(1, 1, LEASE_MS));
    legal(&[grant.clone(), answered(108, 109, claim(2), held(1)), answered(108, 109, claim(3), lapsed())]);
    illegal(&[grant.clone(), answered(90, 95, claim(2), lapsed())]);
    let late = [grant, answered(120, 121, claim(2), held(0))];
    assert!(check(&late, &CLOCKED).is_err());
    check(&late, &WATCHED).unwrap();
}

#[test]
fn results_narrow_down_when_the_lease_began() {
    // Held at 150 means granted after 50, so it cannot have lapsed by 140.
    let grant = answered(0, 100, claim(1), granted(1, 1, LEASE_MS));
    let lapse = answered(110, 140, claim(2), lapsed());
    assert!(
        check(&[grant.clone(), lapse.clone(), answered(150, 151, claim(3), held(40))], &CLOCKED).is_err()
    );
    legal(&[grant.clone(), answered(110, 140, claim(2), held(50)), answered(150, 151, claim(3), held(40))]);
    legal(&[grant, lapse, answered(150, 151, claim(3), lapsed())]);
}

#[test]
fn lapsed_lease_is_never_a_first_grant() {
    let grant = answered(0, 1, claim(1), granted(1, 1, LEASE_MS));
    illegal(&[grant.clone(), answered(200, 201, claim(2), granted(2, 1, LEASE_MS))]);
    illegal(&[grant.clone(), answered(200, 201, claim(2), granted(2, 2, LEASE_MS))]);
    illegal(&[grant.clone(), answered(200, 201, take_over(2), granted(2, 1, LEASE_MS))]);
    illegal(&[grant.clone(), answered(50, 51, take_over(2), granted(2, 2, LEASE_MS))]);
    legal(&[grant, answered(200, 201, take_over(2), granted(2, 2, LEASE_MS))]);
}

#[test]
fn stale_holder_gets_the_current_state() {
    let operations = |answer: Settled| {
        [
            answered(0, 1, claim(1), granted(1, 1, LEASE_MS)),
            answered(200, 201, take_over(2), granted(2, 2, LEASE_MS)),
            answered(202, 203, complete(2), APPLIED),
            answered(204, 205, complete(1), ClaimAnswer::Settle(answer)),
        ]
    };
    legal(&operations(Settled::Stale(CurrentState::Done(outcome()))));
    illegal(&operations(Settled::Applied));
    illegal(&operations(Settled::Stale(CurrentState::Running)));
}

#[test]
fn operator_resolves_only_claims_in_doubt() {
    let rule = |asked_ms, answer| {
        [
            answered(0, 1, claim(1), granted(1, 1, LEASE_MS)),
            answered(
                asked_ms,
                asked_ms + 1,
                ClaimCall::Resolve(Resolution::Absent),
                ClaimAnswer::Resolve(answer),
            ),
        ]
    };
    legal(&rule(50, Resolved::Refused(CurrentState::Running)));
    legal(&rule(150, Resolved::Applied));
    illegal(&rule(50, Resolved::Applied));
}

fn mark(asked_ms: u64, caller: u8, answer: Mark) -> MarkOperation {
    let by = Metadata::new([("by".to_owned(), caller.to_string())]).unwrap();
    let key = MarkKey::new("e").unwrap();
    let call =
        mark::Request { key, nonce: Nonce::from_bytes([caller; 16]), retention_ms: KEPT_MS, metadata: by };
    let end = End::Answered { at_us: (asked_ms + 1) * 1_000, answer };
    Operation { client: 0, call, asked_us: asked_ms * 1_000, end }
}

fn seen(by: u8) -> Mark {
    let metadata = Metadata::new([("by".to_owned(), by.to_string())]).unwrap();
    Mark::Seen { first_seen: Timestamp(0), metadata }
}

fn marks_are_legal(operations: &[MarkOperation], bounds: &Bounds) -> bool {
    let marks = [("e".to_owned(), operations.to_vec())].into();
    History { marks, ..History::default() }.check(bounds).is_ok()
}

#[test]
fn event_is_new_for_one_caller_until_it_expires() {
    let first = mark(0, 1, Mark::New);
    assert!(marks_are_legal(&[first.clone(), mark(2, 2, seen(1)), mark(4, 1, Mark::New)], &CLOCKED));
    assert!(!marks_are_legal(&[first.clone(), mark(2, 2, Mark::New)], &CLOCKED));
    assert!(!marks_are_legal(&[first.clone(), mark(2, 2, seen(2))], &CLOCKED), "not what the first left");
    assert!(!marks_are_legal(&[mark(0, 1, seen(2))], &CLOCKED), "nobody was there");
    assert!(!marks_are_legal(&[first.clone(), mark(480, 2, Mark::New)], &CLOCKED), "too early");
    assert!(marks_are_legal(&[first.clone(), mark(510, 2, Mark::New)], &CLOCKED));
    let late = [first, mark(900, 2, seen(1))];
    assert!(!marks_are_legal(&late, &CLOCKED), "too late");
    let coarse = Bounds { mark_granularity_us: 1_000_000, ..CLOCKED };
    assert!(marks_are_legal(&late, &coarse), "it ends at a whole second");
}

#[test]
fn search_that_reaches_its_limit_is_undecided() {
    let few = Bounds { states: 1, ..CLOCKED };
    let operations =
        vec![answered(0, 1, claim(1), granted(1, 1, LEASE_MS)), answered(2, 3, claim(2), held(98))];
    let history = History { claims: [("k".to_owned(), operations)].into(), ..History::default() };
    assert_eq!(history.check(&few).unwrap().undecided, 1);
    assert_eq!(history.check(&CLOCKED).unwrap().undecided, 0);
}

#[test]
fn report_ends_at_the_first_illegal_result() {
    let operations = check(
        &[
            answered(0, 1, claim(1), granted(1, 1, LEASE_MS)),
            answered(2, 5, claim(2), granted(2, 1, LEASE_MS)),
            answered(4, 8, complete(1), APPLIED),
            answered(9, 10, claim(3), done()),
        ],
        &CLOCKED,
    );
    let operations = operations.unwrap_err();
    assert!(operations.contains("granted 020202, attempt 1"), "{operations}");
    assert!(
        operations.contains("complete \"x\", token 010101 -> ?"),
        "unanswered at that moment: {operations}"
    );
    assert!(!operations.contains("030303"), "asked later: {operations}");
}
