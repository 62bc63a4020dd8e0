//! The state table, cell by cell: each test is named after the promise it keeps.

use super::*;
use crate::record::DOUBT_RETENTION_MS;
use crate::{Caller, Fingerprint, Holder, Key, MarkKey, Metadata, Nonce};

const LEASE_MS: u64 = 30_000;
const RETENTION_MS: u64 = 86_400_000;
const SILENT_MS: u64 = 50_000;
const CALLER: Option<Caller> = Some(Caller::from_bytes([1; 32]));
const RETRY: InDoubtPolicy = InDoubtPolicy::Retry { silent_ms: SILENT_MS };

/// So many milliseconds after the first claim.
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

/// What a caller asks: every caller asks the same, with a nonce and a token of its own.
fn ask(caller: u8) -> ClaimRequest {
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

fn ask_other(caller: u8) -> ClaimRequest {
    ClaimRequest { fingerprint: Fingerprint::of(["pay 99"]), ..ask(caller) }
}

/// The same request with other credentials.
fn ask_as_other(caller: u8) -> ClaimRequest {
    ClaimRequest { caller: Some(Caller::from_bytes([2; 32])), ..ask(caller) }
}

fn ask_retry(caller: u8) -> ClaimRequest {
    ClaimRequest { in_doubt: RETRY, ..ask(caller) }
}

fn granted(caller: u8, attempt: u32) -> Claim {
    granted_with_left(caller, attempt, LEASE_MS)
}

fn granted_with_left(caller: u8, attempt: u32, left_ms: u64) -> Claim {
    Claim::Granted(Grant { token: token(caller), attempt, lease_ms: LEASE_MS, left_ms })
}

fn put<A>(step: Step<A, Record>) -> Record {
    match step.change {
        Change::Put(record) => record,
        Change::Keep | Change::Remove => panic!("nothing was put"),
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

fn every_word() -> [Settle; 4] {
    [renew(), complete("late"), Settle::Release, doubt()]
}

/// Granted to caller 1 at the first moment.
fn running() -> Record {
    put(claim(None, &ask(1), at(0)))
}

/// Declared to be in doubt by caller 1, 100 ms after the grant.
fn declared() -> Record {
    put(settle(Some(&running()), token(1), &doubt(), at(100)))
}

/// Completed by caller 1, 100 ms after the grant.
fn completed() -> Record {
    put(settle(Some(&running()), token(1), &complete("first"), at(100)))
}

/// Granted to caller 1, silent, and taken over by caller 2 as soon as its policy allows.
fn taken_over() -> Record {
    put(claim(Some(&running()), &ask_retry(2), at(SILENT_MS)))
}

/// The claim was refused: this is the answer, and nothing is written.
#[track_caller]
fn assert_refused(record: &Record, request: &ClaimRequest, now: Timestamp, answer: Claim) {
    assert_eq!(claim(Some(record), request, now), Step::keep(answer));
}

/// No word of this token is taken, and nothing is written.
#[track_caller]
fn assert_stale(record: Option<&Record>, token: Token, now: Timestamp, standing: Now) {
    for word in every_word() {
        let step = settle(record, token, &word, now);
        assert_eq!(step, Step::keep(Settled::Stale(standing.clone())), "{word:?}");
    }
}

// Another caller, whatever the state.

#[test]
fn another_caller_is_refused_in_every_state_and_under_every_policy() {
    let cases = [(running(), 1), (running(), SILENT_MS), (declared(), SILENT_MS), (completed(), 200)];
    for (record, ms) in cases {
        let taking_over = ClaimRequest { in_doubt: RETRY, ..ask_as_other(2) };
        for request in [ask_as_other(2), taking_over, ask_as_other(1)] {
            assert_refused(&record, &request, at(ms), Claim::CallerChanged);
        }
    }
}

#[test]
fn another_caller_is_judged_before_the_fingerprint() {
    let both = ClaimRequest { fingerprint: ask_other(2).fingerprint, ..ask_as_other(2) };
    assert_refused(&completed(), &both, at(200), Claim::CallerChanged);
}

#[test]
fn record_without_a_caller_is_refused_to_whoever_has_one() {
    let before = Record { caller: None, ..completed() };
    assert_refused(&before, &ask(2), at(200), Claim::CallerChanged);
}

#[test]
fn request_without_a_caller_is_not_judged_by_it() {
    let shared = ClaimRequest { caller: None, ..ask(2) };
    assert_refused(&completed(), &shared, at(200), Claim::Done(outcome("first")));
}

#[test]
fn key_is_free_for_any_caller_exactly_when_retention_is_over() {
    let end = 100 + RETENTION_MS;
    assert_refused(&completed(), &ask_as_other(2), at(end - 1), Claim::CallerChanged);
    let step = claim(Some(&completed()), &ask_as_other(2), at(end));
    assert_eq!(step.answer, granted(2, 1));
    assert_eq!(put(step).caller, ask_as_other(2).caller);
}

// Absent, or retention over.

#[test]
fn absent_key_is_granted_at_attempt_one() {
    let step = claim(None, &ask(1), at(0));
    assert_eq!(step.answer, granted(1, 1));
    let record = put(step);
    assert_eq!(record.state, State::Running);
    assert_eq!((record.claimed_at, record.renewed_at, record.renewals), (at(0), at(0), 0));
    assert_eq!((record.nonce, record.token, record.attempt), (nonce(1), token(1), 1));
}

#[test]
fn absent_key_makes_every_token_stale() {
    assert_stale(None, token(1), at(0), Now::Absent);
}

#[test]
fn outcome_is_kept_until_the_last_millisecond_of_retention() {
    let end = 100 + RETENTION_MS;
    assert_refused(&completed(), &ask(2), at(end - 1), Claim::Done(outcome("first")));
    assert_eq!(claim(Some(&completed()), &ask(2), at(end)).answer, granted(2, 1));
}

#[test]
fn key_is_free_for_any_fingerprint_exactly_when_retention_is_over() {
    let end = 100 + RETENTION_MS;
    assert_refused(&completed(), &ask_other(2), at(end - 1), Claim::Mismatch);
    assert_eq!(claim(Some(&completed()), &ask_other(2), at(end)).answer, granted(2, 1));
}

#[test]
fn retention_over_makes_even_the_last_token_stale() {
    assert_stale(Some(&completed()), token(1), at(100 + RETENTION_MS), Now::Absent);
}

#[test]
fn retention_counts_from_completion_not_from_the_claim() {
    let late = put(settle(Some(&running()), token(1), &complete("late"), at(500_000)));
    assert_eq!(late.over_at(), at(500_000 + RETENTION_MS));
    assert_refused(&late, &ask(2), at(RETENTION_MS + 499_999), Claim::Done(outcome("late")));
}

// Running, lease good.

#[test]
fn running_claim_is_held_for_what_is_left_of_the_lease() {
    for passed in [0, 1, LEASE_MS - 1] {
        let held = Claim::Held { retry_after_ms: LEASE_MS - passed };
        assert_refused(&running(), &ask(2), at(passed), held);
    }
}

#[test]
fn running_claim_is_not_taken_over_by_any_policy() {
    let impatient = ClaimRequest { in_doubt: InDoubtPolicy::Retry { silent_ms: 0 }, ..ask(2) };
    assert_refused(&running(), &impatient, at(LEASE_MS - 1), Claim::Held { retry_after_ms: 1 });
}

#[test]
fn running_claim_is_granted_again_to_the_same_nonce_with_the_same_token() {
    let again = ClaimRequest { token: token(9), ..ask(1) };
    assert_refused(&running(), &again, at(LEASE_MS - 1), granted_with_left(1, 1, 1));
}

#[test]
fn running_claim_refuses_another_fingerprint_even_with_the_same_nonce() {
    assert_refused(&running(), &ask_other(2), at(1), Claim::Mismatch);
    assert_refused(&running(), &ask_other(1), at(1), Claim::Mismatch);
}

#[test]
fn running_claim_is_renewed_by_its_token() {
    let step = settle(Some(&running()), token(1), &Settle::Renew { lease_ms: 5 }, at(20_000));
    assert_eq!(step.answer, Settled::Applied);
    let renewed = put(step);
    let expected = Record { renewed_at: at(20_000), renewals: 1, lease_ms: 5, ..running() };
    assert_eq!(renewed, expected);
    assert_eq!(renewed.phase(at(20_004)), Phase::Running { left_ms: 1 });
}

#[test]
fn running_claim_is_completed_by_its_token() {
    let step = settle(Some(&running()), token(1), &complete("first"), at(100));
    assert_eq!(step.answer, Settled::Applied);
    let done = Done { outcome: outcome("first"), completed_at: at(100) };
    assert_eq!(put(step), Record { state: State::Done(done), ..running() });
}

#[test]
fn running_claim_is_removed_by_release_and_free_at_once() {
    let step = settle(Some(&running()), token(1), &Settle::Release, at(1));
    assert_eq!(step, Step { answer: Settled::Applied, change: Change::Remove });
}

#[test]
fn running_claim_is_in_doubt_as_soon_as_its_holder_says_so() {
    let doubt = Doubt { since: at(100), reason: DoubtReason::Declared("timed out".to_owned()) };
    assert_refused(&declared(), &ask(2), at(100), Claim::InDoubt(doubt));
}

#[test]
fn running_claim_knows_no_other_token() {
    assert_stale(Some(&running()), token(2), at(1), Now::Running);
    assert_stale(Some(&taken_over()), token(1), at(SILENT_MS + 1), Now::Running);
}

// In doubt: lease over, or declared.

#[test]
fn lapsed_lease_is_in_doubt() {
    let lapsed = Doubt { since: at(LEASE_MS), reason: DoubtReason::LeaseLapsed };
    assert_refused(&running(), &ask(2), at(LEASE_MS - 1), Claim::Held { retry_after_ms: 1 });
    assert_refused(&running(), &ask(2), at(LEASE_MS), Claim::InDoubt(lapsed));
}

#[test]
fn lapsed_lease_counts_from_the_last_renewal() {
    let renewed = put(settle(Some(&running()), token(1), &renew(), at(10_000)));
    assert_eq!(renewed.phase(at(10_000 + LEASE_MS - 1)), Phase::Running { left_ms: 1 });
    assert_eq!(standing(&renewed, at(10_000 + LEASE_MS)), Now::InDoubt);
}

#[test]
fn lapsed_lease_is_granted_again_to_the_same_nonce_with_the_same_token() {
    let again = ClaimRequest { token: token(9), ..ask(1) };
    assert_refused(&running(), &again, at(LEASE_MS), granted_with_left(1, 1, 0));
    let again = ClaimRequest { in_doubt: RETRY, ..again };
    assert_refused(&running(), &again, at(SILENT_MS), granted_with_left(1, 1, 0));
}

#[test]
fn declared_doubt_is_not_granted_again_to_the_same_nonce() {
    let doubt = Doubt { since: at(100), reason: DoubtReason::Declared("timed out".to_owned()) };
    for in_doubt in [InDoubtPolicy::Reject, RETRY] {
        let again = ClaimRequest { token: token(9), in_doubt, ..ask(1) };
        for ms in [200, LEASE_MS, SILENT_MS] {
            assert_refused(&declared(), &again, at(ms), Claim::InDoubt(doubt.clone()));
        }
    }
}

#[test]
fn holder_that_renews_after_declaring_doubt_is_granted_again() {
    let renewed = put(settle(Some(&declared()), token(1), &renew(), at(200)));
    assert_refused(&renewed, &ask(1), at(200), granted(1, 1));
}

#[test]
fn doubt_refuses_another_fingerprint_under_every_policy() {
    let retry = ClaimRequest { in_doubt: RETRY, ..ask_other(2) };
    for request in [ask_other(2), retry] {
        assert_refused(&running(), &request, at(SILENT_MS), Claim::Mismatch);
        assert_refused(&declared(), &request, at(SILENT_MS), Claim::Mismatch);
    }
}

#[test]
fn takeover_does_not_come_before_the_silence_has_passed() {
    let lapsed = Doubt { since: at(LEASE_MS), reason: DoubtReason::LeaseLapsed };
    assert_refused(&running(), &ask_retry(2), at(SILENT_MS - 1), Claim::InDoubt(lapsed));
    assert_eq!(claim(Some(&running()), &ask_retry(2), at(SILENT_MS)).answer, granted(2, 2));
}

#[test]
fn takeover_of_declared_doubt_waits_for_the_silence_too() {
    assert_eq!(claim(Some(&declared()), &ask_retry(2), at(SILENT_MS - 1)).change, Change::Keep);
    assert_eq!(claim(Some(&declared()), &ask_retry(2), at(SILENT_MS)).answer, granted(2, 2));
}

#[test]
fn takeover_counts_silence_from_the_last_renewal() {
    let renewed = put(settle(Some(&running()), token(1), &renew(), at(10_000)));
    assert_eq!(claim(Some(&renewed), &ask_retry(2), at(10_000 + SILENT_MS - 1)).change, Change::Keep);
    assert_eq!(claim(Some(&renewed), &ask_retry(2), at(10_000 + SILENT_MS)).answer, granted(2, 2));
}

#[test]
fn takeover_starts_a_whole_record_of_its_own() {
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
    let again = claim(Some(&taken_over()), &ask_retry(3), at(2 * SILENT_MS));
    assert_eq!(again.answer, granted(3, 3));
}

#[test]
fn doubt_is_ended_by_a_holder_that_renews_in_time() {
    for record in [running(), declared()] {
        let step = settle(Some(&record), token(1), &renew(), at(LEASE_MS));
        assert_eq!(step.answer, Settled::Applied);
        assert_eq!(put(step).phase(at(LEASE_MS)), Phase::Running { left_ms: LEASE_MS });
    }
}

#[test]
fn doubt_is_ended_by_a_holder_that_completes_in_time() {
    for record in [running(), declared()] {
        let step = settle(Some(&record), token(1), &complete("late"), at(LEASE_MS));
        assert_eq!(step.answer, Settled::Applied);
        assert_eq!(standing(&put(step), at(LEASE_MS)), Now::Done(outcome("late")));
    }
}

#[test]
fn doubt_is_ended_by_a_holder_that_releases_in_time() {
    for record in [running(), declared()] {
        let step = settle(Some(&record), token(1), &Settle::Release, at(LEASE_MS));
        assert_eq!(step, Step { answer: Settled::Applied, change: Change::Remove });
    }
}

#[test]
fn doubt_declared_after_a_lapse_is_as_old_as_the_lapse() {
    let step = settle(Some(&running()), token(1), &doubt(), at(LEASE_MS + 500));
    let expected = Doubt { since: at(LEASE_MS), reason: DoubtReason::Declared("timed out".to_owned()) };
    assert_eq!(put(step).state, State::InDoubt(expected));
}

#[test]
fn doubt_declared_twice_is_as_old_as_the_first_word() {
    let twice = put(settle(Some(&declared()), token(1), &doubt(), at(9_000)));
    assert_eq!(twice, declared());
}

#[test]
fn doubt_knows_no_other_token() {
    assert_stale(Some(&running()), token(2), at(LEASE_MS), Now::InDoubt);
    assert_stale(Some(&declared()), token(2), at(200), Now::InDoubt);
    assert_stale(Some(&taken_over()), token(1), at(SILENT_MS + LEASE_MS), Now::InDoubt);
}

#[test]
fn doubt_is_kept_thirty_days_and_free_exactly_then() {
    assert_eq!(DOUBT_RETENTION_MS, 30 * 24 * 60 * 60 * 1000);
    for (record, since) in [(running(), LEASE_MS), (declared(), 100)] {
        let end = since + DOUBT_RETENTION_MS;
        assert_eq!(record.over_at(), at(end));
        assert_eq!(standing(&record, at(end - 1)), Now::InDoubt);
        assert_eq!(claim(Some(&record), &ask(2), at(end - 1)).change, Change::Keep);
        assert_eq!(claim(Some(&record), &ask(2), at(end)).answer, granted(2, 1));
        assert_stale(Some(&record), token(1), at(end), Now::Absent);
    }
}

#[test]
fn end_of_doubt_is_told_apart_from_the_end_of_retention() {
    assert_eq!(running().phase(at(LEASE_MS + DOUBT_RETENTION_MS)), Phase::Over { in_doubt: true });
    assert_eq!(completed().phase(at(100 + RETENTION_MS)), Phase::Over { in_doubt: false });
}

// Done.

#[test]
fn done_answers_its_outcome_to_every_nonce_and_policy() {
    for request in [ask(1), ask(2), ask_retry(2)] {
        assert_refused(&completed(), &request, at(200), Claim::Done(outcome("first")));
    }
}

#[test]
fn done_refuses_another_fingerprint() {
    assert_refused(&completed(), &ask_other(2), at(200), Claim::Mismatch);
}

#[test]
fn done_keeps_the_first_outcome_when_completed_again() {
    let step = settle(Some(&completed()), token(1), &complete("second"), at(200));
    assert_eq!(step, Step::keep(Settled::Applied));
}

#[test]
fn done_answers_the_first_outcome_to_every_other_word_of_its_holder() {
    for word in [renew(), Settle::Release, doubt()] {
        let step = settle(Some(&completed()), token(1), &word, at(200));
        assert_eq!(step, Step::keep(Settled::Stale(Now::Done(outcome("first")))), "{word:?}");
    }
}

#[test]
fn done_answers_the_winners_outcome_to_an_older_token() {
    let won = put(settle(Some(&taken_over()), token(2), &complete("winner"), at(SILENT_MS + 1)));
    assert_stale(Some(&won), token(1), at(SILENT_MS + 2), Now::Done(outcome("winner")));
}

// An operator's words.

#[test]
fn operators_words_are_taken_where_they_can_end_something() {
    let words = || [Resolution::Done(outcome("operator")), Resolution::Absent, Resolution::Release];
    let lapsed = LEASE_MS;
    let cases = [
        ("absent", None, 0, [false, false, false]),
        ("running", Some(running()), 1, [false, false, true]),
        ("lapsed", Some(running()), lapsed, [true, true, true]),
        ("declared", Some(declared()), 200, [true, true, true]),
        ("done", Some(completed()), 200, [false, false, false]),
        ("over", Some(completed()), 100 + RETENTION_MS, [false, false, false]),
    ];
    for (name, record, ms, taken) in cases {
        for (word, taken) in words().into_iter().zip(taken) {
            let step = resolve(record.as_ref(), &word, at(ms));
            if taken {
                assert_eq!(step.answer, Resolved::Applied, "{name} {word:?}");
                assert_ne!(step.change, Change::Keep, "{name} {word:?}");
            } else {
                let standing = record.as_ref().map_or(Now::Absent, |record| standing(record, at(ms)));
                assert_eq!(step, Step::keep(Resolved::Refused(standing)), "{name} {word:?}");
            }
        }
    }
}

#[test]
fn operators_done_is_replayed_and_kept_from_the_word_on() {
    let word = Resolution::Done(outcome("operator"));
    let resolved = put(resolve(Some(&running()), &word, at(LEASE_MS)));
    assert_refused(&resolved, &ask(2), at(LEASE_MS), Claim::Done(outcome("operator")));
    assert_eq!(resolved.over_at(), at(LEASE_MS + RETENTION_MS));
}

#[test]
fn operators_done_outlives_the_holders_late_outcome() {
    let word = Resolution::Done(outcome("operator"));
    let resolved = put(resolve(Some(&running()), &word, at(LEASE_MS)));
    let late = settle(Some(&resolved), token(1), &complete("holder"), at(LEASE_MS + 1));
    assert_eq!(late.change, Change::Keep);
}

#[test]
fn operators_absent_and_release_remove_the_record() {
    for word in [Resolution::Absent, Resolution::Release] {
        assert_eq!(resolve(Some(&running()), &word, at(LEASE_MS)).change, Change::Remove);
    }
}

// Completed elsewhere.

/// Completed by a caller in another ledger.
fn foreign(caller: u8) -> Record {
    let record = put(claim(None, &ask(caller), at(0)));
    put(settle(Some(&record), token(caller), &complete("foreign"), at(50)))
}

#[test]
fn foreign_outcome_is_adopted_where_nothing_is_remembered() {
    let over = (Some(completed()), at(100 + RETENTION_MS));
    for (current, now) in [(None, at(60)), over] {
        let step = adopt(current.as_ref(), &foreign(2), now);
        assert_eq!(step, Step::put(Adopted::Stored, foreign(2)));
    }
}

#[test]
fn foreign_outcome_ends_the_same_grant() {
    for (current, now) in [(running(), at(1)), (running(), at(LEASE_MS)), (declared(), at(200))] {
        assert_eq!(adopt(Some(&current), &foreign(1), now), Step::put(Adopted::Stored, foreign(1)));
    }
}

#[test]
fn foreign_outcome_gives_way_to_every_other_grant() {
    let cases = [(running(), 1), (running(), LEASE_MS), (declared(), 200), (completed(), 200)];
    for (current, ms) in cases {
        assert_eq!(adopt(Some(&current), &foreign(2), at(ms)), Step::keep(Adopted::Conflict));
    }
}

#[test]
fn foreign_outcome_does_not_replace_the_first_of_the_same_grant() {
    assert_eq!(adopt(Some(&completed()), &foreign(1), at(200)), Step::keep(Adopted::Stored));
}

/// What another ledger says of a claim that is not completed.
fn foreign_open(state: &State) -> Record {
    Record { state: state.clone(), token: token(2), renewals: 4, ..running() }
}

#[test]
fn foreign_doubt_is_adopted_as_doubt() {
    let doubt = foreign_open(&declared().state);
    assert_eq!(adopt(None, &doubt, at(60)), Step::put(Adopted::Stored, doubt.clone()));
    let same_grant = Record { token: token(2), ..running() };
    assert_eq!(adopt(Some(&same_grant), &doubt, at(60)), Step::put(Adopted::Stored, doubt.clone()));
    for current in [running(), declared(), completed()] {
        assert_eq!(adopt(Some(&current), &doubt, at(200)), Step::keep(Adopted::Conflict));
    }
}

#[test]
fn foreign_running_claim_is_adopted_with_a_whole_lease() {
    let later = at(7 * LEASE_MS);
    let handed_over = Record { renewed_at: later, renewals: 5, ..foreign_open(&State::Running) };
    assert_eq!(adopt(None, &foreign_open(&State::Running), later), Step::put(Adopted::Stored, handed_over));
    assert_eq!(adopt(Some(&running()), &foreign_open(&State::Running), at(1)), Step::keep(Adopted::Conflict));
}

#[test]
fn foreign_open_claim_does_not_undo_an_outcome_of_the_same_grant() {
    let current = Record { token: token(2), ..completed() };
    for state in [State::Running, declared().state] {
        assert_eq!(adopt(Some(&current), &foreign_open(&state), at(200)), Step::keep(Adopted::Stored));
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
        Change::Keep | Change::Remove => panic!("nothing was put"),
    }
}

#[test]
fn first_mark_is_new_and_remembers_the_caller() {
    assert_eq!(mark(None, &mark_request(1), at(0)).answer, Mark::New);
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
fn second_mark_is_told_when_and_by_whom_it_was_seen() {
    let seen = Mark::Seen { first_seen: at(0), metadata: mark_request(1).metadata };
    assert_eq!(mark(Some(&marked()), &mark_request(2), at(1)), Step::keep(seen));
}

#[test]
fn mark_asked_again_with_the_same_nonce_is_new_again() {
    assert_eq!(mark(Some(&marked()), &mark_request(1), at(1)), Step::keep(Mark::New));
}

#[test]
fn mark_is_forgotten_exactly_at_its_expiry() {
    let last = mark(Some(&marked()), &mark_request(2), at(RETENTION_MS - 1));
    assert_eq!(last.change, Change::Keep);
    for caller in [1, 2] {
        let step = mark(Some(&marked()), &mark_request(caller), at(RETENTION_MS));
        assert_eq!(step.answer, Mark::New);
        let Change::Put(record) = step.change else { panic!("an expired mark is marked anew") };
        assert_eq!((record.marked_at, record.nonce), (at(RETENTION_MS), nonce(caller)));
    }
}

#[test]
fn mark_seen_again_is_not_kept_longer() {
    let step = mark(Some(&marked()), &mark_request(2), at(RETENTION_MS / 2));
    assert_eq!(step.change, Change::Keep);
}
