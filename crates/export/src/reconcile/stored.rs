//! The last result for each period, in `data/export/reconciled.json`, for statements.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Difference, Findings};
use crate::state::State;
use ichido_serve::Failure;

const FILE: &str = "reconciled.json";
/// The largest file.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The most periods that are kept; the oldest are dropped first.
const PERIODS_MAX: usize = 1_000;
/// The most differences that are kept of a period. All are counted.
const DIFFERENCES_MAX: usize = 100;

/// What reconciliations found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reconciled {
    /// By the name of the period: its first day.
    pub periods: BTreeMap<String, ReconciledPeriod>,
}

/// What the last reconciliation of a period found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReconciledPeriod {
    /// When it was run, in RFC 3339.
    pub at: String,
    /// Whether the receiver said what it counted.
    pub receiver_answers: bool,
    /// How many records differ.
    pub differences: usize,
    /// The first of them.
    pub found: Vec<Difference>,
}

impl Reconciled {
    /// What reconciliations found, if any was run.
    pub fn read(state: &State) -> Result<Option<Self>, Failure> {
        state.document(FILE, FILE_BYTES_MAX)
    }

    /// Stores what reconciliations found.
    pub fn write(&self, state: &State) -> Result<(), Failure> {
        state.set_document(FILE, self)
    }

    /// Adds a result. It replaces earlier ones of the same periods.
    pub fn add(&mut self, findings: &Findings, at: &str) {
        for compared in &findings.periods {
            let found = findings.differences.iter().filter(|difference| difference.period == compared.period);
            let period = ReconciledPeriod {
                at: at.to_owned(),
                receiver_answers: findings.receiver_answers,
                differences: compared.differences,
                found: found.take(DIFFERENCES_MAX).cloned().collect(),
            };
            self.periods.insert(compared.period.clone(), period);
        }
        while self.periods.len() > PERIODS_MAX {
            self.periods.pop_first();
        }
    }

    /// The periods that begin in a month, which is written as in `2026-11`.
    pub fn month(&self, month: &str) -> impl Iterator<Item = (&String, &ReconciledPeriod)> {
        self.periods.iter().filter(move |(period, _)| period.starts_with(month))
    }
}
