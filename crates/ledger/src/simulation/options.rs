//! How a run is made.

use crate::log::PlantedBug;

/// How a run is made.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The run ends after this many crashes.
    pub crashes: u64,
    /// The run ends after this many steps, at the latest.
    pub steps: u64,
    /// Whether keys are found by eight bits only, so that many of them collide. Otherwise the seed decides.
    pub has_short_tags: bool,
    /// A bug that the run must find.
    pub planted: Option<PlantedBug>,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { crashes: 40, steps: 4_000, has_short_tags: false, planted: None }
    }
}
