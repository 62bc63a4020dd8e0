//! What a run did, and what it found.

use std::fmt;

use crate::log::PlantedBug;

/// What one or more runs did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Runs.
    pub runs: u64,
    /// Steps of all runs.
    pub steps: u64,
    /// Batches of calls that were acknowledged.
    pub batches: u64,
    /// Power losses.
    pub power_losses: u64,
    /// Processes that were killed.
    pub kills: u64,
    /// Operations that failed with `EIO` or `ENOSPC`.
    pub faults: u64,
    /// Openings by a new process.
    pub starts: u64,
    /// Openings that crashed or failed before they were complete.
    pub failed_openings: u64,
    /// Openings by the same process after a failed write.
    pub reopenings: u64,
    /// Batches that were interrupted and applied.
    pub applied: u64,
    /// Batches that were interrupted and lost.
    pub lost: u64,
    /// Batches that were interrupted between two frames.
    pub split: u64,
    /// Groups of records that were copied.
    pub moves: u64,
    /// Segments that were dropped.
    pub dropped: u64,
    /// Bits that were flipped.
    pub flips: u64,
    /// Flipped bits that an opening or a read reported.
    pub flips_reported: u64,
    /// Most segments of a store.
    pub segments_max: u64,
}

impl Report {
    /// Crashes of either kind.
    pub fn crashes(&self) -> u64 {
        self.power_losses + self.kills
    }

    /// Adds what another run did.
    pub fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.steps += other.steps;
        self.batches += other.batches;
        self.power_losses += other.power_losses;
        self.kills += other.kills;
        self.faults += other.faults;
        self.starts += other.starts;
        self.failed_openings += other.failed_openings;
        self.reopenings += other.reopenings;
        self.applied += other.applied;
        self.lost += other.lost;
        self.split += other.split;
        self.moves += other.moves;
        self.dropped += other.dropped;
        self.flips += other.flips;
        self.flips_reported += other.flips_reported;
        self.segments_max = self.segments_max.max(other.segments_max);
    }
}

/// A promise that the store broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// The step in which it was found.
    pub step: u64,
    /// The bug that was planted.
    pub planted: Option<PlantedBug>,
    /// What is wrong.
    pub description: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}, step {}: {}\nto replay it: cargo xtask simulate --seed {}",
            self.seed, self.step, self.description, self.seed
        )?;
        match self.planted {
            Some(bug) => write!(f, " --bug {}", bug.name()),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}
