//! Many runs on all cores. Each seed is independent of the others.

use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use super::options::RunOptions;
use super::report::{Failure, Report};
use super::run::run;

/// What many runs did and found.
#[derive(Clone, Debug, Default)]
pub struct Campaign {
    /// What the runs without a failure did.
    pub report: Report,
    /// The failure with the lowest seed among those that were found. No run starts after the first failure.
    pub failure: Option<Failure>,
}

/// Runs these seeds, until one fails or there were this many crashes. Calls `progress` after each run.
pub fn campaign(
    seeds: Range<u64>,
    crashes: u64,
    options: &RunOptions,
    mut progress: impl FnMut(&Report),
) -> Campaign {
    let next = AtomicU64::new(seeds.start);
    let is_over = AtomicBool::new(false);
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let mut campaign = Campaign::default();
    thread::scope(|scope| {
        let (results, received) = channel();
        for _ in 0..threads {
            let results = results.clone();
            scope.spawn(|| work(&next, seeds.end, &is_over, options, results));
        }
        drop(results);
        for result in received {
            match result {
                Ok(report) => campaign.report.add(&report),
                Err(failure) => {
                    let first = campaign.failure.take().into_iter().chain([failure]);
                    campaign.failure = first.min_by_key(|failure| failure.seed);
                }
            }
            progress(&campaign.report);
            if campaign.failure.is_some() || campaign.report.crashes() >= crashes {
                is_over.store(true, Ordering::Relaxed);
            }
        }
    });
    campaign
}

fn work(
    next: &AtomicU64,
    end: u64,
    is_over: &AtomicBool,
    options: &RunOptions,
    results: Sender<Result<Report, Failure>>,
) {
    while !is_over.load(Ordering::Relaxed) {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end || results.send(run(seed, options)).is_err() {
            return;
        }
    }
}
