//! A model check of the claim: every order of events in a small world, driven through `ichido_core::rules`.
//!
//! # What is modelled
//!
//! One key and its record. Up to three *callers*: each asks for the key under a nonce, runs the effect once it is
//! granted, and completes, releases (only if it did not run the effect), renews or declares doubt. A caller can
//! stop at any point and be forgotten, or come back as a new one under a new nonce. It can also be slow at any
//! point: a holder that wakes after its lease is a zombie, and it goes on as if nothing had happened, for it hears
//! no answer but those to its claim and to its completion.
//!
//! The *wire*: whatever was sent may arrive late, twice, again after everything else, or never; each reply may be
//! lost. A reply that arrives late needs no message of its own: it is a reply heard at once by a slow caller.
//!
//! *Time* is a small counter. One tick lapses a lease, two make the silence after which a takeover is allowed.
//! An *operator* may say a bounded number of words, and may be wrong in each: done, absent, release.
//!
//! Beside this the world keeps what really happened (which grants ran the effect, and how each grant ended), which
//! no rule can see. The promises in [`promises`] are stated over that.
//!
//! # What is abstracted
//!
//! A ledger's step is atomic, as its contract demands. Each run of the effect has an answer of its own, so that no
//! two outcomes look alike. The count of renewals and the time of the claim are left out of the state, because no
//! rule reads them. A caller that is told *held* or *in doubt* asks again under the same nonce. Where all deliveries
//! of one call carry the same token, a late copy of a released call can be granted that token again, without end;
//! these histories are cut after six grants.
//!
//! # What is not modelled
//!
//! The end of doubt after thirty days, clocks that jump, more than one key, marks, limits, the storage under a
//! ledger and what it loses in a crash: unit tests, property tests and the suite of the ledgers are for these. The
//! check is exhaustive for the sizes given here, and says nothing of larger ones.
//!
//! # Does it find anything?
//!
//! [`flaws`] plants mistakes into the rules, one at a time, and the tests below assert that each is found, and
//! which promise it breaks.

#![allow(clippy::unwrap_used, reason = "this crate is a test")]
#![allow(clippy::print_stdout, reason = "the number of states is part of the result")]

mod actions;
mod flaws;
mod promises;
mod world;

use ichido_core::{InDoubtPolicy, Key};
use stateright::{Checker, HasDiscoveries, Model};

use flaws::Rules;
use promises::{
    APPLIED_IS_RECORDED, DECLARED_DOUBT_STAYS, LOST_REPLY_IS_REPAIRED, NO_SECOND_EFFECT_UNSAID,
    NONCE_REPAIRS, ONE_EFFECT_AT_ALL, ONE_NONCE_ONE_TOKEN, OTHERS_LEARN_NOTHING, OUTCOME_STAYS,
    REUSE_IS_REFUSED,
};
use world::{LEASE_MS, RETENTION_FOREVER_MS, SILENT_MS, Setting, Tokens};

const RETRY: InDoubtPolicy = InDoubtPolicy::Retry { silent_ms: SILENT_MS };

/// Three callers with one request, the policy `reject`, no operator.
fn reject() -> Setting {
    Setting {
        rules: Rules::Real,
        in_doubt: InDoubtPolicy::Reject,
        callers: vec![0, 0, 0],
        credentials: vec![0, 0, 0],
        lives: 1,
        ticks: 2,
        words: 0,
        retention_ms: RETENTION_FOREVER_MS,
        tokens: Tokens::PerDelivery,
        key: Key::unscoped("k").unwrap(),
    }
}

/// The same with an operator who may speak once.
fn reject_with_operator() -> Setting {
    Setting { words: 1, ticks: 1, ..reject() }
}

/// Three callers with one request and the policy `retry`, for two generations of takeovers.
fn retry() -> Setting {
    Setting { in_doubt: RETRY, ticks: 3, ..reject() }
}

/// Three callers, of whom the third asks for something else.
fn two_requests() -> Setting {
    Setting { callers: vec![0, 0, 1], ..reject() }
}

/// Three callers with one request, of whom the third has other credentials.
fn two_credentials() -> Setting {
    Setting { credentials: vec![0, 0, 1], ..reject() }
}

/// Two callers that crash and come back.
fn coming_back(setting: Setting) -> Setting {
    Setting { callers: vec![0, 0], lives: 2, ..setting }
}

/// Explores everything: every promise must hold, every sight be seen, and the world must not be smaller than it was.
#[track_caller]
fn holds(name: &str, setting: Setting, at_least: usize) {
    let checker = setting.checker().threads(2).spawn_bfs().join();
    let states = checker.unique_state_count();
    println!("{name}: {states} states, {} steps deep", checker.max_depth());
    checker.assert_properties();
    assert!(states >= at_least, "{name}: only {states} states; the model has lost something");
}

/// The checker finds that the flaw breaks the promise. That the real rules keep it is the business of [`holds`].
#[track_caller]
fn breaks(flaw: Rules, setting: Setting, promise: &'static str) {
    let found = HasDiscoveries::AnyOf([promise].into());
    let flawed = Setting { rules: flaw, ..setting };
    let checker = flawed.checker().finish_when(found).spawn_bfs().join();
    let Some(story) = checker.discovery(promise) else {
        panic!("{flaw:?} was not found to break \"{promise}\"");
    };
    println!("{flaw:?} breaks \"{promise}\": {:?}", story.into_actions());
}

#[test]
fn reject_runs_the_effect_at_most_once() {
    holds("reject", Setting { ticks: 3, ..reject() }, 118_000);
}

#[test]
fn reject_runs_the_effect_at_most_once_when_callers_come_back() {
    holds("reject, coming back", coming_back(reject()), 406_000);
}

#[test]
fn operator_is_the_only_one_who_ends_doubt_under_reject() {
    holds("reject, operator", reject_with_operator(), 668_000);
    holds("reject, operator twice", Setting { callers: vec![0, 0], words: 2, ticks: 2, ..reject() }, 268_000);
}

#[test]
fn retry_runs_the_effect_again_only_by_a_takeover() {
    holds("retry", retry(), 630_000);
    holds("retry, operator", Setting { callers: vec![0, 0], words: 1, ticks: 2, ..retry() }, 91_000);
}

#[test]
fn retry_runs_the_effect_again_only_by_a_takeover_when_callers_come_back() {
    let at_once = InDoubtPolicy::Retry { silent_ms: LEASE_MS };
    holds("retry, coming back", coming_back(Setting { in_doubt: at_once, ticks: 1, ..reject() }), 1_297_000);
}

#[test]
fn another_request_under_the_key_gets_nothing() {
    holds("two requests", two_requests(), 79_000);
    holds("two requests, retry", Setting { in_doubt: RETRY, ..two_requests() }, 136_000);
}

#[test]
fn another_caller_under_the_key_gets_nothing() {
    holds("two credentials", two_credentials(), 79_000);
    holds("two credentials, retry", Setting { in_doubt: RETRY, ..two_credentials() }, 136_000);
}

#[test]
fn outcome_is_kept_until_retention_is_over() {
    holds("short retention", Setting { retention_ms: 1, ..reject() }, 332_000);
    holds("short retention, retry", Setting { callers: vec![0, 0], retention_ms: 1, ..retry() }, 43_000);
}

#[test]
fn promises_hold_when_a_repeated_write_carries_its_own_token() {
    let per_call = |setting| Setting { callers: vec![0, 0], ticks: 2, tokens: Tokens::PerCall, ..setting };
    holds("token per call, reject", per_call(reject()), 39_000);
    holds("token per call, operator", Setting { ticks: 1, ..per_call(reject_with_operator()) }, 164_000);
    holds("token per call, retry", per_call(retry()), 66_000);
}

#[test]
fn planted_lapse_that_is_free_is_found_as_a_second_effect() {
    breaks(Rules::LapseIsFree, reject(), ONE_EFFECT_AT_ALL);
    breaks(Rules::LapseIsFree, reject(), NO_SECOND_EFFECT_UNSAID);
}

#[test]
fn planted_blindness_for_nonces_is_found() {
    breaks(Rules::NonceIgnored, reject(), NONCE_REPAIRS);
    breaks(Rules::NonceIgnored, retry(), ONE_NONCE_ONE_TOKEN);
}

/// Its own duplicate: the caller whose reply was lost waits for itself, and nobody ever runs the effect.
#[test]
fn planted_blindness_for_nonces_never_repairs_a_lost_reply() {
    let alone = Setting { callers: vec![0], ..reject() };
    let lost = |rules| {
        let setting = Setting { rules, ..alone.clone() };
        setting.checker().spawn_bfs().join().discovery(LOST_REPLY_IS_REPAIRED)
    };
    assert!(lost(Rules::Real).is_some());
    assert!(lost(Rules::NonceIgnored).is_none());
}

#[test]
fn planted_completion_without_a_token_is_found_as_a_lost_outcome() {
    breaks(Rules::CompleteComparesNothing, retry(), OUTCOME_STAYS);
    breaks(Rules::CompleteComparesNothing, retry(), APPLIED_IS_RECORDED);
}

#[test]
fn planted_overwriting_of_the_first_outcome_is_found() {
    breaks(Rules::LastOutcomeWins, reject_with_operator(), OUTCOME_STAYS);
}

#[test]
fn planted_release_without_a_token_is_found_as_a_second_effect() {
    breaks(Rules::ReleaseComparesNothing, reject(), ONE_EFFECT_AT_ALL);
}

#[test]
fn planted_blindness_for_fingerprints_is_found() {
    breaks(Rules::FingerprintIgnored, two_requests(), REUSE_IS_REFUSED);
}

#[test]
fn planted_blindness_for_callers_is_found() {
    breaks(Rules::CallerIgnored, two_credentials(), OTHERS_LEARN_NOTHING);
}

#[test]
fn planted_grant_after_a_declared_doubt_is_found() {
    breaks(Rules::DeclaredDoubtGrantedAgain, reject(), DECLARED_DOUBT_STAYS);
}
