use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp(1_700_000_000_000);
const RETRY: Verdict = Verdict::Retry { not_before: None };

fn fresh(retries: u32) -> PassState {
    PassState { origin: Origin::Fresh, retries, records: 3, probe: false }
}

fn spooled(retry_count: u32, retries: u32) -> PassState {
    PassState { origin: Origin::Spool { retry_count }, ..fresh(retries) }
}

fn next(verdict: Verdict, state: PassState) -> NextAction {
    decide(verdict, &state, &Policy::default(), NOW, 0.0)
}

fn asked(ms: u64) -> Verdict {
    Verdict::Retry { not_before: Some(NOW + ms) }
}

#[test]
fn batch_is_retried_after_one_two_and_four_seconds_and_then_spooled() {
    for (retries, seconds) in [(0, 1), (1, 2), (2, 4)] {
        assert_eq!(next(RETRY, fresh(retries)), NextAction::Retry(Duration::from_secs(seconds)));
    }
    assert_eq!(next(RETRY, fresh(3)), NextAction::Spool { retry_count: 0, not_before: None });
}

#[test]
fn pass_over_a_spooled_batch_counts_once() {
    assert_eq!(next(RETRY, spooled(4, 0)), NextAction::Retry(Duration::from_secs(1)));
    assert_eq!(next(RETRY, spooled(4, 3)), NextAction::Spool { retry_count: 5, not_before: None });
    assert_eq!(next(RETRY, spooled(9, 3)), NextAction::Exhausted { retry_count: 10 });
}

#[test]
fn probe_is_one_request_and_does_not_count() {
    let probe = |origin| PassState { origin, probe: true, ..fresh(0) };
    let kept = |retry_count| NextAction::Spool { retry_count, not_before: None };
    assert_eq!(next(RETRY, probe(Origin::Fresh)), kept(0));
    assert_eq!(next(RETRY, probe(Origin::Spool { retry_count: 9 })), kept(9));
}

#[test]
fn retry_after_is_respected() {
    assert_eq!(next(asked(7_000), fresh(0)), NextAction::Retry(Duration::from_secs(7)));
    assert_eq!(next(asked(0), fresh(0)), NextAction::Retry(Duration::ZERO));
    assert_eq!(next(asked(60_000), fresh(0)), NextAction::Retry(WAIT_MAX));
    // Longer than a process should wait: the batch is spooled.
    let kept = |retry_count| NextAction::Spool { retry_count, not_before: Some(NOW + 3_600_000) };
    assert_eq!(next(asked(3_600_000), fresh(0)), kept(0));
    assert_eq!(next(asked(3_600_000), spooled(2, 0)), kept(3));
}

#[test]
fn no_receiver_defers_a_batch_beyond_the_limit() {
    let day = 24 * 60 * 60 * 1_000;
    let capped = NextAction::Spool { retry_count: 0, not_before: Some(NOW + day) };
    // The year 9999 as a date, and a number of seconds that overflows.
    for until in [Timestamp(253_402_300_799_000), Timestamp(u64::MAX), NOW + day + 1] {
        assert_eq!(next(Verdict::Retry { not_before: Some(until) }, fresh(0)), capped);
    }
    let policy = Policy { retry_after_max: Duration::from_secs(30), ..Policy::default() };
    let next = decide(asked(u64::MAX), &fresh(0), &policy, NOW, 0.0);
    assert_eq!(next, NextAction::Retry(Duration::from_secs(30)));
}

#[test]
fn retry_after_in_the_past_means_now() {
    let verdict = Verdict::Retry { not_before: Some(Timestamp(5)) };
    assert_eq!(next(verdict, fresh(0)), NextAction::Retry(Duration::ZERO));
}

#[test]
fn rejected_record_is_isolated_before_it_fails() {
    assert_eq!(next(Verdict::Split, fresh(0)), NextAction::Split);
    assert_eq!(next(Verdict::Split, PassState { records: 1, ..fresh(0) }), NextAction::Rejected);
}

#[test]
fn request_that_may_be_in_progress_is_retried_soon_and_again_when_it_is_finished() {
    let unsettled = || Verdict::Unsettled { until: NOW + 300_000 };
    assert_eq!(next(unsettled(), fresh(0)), NextAction::Retry(Duration::from_secs(1)));
    let kept = |retry_count| NextAction::Spool { retry_count, not_before: Some(NOW + 300_000) };
    assert_eq!(next(unsettled(), fresh(3)), kept(0));
    assert_eq!(next(unsettled(), spooled(2, 3)), kept(3));
    assert_eq!(next(Verdict::Ambiguous, fresh(0)), NextAction::Ambiguous);
}

#[test]
fn jitter_only_lengthens() {
    let policy = Policy { jitter: true, ..Policy::default() };
    assert_eq!(policy.pause(2, 0.0), Duration::from_secs(4));
    assert_eq!(policy.pause(2, 1.0), Duration::from_secs(6));
    assert_eq!(Policy { backoff: Duration::MAX, ..policy }.pause(40, 1.0), Duration::MAX);
}

/// How a batch ends, in a simple model.
#[derive(Debug, PartialEq)]
enum End {
    Done,
    Failed,
    Waiting(u32),
    Held,
}

#[derive(Clone, Copy, Debug)]
enum Reply {
    Ok,
    Again,
    No,
}

/// The model: counts requests and passes.
fn model(script: &[Reply], max_retries: u32, max_spool_retries: u32) -> (End, usize) {
    let mut replies = script.iter();
    let (mut passes, mut requests) = (0u32, 0);
    loop {
        for _ in 0..=max_retries {
            let Some(reply) = replies.next() else {
                return (End::Waiting(passes.saturating_sub(1)), requests);
            };
            requests += 1;
            match reply {
                Reply::Ok => return (End::Done, requests),
                Reply::No => return (End::Held, requests),
                Reply::Again => {}
            }
        }
        passes += 1;
        if passes > 1 && passes > max_spool_retries {
            return (End::Failed, requests);
        }
    }
}

fn simulate(script: &[Reply], policy: &Policy) -> (End, usize) {
    let mut state = fresh(0);
    let mut requests = 0;
    let count = |state: &PassState| match state.origin {
        Origin::Fresh => 0,
        Origin::Spool { retry_count } => retry_count,
    };
    for reply in script {
        requests += 1;
        let verdict = match reply {
            Reply::Ok => Verdict::Delivered { duplicate: None },
            Reply::Again => RETRY,
            Reply::No => Verdict::Hold,
        };
        match decide(verdict, &state, policy, NOW, 0.5) {
            NextAction::Done { .. } => return (End::Done, requests),
            NextAction::Retry(pause) => {
                assert!(pause >= policy.pause(state.retries, 0.0));
                state.retries += 1;
            }
            NextAction::Spool { retry_count, .. } => state = spooled(retry_count, 0),
            NextAction::Exhausted { retry_count } => {
                assert_eq!(retry_count, policy.max_spool_retries.max(1));
                return (End::Failed, requests);
            }
            NextAction::Hold => return (End::Held, requests),
            other @ (NextAction::Rejected
            | NextAction::Ambiguous
            | NextAction::Split
            | NextAction::ByRecord(_)) => panic!("{other:?}"),
        }
    }
    (End::Waiting(count(&state)), requests)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn decisions_match_the_model(
        script in prop::collection::vec(prop_oneof![1 => Just(Reply::Ok), 12 => Just(Reply::Again), 1 => Just(Reply::No)], 0..60),
        max_retries in 0u32..5,
        max_spool_retries in 1u32..6,
        jitter: bool,
    ) {
        let policy = Policy { max_retries, max_spool_retries, jitter, ..Policy::default() };
        prop_assert_eq!(simulate(&script, &policy), model(&script, max_retries, max_spool_retries));
    }

    #[test]
    fn pass_counts_once_and_counts_never_decrease(retry_count in 0u32..20, retries in 0u32..6, probe: bool, wait in prop::option::of(0u64..200_000)) {
        let state = PassState { probe, ..spooled(retry_count, retries) };
        let verdict = Verdict::Retry { not_before: wait.map(|ms| NOW + ms) };
        match decide(verdict, &state, &Policy::default(), NOW, 0.3) {
            NextAction::Spool { retry_count: after, .. } => prop_assert!(after == retry_count + u32::from(!probe)),
            NextAction::Exhausted { retry_count: after } => prop_assert!(after == retry_count + 1 && after >= 10),
            NextAction::Retry(pause) => prop_assert!(pause <= WAIT_MAX && !probe && retries < 3),
            other @ (NextAction::Done { .. } | NextAction::Rejected | NextAction::Ambiguous | NextAction::Hold | NextAction::Split | NextAction::ByRecord(_)) => prop_assert!(false, "{:?}", other),
        }
    }
}
