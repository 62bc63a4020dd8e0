//! A model check of claims: every order of events in a small world, decided by `ichido_core::rules`.
//!
//! # What is modelled
//!
//! One key and its record. Up to three *callers*: each claims the key with a nonce, runs the effect once it is granted, and
//! completes, releases (only if it did not run the effect), renews or declares doubt. A caller can stop forever at any
//! point, or restart with a new nonce. It can also be slow at any point. A holder that continues after its lease is a
//! zombie. It does not notice, because it sees only the replies to its claim and its completion.
//!
//! The *network*: every request may arrive late, twice, after everything else, or never; every reply may be lost. A late
//! reply needs no message of its own: it is the same as a prompt reply to a slow caller.
//!
//! *Time* is a small counter. A lease lapses after one tick, and a takeover is allowed after two. An *operator* may resolve
//! the claim a limited number of times, and may be wrong each time: done, absent, release.
//!
//! In addition, the world records what really happened (which grants ran the effect, and how each grant ended), which no
//! rule can see. The promises in [`promises`] are stated in terms of that.
//!
//! # What is abstracted
//!
//! A ledger decides atomically, as its contract demands. Each run of the effect has its own outcome, so that no two
//! outcomes are equal. The number of renewals and the time of the claim are not part of the state, because no rule
//! reads them. A caller that gets *held* or *in doubt* tries again with the same nonce. If all deliveries of one call
//! carry the same token, a late copy of a released call can be granted that token again and again; these histories end
//! after six grants.
//!
//! # What is not modelled
//!
//! The end of doubt after thirty days, clock jumps, several keys, marks, limits, and what the storage of a ledger loses
//! in a crash. Unit tests, property tests and the conformance suite of the ledgers cover these. The check is exhaustive
//! for the sizes given here, and proves nothing about larger ones.
//!
//! # Does it find anything?
//!
//! [`flaws`] adds mistakes to the rules, one at a time. The tests below assert that each is found, and which promise it
//! breaks.

mod actions;
mod flaws;
mod promises;
mod world;

use ichido_core::{InDoubtPolicy, Key};
use stateright::{Checker, HasDiscoveries, Model};

use flaws::Rules;
use promises::{
    APPLIED_IS_RECORDED, AT_MOST_ONE_EFFECT, DECLARED_DOUBT_STAYS, LOST_REPLY_IS_REPAIRED,
    NO_UNEXPLAINED_SECOND_EFFECT, NONCE_REPAIRS, ONE_NONCE_ONE_TOKEN, OTHERS_LEARN_NOTHING, OUTCOME_STAYS,
    REUSE_IS_REFUSED,
};
use world::{LEASE_MS, RETENTION_FOREVER_MS, SILENT_MS, Setting, Tokens};

const RETRY: InDoubtPolicy = InDoubtPolicy::Retry { silent_ms: SILENT_MS };

/// Three callers with the same request, the policy `reject`, and no operator.
fn reject() -> Setting {
    Setting {
        rules: Rules::Real,
        in_doubt: InDoubtPolicy::Reject,
        callers: vec![0, 0, 0],
        credentials: vec![0, 0, 0],
        lives: 1,
        ticks: 2,
        resolutions: 0,
        retention_ms: RETENTION_FOREVER_MS,
        tokens: Tokens::PerDelivery,
        key: Key::unscoped("k").unwrap(),
    }
}

/// The same with an operator who may resolve once.
fn reject_with_operator() -> Setting {
    Setting { resolutions: 1, ticks: 1, ..reject() }
}

/// Three callers with the same request and the policy `retry`, long enough for two takeovers.
fn retry() -> Setting {
    Setting { in_doubt: RETRY, ticks: 3, ..reject() }
}

/// Three callers, of which the third has a different request.
fn two_requests() -> Setting {
    Setting { callers: vec![0, 0, 1], ..reject() }
}

/// Three callers with the same request, of which the third has different credentials.
fn two_credentials() -> Setting {
    Setting { credentials: vec![0, 0, 1], ..reject() }
}

/// Two callers that crash and restart.
fn restarting(setting: Setting) -> Setting {
    Setting { callers: vec![0, 0], lives: 2, ..setting }
}

/// Explores every state: every promise must hold, every expected event must occur, and the number of states must not
/// shrink.
#[track_caller]
fn holds(name: &str, setting: Setting, at_least: usize) {
    let checker = setting.checker().threads(2).spawn_bfs().join();
    let states = checker.unique_state_count();
    println!("{name}: {states} states, {} steps deep", checker.max_depth());
    checker.assert_properties();
    assert!(states >= at_least, "{name}: only {states} states; the model has shrunk");
}

/// Asserts that the checker finds the flaw to break the promise. [`holds`] asserts that the real rules keep it.
#[track_caller]
fn breaks(flaw: Rules, setting: Setting, promise: &'static str) {
    let found = HasDiscoveries::AnyOf([promise].into());
    let flawed = Setting { rules: flaw, ..setting };
    let checker = flawed.checker().finish_when(found).spawn_bfs().join();
    let Some(path) = checker.discovery(promise) else {
        panic!("{flaw:?} was not found to break \"{promise}\"");
    };
    println!("{flaw:?} breaks \"{promise}\": {:?}", path.into_actions());
}

#[test]
fn reject_runs_the_effect_at_most_once() {
    holds("reject", Setting { ticks: 3, ..reject() }, 118_000);
}

#[test]
fn reject_runs_the_effect_at_most_once_when_callers_restart() {
    holds("reject, restarting", restarting(reject()), 406_000);
}

#[test]
fn only_an_operator_ends_doubt_under_reject() {
    holds("reject, operator", reject_with_operator(), 668_000);
    holds(
        "reject, operator twice",
        Setting { callers: vec![0, 0], resolutions: 2, ticks: 2, ..reject() },
        268_000,
    );
}

#[test]
fn retry_runs_the_effect_again_only_by_a_takeover() {
    holds("retry", retry(), 630_000);
    holds("retry, operator", Setting { callers: vec![0, 0], resolutions: 1, ticks: 2, ..retry() }, 91_000);
}

#[test]
fn retry_runs_the_effect_again_only_by_a_takeover_when_callers_restart() {
    let after_lease = InDoubtPolicy::Retry { silent_ms: LEASE_MS };
    holds(
        "retry, restarting",
        restarting(Setting { in_doubt: after_lease, ticks: 1, ..reject() }),
        1_297_000,
    );
}

#[test]
fn a_different_request_with_the_key_gets_nothing() {
    holds("two requests", two_requests(), 79_000);
    holds("two requests, retry", Setting { in_doubt: RETRY, ..two_requests() }, 136_000);
}

#[test]
fn a_different_caller_with_the_key_gets_nothing() {
    holds("two credentials", two_credentials(), 79_000);
    holds("two credentials, retry", Setting { in_doubt: RETRY, ..two_credentials() }, 136_000);
}

#[test]
fn outcome_is_kept_until_retention_is_over() {
    holds("short retention", Setting { retention_ms: 1, ..reject() }, 332_000);
    holds("short retention, retry", Setting { callers: vec![0, 0], retention_ms: 1, ..retry() }, 43_000);
}

#[test]
fn promises_hold_when_a_retried_write_carries_the_same_token() {
    let per_call = |setting| Setting { callers: vec![0, 0], ticks: 2, tokens: Tokens::PerCall, ..setting };
    holds("token per call, reject", per_call(reject()), 39_000);
    holds("token per call, operator", Setting { ticks: 1, ..per_call(reject_with_operator()) }, 164_000);
    holds("token per call, retry", per_call(retry()), 66_000);
}

#[test]
fn a_lapsed_lease_that_is_free_is_found_as_a_second_effect() {
    breaks(Rules::LapseIsFree, reject(), AT_MOST_ONE_EFFECT);
    breaks(Rules::LapseIsFree, reject(), NO_UNEXPLAINED_SECOND_EFFECT);
}

#[test]
fn ignored_nonces_are_found() {
    breaks(Rules::NonceIgnored, reject(), NONCE_REPAIRS);
    breaks(Rules::NonceIgnored, retry(), ONE_NONCE_ONE_TOKEN);
}

/// A caller whose reply was lost waits for itself, and nobody ever runs the effect.
#[test]
fn ignored_nonces_never_repair_a_lost_reply() {
    let alone = Setting { callers: vec![0], ..reject() };
    let lost = |rules| {
        let setting = Setting { rules, ..alone.clone() };
        setting.checker().spawn_bfs().join().discovery(LOST_REPLY_IS_REPAIRED)
    };
    assert!(lost(Rules::Real).is_some());
    assert!(lost(Rules::NonceIgnored).is_none());
}

#[test]
fn a_completion_without_a_token_check_is_found_as_a_lost_outcome() {
    breaks(Rules::CompleteComparesNothing, retry(), OUTCOME_STAYS);
    breaks(Rules::CompleteComparesNothing, retry(), APPLIED_IS_RECORDED);
}

#[test]
fn an_overwritten_outcome_is_found() {
    breaks(Rules::LastOutcomeWins, reject_with_operator(), OUTCOME_STAYS);
}

#[test]
fn a_release_without_a_token_check_is_found_as_a_second_effect() {
    breaks(Rules::ReleaseComparesNothing, reject(), AT_MOST_ONE_EFFECT);
}

#[test]
fn ignored_fingerprints_are_found() {
    breaks(Rules::FingerprintIgnored, two_requests(), REUSE_IS_REFUSED);
}

#[test]
fn ignored_callers_are_found() {
    breaks(Rules::CallerIgnored, two_credentials(), OTHERS_LEARN_NOTHING);
}

#[test]
fn a_grant_after_declared_doubt_is_found() {
    breaks(Rules::DeclaredDoubtGrantedAgain, reject(), DECLARED_DOUBT_STAYS);
}
