//! `[history]`: where decisions are recorded, and for how long.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ichido_core::Clock;
use ichido_settings::Invalid;
use schemars::JsonSchema;
use serde::Deserialize;

/// Turns the history off.
const OFF: &str = "off";
const DAY: Duration = Duration::from_secs(86_400);

/// `[history]` as it was written.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawHistory {
    /// The directory in which `ichido gateway`, `claims` and `run` record their decisions, or `off`.
    #[schemars(extend("x-env" = "ICHIDO_HISTORY_DIR"))]
    pub dir: PathBuf,
    /// Directories of other instances' histories. The console, the API and `ichido events` merge them with `dir`.
    pub merge: Vec<PathBuf>,
    /// Recent decisions that are kept one by one.
    #[schemars(range(min = 1))]
    pub decisions_max: u64,
    /// How many days they are kept at most.
    #[schemars(range(min = 1, max = 3650))]
    pub decisions_days: u32,
    /// How many days the counts by the hour are kept.
    #[schemars(range(min = 1, max = 3650))]
    pub counts_days: u32,
}

impl Default for RawHistory {
    fn default() -> Self {
        let (dir, merge) = ("data/history".into(), Vec::new());
        Self { dir, merge, decisions_max: 200_000, decisions_days: 7, counts_days: 30 }
    }
}

/// What is kept, and for how long.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The directory of the files.
    pub dir: PathBuf,
    /// The name of this instance.
    pub instance: String,
    /// Recent decisions that are kept one by one.
    pub decisions_max: u64,
    /// How long they are kept at most.
    pub decisions_age: Duration,
    /// How long counts are kept.
    pub counts_age: Duration,
    /// The source of time.
    pub clock: Arc<dyn Clock>,
}

impl RawHistory {
    /// The directories to read: this one, unless it is off, and those of other instances.
    pub fn readable(self) -> Vec<PathBuf> {
        let own = Some(self.dir).filter(|dir| dir.as_os_str() != OFF);
        own.into_iter().chain(self.merge).collect()
    }

    /// Checks the section. `None` if nothing is to be recorded.
    pub fn check(self, instance: String, clock: Arc<dyn Clock>) -> Result<Option<Settings>, Invalid> {
        let invalid = |name: &str, problem: &str| Err(Invalid::new(format!("history.{name}"), problem));
        if self.dir.as_os_str().is_empty() {
            return invalid("dir", "is empty; name a directory, or \"off\"");
        }
        if self.merge.iter().any(|dir| dir.as_os_str().is_empty()) {
            return invalid("merge", "contains an empty path");
        }
        if self.decisions_max == 0 {
            return invalid(
                "decisions_max",
                "must be at least 1; to record nothing, set history.dir = \"off\"",
            );
        }
        for (name, days) in [("decisions_days", self.decisions_days), ("counts_days", self.counts_days)] {
            if !(1..=3650).contains(&days) {
                return invalid(name, "must be between 1 and 3650");
            }
        }
        Ok((self.dir.as_os_str() != OFF).then(|| Settings {
            dir: self.dir,
            instance,
            decisions_max: self.decisions_max,
            decisions_age: DAY * self.decisions_days,
            counts_age: DAY * self.counts_days,
            clock,
        }))
    }
}
