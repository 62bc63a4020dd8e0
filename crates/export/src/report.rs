//! The report of an export.

use serde::Serialize;

use super::calendar::PeriodRange;
use super::plan::{Action, Change, Plan};

/// The most changes that are listed one by one.
const CHANGES_MAX: usize = 1_000;

/// The report of an export, by period.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// The exported periods.
    pub periods: Vec<PeriodReport>,
    /// Records that were sent with other sums.
    pub changes: Vec<Change>,
    /// A note on requested days that are not over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

/// The report of one period.
#[derive(Debug, Serialize)]
pub struct PeriodReport {
    /// The first day.
    pub first: String,
    /// The last day.
    pub last: String,
    /// Rows of the source.
    pub rows: u64,
    /// How many of these come from Dify's debugger.
    pub debugger: u64,
    /// Records that the rows were summed to.
    pub records: usize,
    /// Records that were sent for the first time.
    pub new: usize,
    /// Records that were sent again.
    pub replaced: usize,
    /// Records that were sent before and are the same.
    pub unchanged: usize,
    /// Changed records that were not sent, because the receiver keeps the first.
    pub kept: usize,
    /// Records that were not sent yet, because an older total is undelivered.
    pub withheld: usize,
    /// Records that were sent and are no longer in the source.
    pub gone: usize,
    /// Rows and records that cannot be counted. New ones were written to failed.
    pub refused: usize,
}

impl PeriodReport {
    pub(crate) fn new(range: &PeriodRange, rows: u64, debugger: u64, refused: usize, plan: &Plan) -> Self {
        let kept = plan.changes.iter().filter(|change| change.what == Action::NotSent).count();
        Self {
            first: range.first.to_string(),
            last: range.last.to_string(),
            rows,
            debugger,
            records: plan.new.len() + plan.replaced.len() + plan.unchanged + kept + plan.withheld.len(),
            new: plan.new.len(),
            replaced: plan.replaced.len(),
            unchanged: plan.unchanged,
            kept,
            withheld: plan.withheld.len(),
            gone: plan.gone.len(),
            refused,
        }
    }
}

impl Report {
    /// Adds a period and logs it.
    pub(crate) fn add(&mut self, period: PeriodReport, plan: &Plan) {
        let PeriodReport {
            first,
            rows,
            records,
            new,
            replaced,
            unchanged,
            kept,
            withheld,
            gone,
            refused,
            ..
        } = &period;
        tracing::info!(
            period = first,
            rows,
            records,
            new,
            replaced,
            unchanged,
            kept,
            withheld,
            gone,
            refused,
            "exported"
        );
        for change in &plan.changes {
            if self.changes.len() < CHANGES_MAX {
                tracing::warn!(
                    id = change.id,
                    what = ?change.what,
                    requests_before = change.before.requests,
                    requests = change.now.requests,
                    cost_before = change.before.cost,
                    cost = change.now.cost,
                    "the total of a record differs from what was sent"
                );
                self.changes.push(change.clone());
            }
        }
        self.periods.push(period);
    }

    /// How many records were withheld.
    pub fn withheld(&self) -> usize {
        self.periods.iter().map(|period| period.withheld).sum()
    }

    /// Logs the totals of the export.
    pub fn log(&self) {
        let sum = |of: fn(&PeriodReport) -> usize| self.periods.iter().map(of).sum::<usize>();
        tracing::info!(
            periods = self.periods.len(),
            new = sum(|period| period.new),
            replaced = sum(|period| period.replaced),
            unchanged = sum(|period| period.unchanged),
            kept = sum(|period| period.kept),
            withheld = sum(|period| period.withheld),
            refused = sum(|period| period.refused),
            "export finished"
        );
    }
}
