//! Ledgers with a planted bug: the checker must find each of them.

mod buggy_ledger;

use std::sync::Arc;

use ichido_ledger::Backend;
use ichido_ledger::conformance::history::{Bounds, Workload, run};

use self::buggy_ledger::{Bug, BuggyLedger};

/// A bug that stays hidden for this many histories would be missed.
const SEEDS: u64 = 24;
const AT_ONCE: u64 = 6;

/// Runs histories on a buggy ledger until one has no order.
#[allow(clippy::print_stdout, reason = "reports for developers, shown with --nocapture")]
async fn is_found(bug: Bug) {
    let backend: Arc<dyn Backend> = Arc::new(BuggyLedger::new(bug));
    let bounds = Bounds::of(&backend.capabilities(), 1);
    for first in (1..=SEEDS).step_by(usize::try_from(AT_ONCE).unwrap()) {
        let workloads: Vec<Workload> = (first..first + AT_ONCE).map(Workload::draw).collect();
        let (settings, instances) = (super::settings(), [backend.clone()]);
        let running = workloads.iter().map(|workload| run(workload, &instances, &settings));
        let histories = futures_util::future::join_all(running).await;
        if let Some(story) = histories.iter().find_map(|history| history.check(&bounds).err()) {
            assert!(story.contains("no order explains"), "{story}");
            println!("{bug:?} was found within seeds {first} to {}:\n{story}", first + AT_ONCE - 1);
            return;
        }
    }
    panic!("{bug:?} was not found within {SEEDS} histories");
}

macro_rules! finds {
    ($($name:ident: $bug:ident,)+) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            is_found(Bug::$bug).await;
        })+
    };
}

finds! {
    finds_a_first_grant_of_a_lapsed_lease: LapsedLeaseIsGranted,
    finds_a_completion_with_a_stale_token: AnyTokenCompletes,
    finds_an_ignored_nonce: NonceIgnored,
    finds_reads_from_before_the_last_write: StaleRead,
    finds_two_winners_of_one_key: CheckThenAct,
    finds_a_lease_that_lapses_early: EarlyLapse,
    finds_an_ignored_renewal: RenewalIgnored,
    finds_an_early_takeover: EarlyTakeover,
    finds_a_second_outcome_over_the_first: LastOutcomeWins,
    finds_an_attempt_that_is_not_counted: AttemptNotCounted,
    finds_a_fingerprint_that_is_not_compared: FingerprintIgnored,
    finds_a_resolution_of_a_running_claim: OperatorResolvesRunning,
    finds_a_mark_that_is_new_twice: MarkNewTwice,
    finds_a_mark_that_expires_early: MarkExpiresEarly,
}
