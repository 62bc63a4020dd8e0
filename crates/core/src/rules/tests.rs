//! The state table, one cell at a time.

use super::*;
use crate::record::DOUBT_RETENTION_MS;
use crate::{Caller, Fingerprint, Holder, Key, MarkKey, Metadata, Nonce};

const LEASE_MS: u64 = 30_000;
const RETENTION_MS: u64 = 86_400_000;
const SILENT_MS: u64 = 50_000;
const CALLER: Option<Caller> = Some(Caller::from_bytes([1; 32]));
const RETRY: InDoubtPolicy = InDoubtPolicy::Retry { silent_ms: SILENT_MS };

/// This many milliseconds after the first claim.
fn at(ms: u64) -> Timestamp {
    Timestamp(1_700_000_000_000) + ms
}

fn token(caller: u8) -> Token {
    Token::from_bytes([caller; 16])
}

fn nonce(caller: u8) -> Nonce {
    Nonce::from_bytes([caller; 16])
}

fn outcome(text: &'static str) -> Outcome {
    Outcome::kept(text)
}

/// The request of a caller. All callers send the same request, each with its own nonce and token.
fn request(caller: u8) -> ClaimRequest {
    ClaimRequest {
        key: Key::unscoped("order-1").unwrap(),
        fingerprint: Fingerprint::of(["pay 10"]),
        caller: CALLER,
        nonce: nonce(caller),
        token: token(caller),
        lease_ms: LEASE_MS,
        retention_ms: RETENTION_MS,
        holder: Holder::Remote,
        metadata: Metadata::default(),
        in_doubt: InDoubtPolicy::Reject,
    }
}

fn different_request(caller: u8) -> ClaimRequest {
    ClaimRequest { fingerprint: Fingerprint::of(["pay 99"]), ..request(caller) }
}

/// The same request with different credentials.
fn request_of_other_caller(caller: u8) -> ClaimRequest {
    ClaimRequest { caller: Some(Caller::from_bytes([2; 32])), ..request(caller) }
}

fn retrying_request(caller: u8) -> ClaimRequest {
    ClaimRequest { in_doubt: RETRY, ..request(caller) }
}

fn granted(caller: u8, attempt: u32) -> Claim {
    granted_with_left(caller, attempt, LEASE_MS)
}

fn granted_with_left(caller: u8, attempt: u32, left_ms: u64) -> Claim {
    Claim::Granted(Grant { token: token(caller), attempt, lease_ms: LEASE_MS, left_ms })
}

fn put<A>(decision: Decision<A, Record>) -> Record {
    match decision.change {
        Change::Put(record) => record,
        Change::Keep | Change::Remove => panic!("no record was written"),
    }
}

fn renew() -> Settle {
    Settle::Renew { lease_ms: LEASE_MS }
}

fn complete(text: &'static str) -> Settle {
    Settle::Complete(outcome(text))
}

fn doubt() -> Settle {
    Settle::Doubt("timed out".to_owned())
}

fn every_action() -> [Settle; 4] {
    [renew(), complete("late"), Settle::Release, doubt()]
}

/// Granted to caller 1 at time 0.
fn running() -> Record {
    put(claim(None, &request(1), at(0)))
}

/// Declared in doubt by caller 1, 100 ms after the grant.
fn declared() -> Record {
    put(settle(Some(&running()), token(1), &doubt(), at(100)))
}

/// Completed by caller 1, 100 ms after the grant.
fn completed() -> Record {
    put(settle(Some(&running()), token(1), &complete("first"), at(100)))
}

/// Granted to caller 1, who does not renew, and taken over by caller 2 as soon as its policy allows.
fn taken_over() -> Record {
    put(claim(Some(&running()), &retrying_request(2), at(SILENT_MS)))
}

/// Asserts that the claim has this result and that nothing is written.
#[track_caller]
fn assert_unchanged(record: &Record, request: &ClaimRequest, now: Timestamp, result: Claim) {
    assert_eq!(claim(Some(record), request, now), Decision::keep(result));
}

/// Asserts that no action with this token is applied and that nothing is written.
#[track_caller]
fn assert_stale(record: Option<&Record>, token: Token, now: Timestamp, state: CurrentState) {
    for action in every_action() {
        let decision = settle(record, token, &action, now);
        assert_eq!(decision, Decision::keep(Settled::Stale(state.clone())), "{action:?}");
    }
}

// A different caller, in every state.

#[test]
fn a_different_caller_is_refused_in_every_state_and_under_every_policy() {
    let cases = [(running(), 1), (running(), SILENT_MS), (declared(), SILENT_MS), (completed(), 200)];
    for (record, ms) in cases {
        let taking_over = ClaimRequest { in_doubt: RETRY, ..request_of_other_caller(2) };
        for request in [request_of_other_caller(2), taking_over, request_of_other_caller(1)] {
            assert_unchanged(&record, &request, at(ms), Claim::CallerChanged);
        }
    }
}

#[test]
fn the_caller_is_compared_before_the_fingerprint() {
    let both = ClaimRequest { fingerprint: different_request(2).fingerprint, ..request_of_other_caller(2) };
    assert_unchanged(&completed(), &both, at(200), Claim::CallerChanged);
}

#[test]
fn a_record_without_a_caller_refuses_every_caller() {
    let before = Record { caller: None, ..completed() };
    assert_unchanged(&before, &request(2), at(200), Claim::CallerChanged);
}

#[test]
fn a_request_without_a_caller_is_not_compared() {
    let shared = ClaimRequest { caller: None, ..request(2) };
    assert_unchanged(&completed(), &shared, at(200), Claim::Done(outcome("first")));
}

#[test]
fn key_is_free_for_any_caller_exactly_when_retention_is_over() {
    let end = 100 + RETENTION_MS;
    assert_unchanged(&completed(), &request_of_other_caller(2), at(end - 1), Claim::CallerChanged);
    let decision = claim(Some(&completed()), &request_of_other_caller(2), at(end));
    assert_eq!(decision.result, granted(2, 1));
    assert_eq!(put(decision).caller, request_of_other_caller(2).caller);
}

// Absent or expired.

#[test]
fn absent_key_is_granted_at_attempt_one() {
    let decision = claim(None, &request(1), at(0));
    assert_eq!(decision.result, granted(1, 1));
    let record = put(decision);
    assert_eq!(record.state, State::Running);
    assert_eq!((record.claimed_at, record.renewed_at, record.renewals), (at(0), at(0), 0));
    assert_eq!((record.nonce, record.token, record.attempt), (nonce(1), token(1), 1));
}

#[test]
fn an_absent_key_makes_every_token_stale() {
    assert_stale(None, token(1), at(0), CurrentState::Absent);
}

#[test]
fn outcome_is_kept_until_the_last_millisecond_of_retention() {
    let end = 100 + RETENTION_MS;
    assert_unchanged(&completed(), &request(2), at(end - 1), Claim::Done(outcome("first")));
    assert_eq!(claim(Some(&completed()), &request(2), at(end)).result, granted(2, 1));
}

#[test]
fn key_is_free_for_any_fingerprint_exactly_when_retention_is_over() {
    let end = 100 + RETENTION_MS;
    assert_unchanged(&completed(), &different_request(2), at(end - 1), Claim::Mismatch);
    assert_eq!(claim(Some(&completed()), &different_request(2), at(end)).result, granted(2, 1));
}

#[test]
fn an_expired_key_makes_even_the_last_token_stale() {
    assert_stale(Some(&completed()), token(1), at(100 + RETENTION_MS), CurrentState::Absent);
}

#[test]
fn retention_counts_from_completion_not_from_the_claim() {
    let late = put(settle(Some(&running()), token(1), &complete("late"), at(500_000)));
    assert_eq!(late.expires_at(), at(500_000 + RETENTION_MS));
    assert_unchanged(&late, &request(2), at(RETENTION_MS + 499_999), Claim::Done(outcome("late")));
}

// Running.

#[test]
fn running_claim_is_held_for_the_rest_of_its_lease() {
    for passed in [0, 1, LEASE_MS - 1] {
        let held = Claim::Held { retry_after_ms: LEASE_MS - passed };
        assert_unchanged(&running(), &request(2), at(passed), held);
    }
}

#[test]
fn running_claim_is_not_taken_over_by_any_policy() {
    let impatient = ClaimRequest { in_doubt: InDoubtPolicy::Retry { silent_ms: 0 }, ..request(2) };
    assert_unchanged(&running(), &impatient, at(LEASE_MS - 1), Claim::Held { retry_after_ms: 1 });
}

#[test]
fn running_claim_is_granted_again_to_the_same_nonce_with_the_same_token() {
    let again = ClaimRequest { token: token(9), ..request(1) };
    assert_unchanged(&running(), &again, at(LEASE_MS - 1), granted_with_left(1, 1, 1));
}

#[test]
fn running_claim_refuses_a_different_fingerprint_even_with_the_same_nonce() {
    assert_unchanged(&running(), &different_request(2), at(1), Claim::Mismatch);
    assert_unchanged(&running(), &different_request(1), at(1), Claim::Mismatch);
}

#[test]
fn running_claim_is_renewed_by_its_token() {
    let decision = settle(Some(&running()), token(1), &Settle::Renew { lease_ms: 5 }, at(20_000));
    assert_eq!(decision.result, Settled::Applied);
    let renewed = put(decision);
    let expected = Record { renewed_at: at(20_000), renewals: 1, lease_ms: 5, ..running() };
    assert_eq!(renewed, expected);
    assert_eq!(renewed.phase(at(20_004)), Phase::Running { left_ms: 1 });
}

#[test]
fn running_claim_is_completed_by_its_token() {
    let decision = settle(Some(&running()), token(1), &complete("first"), at(100));
    assert_eq!(decision.result, Settled::Applied);
    let done = Done { outcome: outcome("first"), completed_at: at(100) };
    assert_eq!(put(decision), Record { state: State::Done(done), ..running() });
}

#[test]
fn running_claim_is_removed_by_release() {
    let decision = settle(Some(&running()), token(1), &Settle::Release, at(1));
    assert_eq!(decision, Decision { result: Settled::Applied, change: Change::Remove });
}

#[test]
fn running_claim_is_in_doubt_once_its_holder_declares_it() {
    let doubt = Doubt { since: at(100), reason: DoubtReason::Declared("timed out".to_owned()) };
    assert_unchanged(&declared(), &request(2), at(100), Claim::InDoubt(doubt));
}

#[test]
fn running_claim_accepts_only_its_own_token() {
    assert_stale(Some(&running()), token(2), at(1), CurrentState::Running);
    assert_stale(Some(&taken_over()), token(1), at(SILENT_MS + 1), CurrentState::Running);
}

// In doubt: the lease lapsed, or the holder declared it.

#[test]
fn lapsed_lease_is_in_doubt() {
    let lapsed = Doubt { since: at(LEASE_MS), reason: DoubtReason::LeaseLapsed };
    assert_unchanged(&running(), &request(2), at(LEASE_MS - 1), Claim::Held { retry_after_ms: 1 });
    assert_unchanged(&running(), &request(2), at(LEASE_MS), Claim::InDoubt(lapsed));
}

#[test]
fn lapsed_lease_counts_from_the_last_renewal() {
    let renewed = put(settle(Some(&running()), token(1), &renew(), at(10_000)));
    assert_eq!(renewed.phase(at(10_000 + LEASE_MS - 1)), Phase::Running { left_ms: 1 });
    assert_eq!(current_state(&renewed, at(10_000 + LEASE_MS)), CurrentState::InDoubt);
}

#[test]
fn lapsed_lease_is_granted_again_to_the_same_nonce_with_the_same_token() {
    let again = ClaimRequest { token: token(9), ..request(1) };
    assert_unchanged(&running(), &again, at(LEASE_MS), granted_with_left(1, 1, 0));
    let again = ClaimRequest { in_doubt: RETRY, ..again };
    assert_unchanged(&running(), &again, at(SILENT_MS), granted_with_left(1, 1, 0));
}

#[test]
fn declared_doubt_is_not_granted_again_to_the_same_nonce() {
    let doubt = Doubt { since: at(100), reason: DoubtReason::Declared("timed out".to_owned()) };
    for in_doubt in [InDoubtPolicy::Reject, RETRY] {
        let again = ClaimRequest { token: token(9), in_doubt, ..request(1) };
        for ms in [200, LEASE_MS, SILENT_MS] {
            assert_unchanged(&declared(), &again, at(ms), Claim::InDoubt(doubt.clone()));
        }
    }
}

#[test]
fn holder_that_renews_after_declaring_doubt_is_granted_again() {
    let renewed = put(settle(Some(&declared()), token(1), &renew(), at(200)));
    assert_unchanged(&renewed, &request(1), at(200), granted(1, 1));
}

#[test]
fn doubt_refuses_a_different_fingerprint_under_every_policy() {
    let retry = ClaimRequest { in_doubt: RETRY, ..different_request(2) };
    for request in [different_request(2), retry] {
        assert_unchanged(&running(), &request, at(SILENT_MS), Claim::Mismatch);
        assert_unchanged(&declared(), &request, at(SILENT_MS), Claim::Mismatch);
    }
}

#[test]
fn takeover_waits_until_the_holder_has_been_silent() {
    let lapsed = Doubt { since: at(LEASE_MS), reason: DoubtReason::LeaseLapsed };
    assert_unchanged(&running(), &retrying_request(2), at(SILENT_MS - 1), Claim::InDoubt(lapsed));
    assert_eq!(claim(Some(&running()), &retrying_request(2), at(SILENT_MS)).result, granted(2, 2));
}

#[test]
fn takeover_of_declared_doubt_waits_too() {
    assert_eq!(claim(Some(&declared()), &retrying_request(2), at(SILENT_MS - 1)).change, Change::Keep);
    assert_eq!(claim(Some(&declared()), &retrying_request(2), at(SILENT_MS)).result, granted(2, 2));
}

#[test]
fn takeover_counts_silence_from_the_last_renewal() {
    let renewed = put(settle(Some(&running()), token(1), &renew(), at(10_000)));
    assert_eq!(claim(Some(&renewed), &retrying_request(2), at(10_000 + SILENT_MS - 1)).change, Change::Keep);
    assert_eq!(claim(Some(&renewed), &retrying_request(2), at(10_000 + SILENT_MS)).result, granted(2, 2));
}

#[test]
fn takeover_starts_a_new_record() {
    let expected = Record {
        nonce: nonce(2),
        token: token(2),
        attempt: 2,
        claimed_at: at(SILENT_MS),
        renewed_at: at(SILENT_MS),
        ..running()
    };
    assert_eq!(taken_over(), expected);
}

#[test]
fn attempts_count_every_takeover() {
    let again = claim(Some(&taken_over()), &retrying_request(3), at(2 * SILENT_MS));
    assert_eq!(again.result, granted(3, 3));
}

#[test]
fn doubt_is_ended_by_a_holder_that_renews_in_time() {
    for record in [running(), declared()] {
        let decision = settle(Some(&record), token(1), &renew(), at(LEASE_MS));
        assert_eq!(decision.result, Settled::Applied);
        assert_eq!(put(decision).phase(at(LEASE_MS)), Phase::Running { left_ms: LEASE_MS });
    }
}

#[test]
fn doubt_is_ended_by_a_holder_that_completes_in_time() {
    for record in [running(), declared()] {
        let decision = settle(Some(&record), token(1), &complete("late"), at(LEASE_MS));
        assert_eq!(decision.result, Settled::Applied);
        assert_eq!(current_state(&put(decision), at(LEASE_MS)), CurrentState::Done(outcome("late")));
    }
}

#[test]
fn doubt_is_ended_by_a_holder_that_releases_in_time() {
    for record in [running(), declared()] {
        let decision = settle(Some(&record), token(1), &Settle::Release, at(LEASE_MS));
        assert_eq!(decision, Decision { result: Settled::Applied, change: Change::Remove });
    }
}

#[test]
fn doubt_declared_after_a_lapse_dates_from_the_lapse() {
    let decision = settle(Some(&running()), token(1), &doubt(), at(LEASE_MS + 500));
    let expected = Doubt { since: at(LEASE_MS), reason: DoubtReason::Declared("timed out".to_owned()) };
    assert_eq!(put(decision).state, State::InDoubt(expected));
}

#[test]
fn doubt_declared_twice_dates_from_the_first_time() {
    let twice = put(settle(Some(&declared()), token(1), &doubt(), at(9_000)));
    assert_eq!(twice, declared());
}

#[test]
fn doubt_accepts_only_its_own_token() {
    assert_stale(Some(&running()), token(2), at(LEASE_MS), CurrentState::InDoubt);
    assert_stale(Some(&declared()), token(2), at(200), CurrentState::InDoubt);
    assert_stale(Some(&taken_over()), token(1), at(SILENT_MS + LEASE_MS), CurrentState::InDoubt);
}

#[test]
fn doubt_expires_after_exactly_thirty_days() {
    assert_eq!(DOUBT_RETENTION_MS, 30 * 24 * 60 * 60 * 1000);
    for (record, since) in [(running(), LEASE_MS), (declared(), 100)] {
        let end = since + DOUBT_RETENTION_MS;
        assert_eq!(record.expires_at(), at(end));
        assert_eq!(current_state(&record, at(end - 1)), CurrentState::InDoubt);
        assert_eq!(claim(Some(&record), &request(2), at(end - 1)).change, Change::Keep);
        assert_eq!(claim(Some(&record), &request(2), at(end)).result, granted(2, 1));
        assert_stale(Some(&record), token(1), at(end), CurrentState::Absent);
    }
}

#[test]
fn expiry_in_doubt_differs_from_the_end_of_retention() {
    assert_eq!(running().phase(at(LEASE_MS + DOUBT_RETENTION_MS)), Phase::Expired { in_doubt: true });
    assert_eq!(completed().phase(at(100 + RETENTION_MS)), Phase::Expired { in_doubt: false });
}

// Done.

#[test]
fn done_returns_its_outcome_for_every_nonce_and_policy() {
    for request in [request(1), request(2), retrying_request(2)] {
        assert_unchanged(&completed(), &request, at(200), Claim::Done(outcome("first")));
    }
}

#[test]
fn done_refuses_a_different_fingerprint() {
    assert_unchanged(&completed(), &different_request(2), at(200), Claim::Mismatch);
}

#[test]
fn done_keeps_the_first_outcome_when_completed_again() {
    let decision = settle(Some(&completed()), token(1), &complete("second"), at(200));
    assert_eq!(decision, Decision::keep(Settled::Applied));
}

#[test]
fn done_returns_the_first_outcome_for_every_other_action_of_its_holder() {
    for action in [renew(), Settle::Release, doubt()] {
        let decision = settle(Some(&completed()), token(1), &action, at(200));
        assert_eq!(
            decision,
            Decision::keep(Settled::Stale(CurrentState::Done(outcome("first")))),
            "{action:?}"
        );
    }
}

#[test]
fn done_returns_the_winners_outcome_for_an_older_token() {
    let won = put(settle(Some(&taken_over()), token(2), &complete("winner"), at(SILENT_MS + 1)));
    assert_stale(Some(&won), token(1), at(SILENT_MS + 2), CurrentState::Done(outcome("winner")));
}

// Resolved by an operator.

#[test]
fn a_resolution_is_applied_only_in_the_states_it_is_for() {
    let resolutions = || {
        let done = Resolution::Done(outcome("operator"));
        let (forget, erase) =
            (|caller| Resolution::Forget(token(caller)), |caller| Resolution::Erase(token(caller)));
        [done, Resolution::Absent, Resolution::Release, forget(1), forget(2), erase(1), erase(2)]
    };
    let lapsed = LEASE_MS;
    let cases = [
        ("absent", None, 0, [false; 7]),
        ("running", Some(running()), 1, [false, false, true, false, false, false, false]),
        ("lapsed", Some(running()), lapsed, [true, true, true, false, false, false, false]),
        ("declared", Some(declared()), 200, [true, true, true, false, false, false, false]),
        ("done", Some(completed()), 200, [false, false, false, true, false, true, false]),
        ("over", Some(completed()), 100 + RETENTION_MS, [false; 7]),
    ];
    for (name, record, ms, is_applied) in cases {
        for (resolution, is_applied) in resolutions().into_iter().zip(is_applied) {
            let decision = resolve(record.as_ref(), &resolution, at(ms));
            if is_applied {
                assert_eq!(decision.result, Resolved::Applied, "{name} {resolution:?}");
                assert_ne!(decision.change, Change::Keep, "{name} {resolution:?}");
            } else {
                let state =
                    record.as_ref().map_or(CurrentState::Absent, |record| current_state(record, at(ms)));
                assert_eq!(decision, Decision::keep(Resolved::Refused(state)), "{name} {resolution:?}");
            }
        }
    }
}

#[test]
fn an_operators_outcome_is_replayed_and_kept_from_the_resolution_on() {
    let done = Resolution::Done(outcome("operator"));
    let resolved = put(resolve(Some(&running()), &done, at(LEASE_MS)));
    assert_unchanged(&resolved, &request(2), at(LEASE_MS), Claim::Done(outcome("operator")));
    assert_eq!(resolved.expires_at(), at(LEASE_MS + RETENTION_MS));
}

#[test]
fn a_late_completion_does_not_replace_an_operators_outcome() {
    let done = Resolution::Done(outcome("operator"));
    let resolved = put(resolve(Some(&running()), &done, at(LEASE_MS)));
    let late = settle(Some(&resolved), token(1), &complete("holder"), at(LEASE_MS + 1));
    assert_eq!(late.change, Change::Keep);
}

#[test]
fn resolving_as_absent_or_releasing_removes_the_record() {
    for resolution in [Resolution::Absent, Resolution::Release] {
        assert_eq!(resolve(Some(&running()), &resolution, at(LEASE_MS)).change, Change::Remove);
    }
}

#[test]
fn forgetting_removes_the_completed_claim_that_was_seen() {
    let forget = Resolution::Forget(token(1));
    assert_eq!(resolve(Some(&completed()), &forget, at(200)).change, Change::Remove);
}

#[test]
fn erased_claim_keeps_what_answers_a_retry_and_nothing_that_a_caller_wrote() {
    let metadata = Metadata::new([("user".to_owned(), "alice".to_owned())]).unwrap();
    let before = Record { metadata, ..completed() };
    let erase = Resolution::Erase(token(1));
    let erased = put(resolve(Some(&before), &erase, at(200)));
    assert!(erased.key.is_erased() && erased.key == before.key && erased.metadata.is_empty());
    assert_eq!(erased.expires_at(), before.expires_at());
    let tombstone = Claim::Done(Outcome::Tombstone("erased by an operator".to_owned()));
    assert_unchanged(&erased, &request(2), at(300), tombstone);
    assert_unchanged(&erased, &different_request(2), at(300), Claim::Mismatch);
    assert_unchanged(&erased, &request_of_other_caller(2), at(300), Claim::CallerChanged);
    // Neither the holder nor a second operator writes anything again.
    assert_eq!(settle(Some(&erased), token(1), &complete("late"), at(300)), Decision::keep(Settled::Applied));
    assert_eq!(resolve(Some(&erased), &erase, at(300)), Decision::keep(Resolved::Applied));
    let granted_again = claim(Some(&erased), &request(2), erased.expires_at());
    assert!(!put(granted_again).key.is_erased());
}

// Adopted from a different ledger.

/// Completed by a caller in a different ledger.
fn foreign(caller: u8) -> Record {
    let record = put(claim(None, &request(caller), at(0)));
    put(settle(Some(&record), token(caller), &complete("foreign"), at(50)))
}

#[test]
fn foreign_outcome_is_adopted_if_there_is_no_record() {
    let over = (Some(completed()), at(100 + RETENTION_MS));
    for (current, now) in [(None, at(60)), over] {
        let decision = adopt(current.as_ref(), &foreign(2), now);
        assert_eq!(decision, Decision::put(Adopted::Stored, foreign(2)));
    }
}

#[test]
fn foreign_outcome_completes_the_same_grant() {
    for (current, now) in [(running(), at(1)), (running(), at(LEASE_MS)), (declared(), at(200))] {
        assert_eq!(adopt(Some(&current), &foreign(1), now), Decision::put(Adopted::Stored, foreign(1)));
    }
}

#[test]
fn foreign_outcome_does_not_replace_a_different_grant() {
    let cases = [(running(), 1), (running(), LEASE_MS), (declared(), 200), (completed(), 200)];
    for (current, ms) in cases {
        assert_eq!(adopt(Some(&current), &foreign(2), at(ms)), Decision::keep(Adopted::Conflict));
    }
}

#[test]
fn foreign_outcome_does_not_replace_the_first_outcome_of_the_same_grant() {
    assert_eq!(adopt(Some(&completed()), &foreign(1), at(200)), Decision::keep(Adopted::Stored));
}

/// A claim in a different ledger that is not completed.
fn foreign_open(state: &State) -> Record {
    Record { state: state.clone(), token: token(2), renewals: 4, ..running() }
}

#[test]
fn foreign_doubt_is_adopted_as_doubt() {
    let doubt = foreign_open(&declared().state);
    assert_eq!(adopt(None, &doubt, at(60)), Decision::put(Adopted::Stored, doubt.clone()));
    let same_grant = Record { token: token(2), ..running() };
    assert_eq!(adopt(Some(&same_grant), &doubt, at(60)), Decision::put(Adopted::Stored, doubt.clone()));
    for current in [running(), declared(), completed()] {
        assert_eq!(adopt(Some(&current), &doubt, at(200)), Decision::keep(Adopted::Conflict));
    }
}

#[test]
fn foreign_running_claim_is_adopted_with_a_full_lease() {
    let later = at(7 * LEASE_MS);
    let adopted = Record { renewed_at: later, renewals: 5, ..foreign_open(&State::Running) };
    assert_eq!(adopt(None, &foreign_open(&State::Running), later), Decision::put(Adopted::Stored, adopted));
    assert_eq!(
        adopt(Some(&running()), &foreign_open(&State::Running), at(1)),
        Decision::keep(Adopted::Conflict)
    );
}

#[test]
fn foreign_open_claim_does_not_replace_an_outcome_of_the_same_grant() {
    let current = Record { token: token(2), ..completed() };
    for state in [State::Running, declared().state] {
        assert_eq!(adopt(Some(&current), &foreign_open(&state), at(200)), Decision::keep(Adopted::Stored));
    }
}

// Marks.

fn mark_request(caller: u8) -> mark::Request {
    let from = [("from".to_owned(), caller.to_string())];
    mark::Request {
        key: MarkKey::new("E1").unwrap(),
        nonce: nonce(caller),
        retention_ms: RETENTION_MS,
        metadata: Metadata::new(from).unwrap(),
    }
}

fn marked() -> mark::Record {
    match mark(None, &mark_request(1), at(0)).change {
        Change::Put(record) => record,
        Change::Keep | Change::Remove => panic!("no record was written"),
    }
}

#[test]
fn first_mark_is_new_and_stores_the_metadata() {
    assert_eq!(mark(None, &mark_request(1), at(0)).result, Mark::New);
    let expected = mark::Record {
        key: mark_request(1).key,
        nonce: nonce(1),
        marked_at: at(0),
        expires_at: at(RETENTION_MS),
        metadata: mark_request(1).metadata,
    };
    assert_eq!(marked(), expected);
}

#[test]
fn second_mark_returns_time_and_metadata_of_the_first() {
    let seen = Mark::Seen { first_seen: at(0), metadata: mark_request(1).metadata };
    assert_eq!(mark(Some(&marked()), &mark_request(2), at(1)), Decision::keep(seen));
}

#[test]
fn mark_retried_with_the_same_nonce_is_new_again() {
    assert_eq!(mark(Some(&marked()), &mark_request(1), at(1)), Decision::keep(Mark::New));
}

#[test]
fn mark_expires_exactly_at_its_expiry() {
    let last = mark(Some(&marked()), &mark_request(2), at(RETENTION_MS - 1));
    assert_eq!(last.change, Change::Keep);
    for caller in [1, 2] {
        let decision = mark(Some(&marked()), &mark_request(caller), at(RETENTION_MS));
        assert_eq!(decision.result, Mark::New);
        let Change::Put(record) = decision.change else { panic!("an expired mark is not replaced") };
        assert_eq!((record.marked_at, record.nonce), (at(RETENTION_MS), nonce(caller)));
    }
}

#[test]
fn mark_seen_again_does_not_expire_later() {
    let decision = mark(Some(&marked()), &mark_request(2), at(RETENTION_MS / 2));
    assert_eq!(decision.change, Change::Keep);
}

#[test]
fn forgetting_removes_only_the_mark_that_was_seen() {
    let removed = Decision { result: Forgotten::Removed, change: Change::Remove };
    assert_eq!(forget_mark(Some(&marked()), nonce(1), at(RETENTION_MS - 1)), removed);
    let gone = [(None, nonce(1), 1), (Some(marked()), nonce(2), 1), (Some(marked()), nonce(1), RETENTION_MS)];
    for (record, seen, ms) in gone {
        assert_eq!(forget_mark(record.as_ref(), seen, at(ms)), Decision::keep(Forgotten::Gone));
    }
}

#[test]
fn erasing_changes_only_the_mark_that_was_seen_and_the_event_stays_marked() {
    let pairs =
        [("event", "Ev1"), ("user", "alice")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let before = mark::Record { metadata: Metadata::new(pairs).unwrap(), ..marked() };
    let Decision { result, change: Change::Put(erased) } = erase_mark(Some(&before), nonce(1), at(1)) else {
        panic!("nothing was erased")
    };
    assert_eq!((result, erased.key.is_erased(), erased.metadata.is_empty()), (Erased::Whole, true, true));
    let seen = mark(Some(&erased), &mark_request(2), at(2));
    assert_eq!(seen.result, Mark::Seen { first_seen: before.marked_at, metadata: Metadata::default() });
    assert_eq!(erase_mark(Some(&erased), nonce(1), at(2)), Decision::keep(Erased::Whole));
    let gone = [(None, nonce(1), 1), (Some(marked()), nonce(2), 1), (Some(marked()), nonce(1), RETENTION_MS)];
    for (record, seen, ms) in gone {
        assert_eq!(erase_mark(record.as_ref(), seen, at(ms)), Decision::keep(Erased::Gone));
    }
    // Without its owner, a content mark would say that nobody handled the content.
    let content = mark::Record { key: MarkKey::new("content:file=F1").unwrap(), ..before };
    assert_eq!(content.erased().metadata.iter().collect::<Vec<_>>(), [("event", "Ev1")]);
}
