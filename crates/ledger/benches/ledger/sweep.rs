//! Claims while others expire.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ichido_core::{ClaimRequest, Clock, ManualClock, SystemClock};
use ichido_ledger::Ledger;
use tokio::time::Instant;

use crate::Options;
use crate::fixture::{HOUR_MS, Store, open_at, request, scratch};
use crate::load::Until;
use crate::outcomes::Outcomes;
use crate::rounds::{median, ratio};
use crate::table::Table;

/// The keys were completed within an hour, and expire within an hour, in this many steps.
const STEPS: u32 = 40;
/// What is completed after this pause does not expire with them.
const PAUSE_MS: u64 = 60_000;

/// The latency of a claim while keys expire, and before.
pub(crate) async fn sweep(options: &Options, table: &mut Table) {
    let keys: u64 = if options.quick { 100_000 } else { 500_000 };
    let time = Duration::from_secs(if options.quick { 2 } else { 4 });
    let mut rounds = Vec::new();
    for _ in 0..options.rounds {
        rounds.push(measure(keys, time).await);
    }
    let all = |figure: fn(&Round) -> f64| rounds.iter().map(figure).collect::<Vec<_>>();
    let (before, during) = (all(|round| round.before_us), all(|round| round.during_us));
    table.note(format!("keys removed, of {keys}"), format!("{:.0}", median(&all(|round| round.removed))));
    table.note("time in which they were removed", format!("{:.1} s", median(&all(|round| round.seconds))));
    table.note("p99 of a claim, 64 callers, before keys expire", format!("{:.0} µs", median(&before)));
    table.note("p99 of a claim, 64 callers, while keys expire", format!("{:.0} µs", median(&during)));
    table.at_most(format!("p99 while {keys} keys expire / before"), ratio(&during, &before), "", 1.3);
}

struct Round {
    before_us: f64,
    during_us: f64,
    removed: f64,
    seconds: f64,
}

async fn measure(keys: u64, time: Duration) -> Round {
    let dir = scratch();
    let clock = Arc::new(ManualClock::at(SystemClock::default().now()));
    let ledger = open_at(dir.path(), clock.clone());
    let (store, outcomes) = (Store::Ledger(ledger.clone()), Outcomes::of(1_024));
    let filling = clock.clone();
    let old = move |number| {
        filling.advance(HOUR_MS / keys);
        long_leased("old", number)
    };
    store.run_keyed(256, Until::Calls(keys), &outcomes, old).await;
    clock.advance(PAUSE_MS);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = |number| long_leased("before", number);
    let before = store.run_keyed(64, Until::Time(time), &outcomes, before).await;

    // No claim is held while this much time passes at once.
    clock.advance(23 * HOUR_MS - PAUSE_MS);
    let done = Arc::new(AtomicBool::new(false));
    let start = Instant::now();
    let expiring = tokio::spawn({
        let (ledger, done) = (ledger.clone(), done.clone());
        async move {
            let removed = expire(&ledger, &clock, time).await;
            done.store(true, Ordering::Relaxed);
            removed
        }
    });
    let during = |number| long_leased("during", number);
    let during = store.run_keyed(64, Until::Stopped(done), &outcomes, during).await;
    let seconds = start.elapsed().as_secs_f64();
    let removed = expiring.await.unwrap();
    assert!(removed > 0, "nothing was removed");
    store.close().await;
    Round { before_us: before.p99_us(), during_us: during.p99_us(), removed: removed as f64, seconds }
}

/// A claim must not lapse because the clock is fast.
pub(crate) fn long_leased(family: &str, number: u64) -> ClaimRequest {
    ClaimRequest { lease_ms: HOUR_MS, ..request(family, number) }
}

/// Lets the keys of one hour expire step by step, and sweeps after each step. Returns how many keys were removed.
async fn expire(ledger: &Ledger, clock: &ManualClock, time: Duration) -> u64 {
    let mut removed = 0;
    for _ in 0..STEPS {
        clock.advance(HOUR_MS / u64::from(STEPS));
        removed += sweep_all(ledger).await;
        tokio::time::sleep(time / STEPS).await;
    }
    removed
}

/// Sweeps until nothing is left to remove.
pub(crate) async fn sweep_all(ledger: &Ledger) -> u64 {
    let mut removed = 0;
    loop {
        let swept = ledger.sweep(usize::MAX).await.unwrap();
        removed += swept.removed;
        if !swept.more {
            return removed;
        }
    }
}
