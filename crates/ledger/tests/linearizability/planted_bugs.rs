//! Ledgers with a planted bug: the checker must find each of them.

mod buggy_ledger;

use std::sync::Arc;

use ichido_ledger::Backend;
use ichido_ledger::conformance::history::{Bounds, Workload, run};

use self::buggy_ledger::{Flaw, Flawed};

/// A bug that stays hidden for so many histories would be missed.
const SEEDS: u64 = 24;
const AT_ONCE: u64 = 6;

/// Runs histories on a flawed ledger until one has no order.
#[allow(clippy::print_stdout, reason = "stories for people, shown with --nocapture")]
async fn is_found(flaw: Flaw) {
    let backend: Arc<dyn Backend> = Arc::new(Flawed::new(flaw));
    let bounds = Bounds::of(&backend.capabilities(), 1);
    for first in (1..=SEEDS).step_by(usize::try_from(AT_ONCE).unwrap()) {
        let workloads: Vec<Workload> = (first..first + AT_ONCE).map(Workload::draw).collect();
        let (settings, instances) = (crate::settings(), [backend.clone()]);
        let running = workloads.iter().map(|workload| run(workload, &instances, &settings));
        let histories = futures_util::future::join_all(running).await;
        if let Some(story) = histories.iter().find_map(|history| history.check(&bounds).err()) {
            assert!(story.contains("no order explains"), "{story}");
            println!("{flaw:?} was found within seeds {first} to {}:\n{story}", first + AT_ONCE - 1);
            return;
        }
    }
    panic!("{flaw:?} was not found within {SEEDS} histories");
}

macro_rules! finds {
    ($($name:ident: $flaw:ident,)+) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            is_found(Flaw::$flaw).await;
        })+
    };
}

finds! {
    finds_a_lapsed_lease_that_is_granted_afresh: LapseIsFreedom,
    finds_a_completion_with_a_stale_token: AnyTokenCompletes,
    finds_a_forgotten_nonce: NonceForgotten,
    finds_reads_from_before_the_last_write: StaleRead,
    finds_two_winners_of_one_key: CheckThenAct,
    finds_a_lease_that_lapses_early: EarlyLapse,
    finds_a_renewal_that_is_only_acknowledged: RenewalLost,
    finds_a_takeover_before_its_silence: ImpatientTakeover,
    finds_a_second_outcome_over_the_first: LastOutcomeWins,
    finds_an_attempt_that_is_not_counted: AttemptNotCounted,
    finds_a_fingerprint_that_is_not_compared: FingerprintIgnored,
    finds_an_operators_word_that_is_taken_while_a_holder_runs: OperatorOverrules,
    finds_a_mark_that_is_new_twice: MarkTwiceNew,
    finds_a_mark_that_is_forgotten_early: MarkForgottenEarly,
}
