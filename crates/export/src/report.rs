//! What an export did, for people, scripts and the log.

use serde::Serialize;

use super::days::Stretch;
use super::plan::{Change, Plan, Word};

/// Changes that are told one by one.
const MOST_CHANGES: usize = 1_000;

/// An export, period by period.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub periods: Vec<Period>,
    /// Sent before with other sums.
    pub changes: Vec<Change>,
    /// Days that were asked for and are not over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

/// One period.
#[derive(Debug, Serialize)]
pub struct Period {
    pub first: String,
    pub last: String,
    /// Rows of the source.
    pub rows: u64,
    /// Of these: of people who tried an app out.
    pub debugger: u64,
    /// Sums of them.
    pub records: usize,
    pub new: usize,
    pub replaced: usize,
    pub unchanged: usize,
    /// Changed, and not sent: the receiver keeps the first.
    pub kept: usize,
    /// Not sent yet: an older total is still on its way.
    pub withheld: usize,
    /// Sent before, and not in the source any more.
    pub gone: usize,
    /// Rows and records that cannot be counted; those that are new lie in failed.
    pub refused: usize,
}

impl Period {
    pub fn new(stretch: &Stretch, rows: u64, debugger: u64, refused: usize, plan: &Plan) -> Self {
        let kept = plan.changes.iter().filter(|change| change.what == Word::NotSent).count();
        Self {
            first: stretch.first.to_string(),
            last: stretch.last.to_string(),
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
    /// Adds a period, and says it in the log.
    pub fn add(&mut self, period: Period, plan: &Plan) {
        let Period { first, rows, records, new, replaced, unchanged, kept, withheld, gone, refused, .. } =
            &period;
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
            if self.changes.len() < MOST_CHANGES {
                tracing::warn!(
                    id = change.id,
                    what = ?change.what,
                    requests_before = change.before.requests,
                    requests = change.now.requests,
                    cost_before = change.before.cost,
                    cost = change.now.cost,
                    "the total of a record is another one than was sent"
                );
                self.changes.push(change.clone());
            }
        }
        self.periods.push(period);
    }

    pub fn withheld(&self) -> usize {
        self.periods.iter().map(|period| period.withheld).sum()
    }

    /// One line of the log for all of it.
    pub fn tell(&self) {
        let sum = |of: fn(&Period) -> usize| self.periods.iter().map(of).sum::<usize>();
        tracing::info!(
            periods = self.periods.len(),
            new = sum(|period| period.new),
            replaced = sum(|period| period.replaced),
            unchanged = sum(|period| period.unchanged),
            kept = sum(|period| period.kept),
            withheld = sum(|period| period.withheld),
            refused = sum(|period| period.refused),
            "the export is finished"
        );
    }
}
