//! The store survives many seeds, and every planted bug is found.

mod recovery;

use super::*;

/// Seeds without a failure. A debug build is too slow for all of them.
const SEEDS: u64 = if cfg!(debug_assertions) { 50 } else { 1_000 };
/// Seeds that a planted bug may take to be found.
const SEEDS_TO_FIND: u64 = 50;

#[test]
fn no_seed_breaks_a_promise() {
    let campaign = campaign(0..SEEDS, u64::MAX, &RunOptions::default(), |_| {});
    assert_eq!(campaign.failure.map(|failure| failure.to_string()), None);
    let Report { runs, dropped, moves, split, reopenings, flips_reported, .. } = campaign.report;
    assert_eq!(runs, SEEDS);
    for (count, what) in [
        (dropped, "segments were dropped"),
        (moves, "records were copied"),
        (split, "batches were interrupted between two frames"),
        (reopenings, "stores were opened again after a failed write"),
        (flips_reported, "flipped bits were reported"),
    ] {
        assert!(count > 0, "no {what}: the simulation does not reach them any more");
    }
}

/// Their stories: a completion that moved to a new segment read its grant from the disk, which failed, and the store went on;
/// after a failed sync, a slot of the high-water mark was torn on the disk, and a power loss tore the other one.
#[test]
fn seeds_that_found_a_bug_stay_clean() {
    for seed in [1_605_466_429, 1_949_836_587] {
        assert_eq!(run(seed, &RunOptions::default()).err().map(|failure| failure.to_string()), None);
    }
}

#[test]
fn seed_repeats_its_run() {
    let options = RunOptions::default();
    assert_eq!(run(7, &options), run(7, &options));
    let options = RunOptions { planted: Some(PlantedBug::NoSync), ..options };
    assert_eq!(run(7, &options), run(7, &options));
}

#[test]
fn failure_tells_how_to_repeat_it() {
    let failure =
        Failure { seed: 7, step: 9, planted: Some(PlantedBug::NoSync), description: "key 1 is lost".into() };
    let expected = "seed 7, step 9: key 1 is lost\nto replay it: cargo xtask simulate --seed 7 --bug no-sync";
    assert_eq!(failure.to_string(), expected);
}

/// How many seeds it takes to find a planted bug.
fn seeds_to_find(planted: PlantedBug, has_short_tags: bool) -> u64 {
    let options = RunOptions { planted: Some(planted), has_short_tags, ..RunOptions::default() };
    (0..SEEDS_TO_FIND).position(|seed| run(seed, &options).is_err()).map_or(u64::MAX, |seed| seed as u64 + 1)
}

#[test]
#[allow(clippy::print_stdout, reason = "how fast a bug is found tells how good the simulation is")]
fn planted_bugs_are_found() {
    for planted in PlantedBug::ALL {
        for has_short_tags in [false, true] {
            let seeds = seeds_to_find(planted, has_short_tags);
            let tags = if has_short_tags { "8-bit tags" } else { "tags by seed" };
            println!("{} was found after {seeds} seeds, with {tags}", planted.name());
            assert!(seeds <= SEEDS_TO_FIND, "{} was not found, with {tags}", planted.name());
        }
    }
}
