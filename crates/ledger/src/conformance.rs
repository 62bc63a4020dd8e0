//! The contract of a ledger, as named cases that every backend runs.
//!
//! A test file implements [`Subject`] for its backend and calls [`crate::conformance!`], which turns each case into
//! a test of the same name. A case that is added here runs on every backend. Cases use unique keys, so they can
//! share a store and run concurrently. They run in real time against real stores, so every wait has a bound.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::wildcard_enum_match_arm,
    reason = "cases are tests: what is unexpected fails them"
)]

pub mod claims;
pub mod content;
pub mod erasing;
pub mod forgetting;
pub mod history;
pub mod leases;
pub mod marks;
pub mod operators;
pub mod retention;
pub mod settling;
pub mod waiting;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ichido_core::{
    Claim, ClaimRequest, Clock, Entropy, Grant, InDoubtPolicy, Key, MarkKey, Outcome, Scope, SystemClock,
    SystemEntropy, Timestamp, to_hex,
};

use crate::Ledger;

/// A backend under test.
#[async_trait]
pub trait Subject: Send + Sync {
    /// A handle with connections of its own, as another instance of a service would have. For a store that only one
    /// process can open, another handle on the same store.
    async fn instance(&self, clock: Arc<dyn Clock>) -> Ledger;

    /// The granularity of marks' expiry, in milliseconds.
    fn mark_granularity_ms(&self) -> u64 {
        1
    }
}

/// Turns each case of the suite into a test. The argument is an async function that returns the [`Subject`].
#[macro_export]
macro_rules! conformance {
    ($subject:path) => {
        $crate::conformance!(@each $subject;
            claims: a_free_key_is_granted, a_second_caller_has_to_wait, a_retry_after_a_lost_reply_is_not_a_duplicate,
                another_fingerprint_is_a_mismatch_in_every_state, a_mismatch_changes_nothing,
                another_caller_is_refused_in_every_state, a_claim_without_a_caller_is_refused_to_one,
                another_caller_does_not_wait,
                a_thousand_parallel_claims_get_one_grant, every_key_of_a_stampede_has_one_winner,
                separators_in_keys_do_not_make_them_collide, tenants_and_routes_are_separate,
                interleaved_claims_keep_their_own_keys, metadata_is_kept;
            leases: a_lapsed_lease_is_in_doubt_and_not_granted, a_holder_may_complete_after_its_lease_lapsed,
                a_holder_may_renew_after_its_lease_lapsed, a_holder_may_release_after_its_lease_lapsed,
                a_living_holder_keeps_its_claim_beyond_the_lease, doubt_can_be_declared_at_once,
                a_retry_after_a_lost_reply_is_granted_even_in_doubt, a_declared_doubt_is_not_granted_again_to_the_same_nonce,
                takeover_by_policy_counts_the_attempt,
                takeover_waits_for_silence, fifty_racers_on_a_lapsed_lease_have_one_winner,
                a_stale_holder_cannot_complete_after_a_takeover, a_stale_holder_cannot_change_the_winners_claim,
                a_clock_that_is_an_hour_ahead_takes_nothing_over, a_key_granted_again_has_a_lease_of_its_own;
            settling: a_retry_gets_the_outcome_byte_for_byte, an_empty_outcome_is_an_outcome,
                a_tombstone_is_remembered, the_first_outcome_stays, a_done_claim_cannot_be_settled_otherwise,
                a_released_key_is_free, a_stale_token_changes_nothing, nothing_can_be_settled_on_an_absent_key,
                a_large_outcome_is_kept_or_leaves_a_tombstone, an_oversized_outcome_is_refused_and_nothing_written,
                one_of_two_concurrent_completions_wins;
            retention: a_done_key_is_free_exactly_at_its_expiry, an_expired_key_has_one_new_holder,
                a_running_claim_never_expires, retention_counts_from_completion;
            marks: an_event_is_new_once, a_retry_with_the_same_nonce_is_new_again, a_batch_of_a_hundred_is_answered_in_order,
                a_key_twice_in_a_batch_is_new_once, a_mark_expires_on_time, an_expired_mark_is_new_for_one_caller,
                racers_on_marks_have_one_winner_each, opposite_batches_do_not_deadlock,
                marks_and_claims_do_not_collide, mark_keys_are_used_verbatim;
            operators: a_claim_can_be_read, claims_are_listed_by_state, a_list_is_paged_without_gaps_or_duplicates,
                a_doubt_is_resolved_as_done, a_doubt_is_resolved_as_absent, a_running_claim_cannot_be_resolved,
                only_the_claim_that_was_seen_is_resolved,
                a_running_claim_can_be_released_by_force, a_done_claim_cannot_be_resolved,
                a_sweep_removes_expired_records_only, a_completed_record_is_adopted_if_absent,
                a_doubt_is_adopted_as_a_doubt, a_running_claim_is_adopted_with_its_token, an_adopted_record_does_not_overwrite_another, stats_and_check_succeed;
            forgetting: a_mark_can_be_read, marks_are_listed_by_prefix, a_list_of_marks_is_paged_without_gaps_or_duplicates,
                a_forgotten_mark_is_new_again, a_newer_mark_is_not_forgotten, one_of_two_operators_forgets_a_mark,
                a_forgotten_claim_is_granted_again, only_a_completed_claim_is_forgotten, a_newer_claim_is_not_forgotten;
            erasing: an_erased_claim_still_answers_retries, only_the_completed_claim_that_was_seen_is_erased,
                an_erased_claim_is_listed_without_its_texts, erasing_and_settling_at_once_leaves_no_outcome,
                an_erased_mark_is_still_seen, only_the_mark_that_was_seen_is_erased,
                an_erased_content_mark_keeps_its_owner;
            content: content_under_another_id_is_reported_or_refused, content_of_a_retry_is_its_own,
                an_owner_that_never_decided_is_replaced, shared_keys_in_any_order_lose_no_event,
                content_of_an_unhandled_claim_refuses_nobody, claims_with_shared_keys_lose_no_event;
            waiting: a_waiter_in_the_same_process_is_woken, a_waiter_in_another_process_notices_the_end_soon,
                a_waiter_gives_up_at_its_limit, exactly_one_waiter_is_promoted, once_runs_an_effect_once,
                once_releases_failed_effects_and_doubts_unknown_ones;
        );
    };
    (@each $subject:path; $($group:ident: $($case:ident),+;)+) => {
        $($(
            #[test]
            fn $case() {
                $crate::conformance::run(::std::boxed::Box::pin(async {
                    let subject = $subject().await;
                    $crate::conformance::$group::$case(&subject).await;
                }));
            }
        )+)+
    };
}

/// Runs one case on a runtime of its own. Not generic, so that a runtime is not compiled for each of hundreds of
/// tests.
pub fn run(case: Pin<Box<dyn Future<Output = ()>>>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(case);
}

/// A lease that lapses during a test.
pub(crate) const SHORT_MS: u64 = 150;
/// A lease that does not.
pub(crate) const LONG_MS: u64 = 60_000;
/// The bound of every wait: a loaded machine is slow, a broken ledger never finishes.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

/// A key that no other case and no other run uses.
pub(crate) fn key(name: &str) -> Key {
    scoped("", "", name)
}

pub(crate) fn scoped(tenant: &str, route: &str, name: &str) -> Key {
    Key::new(Scope::new(tenant, route), format!("{name}-{}", unique())).expect("a short key")
}

pub(crate) fn mark_key(name: &str) -> MarkKey {
    MarkKey::new(format!("{name}-{}", unique())).expect("a short key")
}

pub(crate) fn unique() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", to_hex(&SystemEntropy.draw()[..8]), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// An instance with the system's clock.
pub(crate) async fn instance(subject: &dyn Subject) -> Ledger {
    subject.instance(Arc::new(SystemClock::default())).await
}

pub(crate) fn request(ledger: &Ledger, key: &Key, lease_ms: u64) -> ClaimRequest {
    ClaimRequest { lease_ms, ..ledger.request(key.clone()) }
}

pub(crate) async fn claim(ledger: &Ledger, request: &ClaimRequest) -> Claim {
    ledger.claim(request).await.expect("the claim is answered").claim
}

/// Makes a claim that must be granted.
pub(crate) async fn granted(ledger: &Ledger, key: &Key, lease_ms: u64) -> Grant {
    grant_of(claim(ledger, &request(ledger, key, lease_ms)).await)
}

pub(crate) fn grant_of(claim: Claim) -> Grant {
    match claim {
        Claim::Granted(grant) => grant,
        other => panic!("expected a grant, got {other:?}"),
    }
}

/// Claims until the key is no longer held. A ledger without a clock must watch for a lease first.
pub(crate) async fn claim_past_lease(ledger: &Ledger, request: &ClaimRequest) -> Claim {
    let asking = async {
        loop {
            match claim(ledger, request).await {
                Claim::Held { .. } => tokio::time::sleep(Duration::from_millis(20)).await,
                other => return other,
            }
        }
    };
    tokio::time::timeout(BOUND, asking).await.expect("a lapsed lease is noticed")
}

/// Waits until a claim with a short lease is in doubt.
pub(crate) async fn lapse(ledger: &Ledger, key: &Key) {
    match claim_past_lease(ledger, &request(ledger, key, LONG_MS)).await {
        Claim::InDoubt(_) => {}
        other => panic!("expected doubt, got {other:?}"),
    }
}

/// Takes over a lapsed claim.
pub(crate) async fn take_over(ledger: &Ledger, key: &Key) -> Grant {
    let request =
        ClaimRequest { in_doubt: InDoubtPolicy::Retry { silent_ms: 0 }, ..request(ledger, key, LONG_MS) };
    grant_of(claim_past_lease(ledger, &request).await)
}

pub(crate) fn outcome(text: &str) -> Outcome {
    Outcome::kept(text.as_bytes().to_vec())
}

/// The system's clocks, with a wall clock that is off by `ahead_ms`.
#[derive(Debug)]
pub(crate) struct WrongClock {
    pub(crate) system: SystemClock,
    pub(crate) ahead_ms: u64,
}

impl Clock for WrongClock {
    fn now(&self) -> Timestamp {
        self.system.now() + self.ahead_ms
    }

    fn steady(&self) -> Duration {
        self.system.steady()
    }
}
