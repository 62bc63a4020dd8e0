//! What an export did, for people, scripts and the log.

use serde::Serialize;

use super::days::Stretch;
use super::plan::{Change, Plan, Word};
use crate::exit::Failure;
use crate::output;

/// Changes that are told one by one.
const MOST_CHANGES: usize = 1_000;

/// An export, period by period.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) periods: Vec<Period>,
    /// Sent before with other sums.
    pub(crate) changes: Vec<Change>,
    /// Days that were asked for and are not over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) left_out: Option<String>,
}

/// One period.
#[derive(Debug, Serialize)]
pub(crate) struct Period {
    pub(crate) first: String,
    pub(crate) last: String,
    /// Rows of the source.
    pub(crate) rows: u64,
    /// Of these: of people who tried an app out.
    pub(crate) debugger: u64,
    /// Sums of them.
    pub(crate) records: usize,
    pub(crate) new: usize,
    pub(crate) replaced: usize,
    pub(crate) unchanged: usize,
    /// Changed, and not sent: the receiver keeps the first.
    pub(crate) kept: usize,
    /// Not sent yet: an older total is still on its way.
    pub(crate) withheld: usize,
    /// Sent before, and not in the source any more.
    pub(crate) gone: usize,
    /// Rows and records that cannot be counted; those that are new lie in failed.
    pub(crate) refused: usize,
}

impl Period {
    pub(crate) fn new(stretch: &Stretch, rows: u64, debugger: u64, refused: usize, plan: &Plan) -> Self {
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
    pub(crate) fn add(&mut self, period: Period, plan: &Plan) {
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

    pub(crate) fn withheld(&self) -> usize {
        self.periods.iter().map(|period| period.withheld).sum()
    }

    /// One line of the log for all of it.
    pub(crate) fn tell(&self) {
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

    /// A table.
    pub(crate) fn print(&self) -> Result<(), Failure> {
        let mut table = output::table(&[
            "period",
            "rows",
            "records",
            "new",
            "replaced",
            "unchanged",
            "kept",
            "withheld",
            "gone",
            "refused",
        ]);
        for period in &self.periods {
            let counts = [
                period.records,
                period.new,
                period.replaced,
                period.unchanged,
                period.kept,
                period.withheld,
                period.gone,
                period.refused,
            ];
            let head = [period.first.clone(), period.rows.to_string()];
            table.add_row(head.into_iter().chain(counts.iter().map(usize::to_string)));
        }
        outln!("{table}");
        for change in &self.changes {
            let what = match change.what {
                Word::Sent => "sent again",
                Word::NotSent => "not sent: the receiver keeps the first",
                Word::Withheld => "not sent yet: the older total is still on its way",
            };
            outln!(
                "{}: {} {} for {} calls was sent, now it is {} {} for {} ({what})",
                change.id,
                change.before.cost,
                change.before.currency,
                change.before.requests,
                change.now.cost,
                change.now.currency,
                change.now.requests
            );
        }
        if let Some(left_out) = &self.left_out {
            outln!("{left_out}");
        }
        Ok(())
    }
}
