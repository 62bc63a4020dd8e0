//! A statement: what was counted, and what an accountant must know about it.

use std::path::Path;

use ichido_core::{Timestamp, error_chain};
use ichido_export::{Difference, Reconciled, State};
use ichido_meter::budget::BudgetStatus;
use ichido_meter::repeats::{Repeats, RepeatsQuery};
use ichido_meter::statement::{Changes, Total, Usage, compare};
use ichido_meter::{Budget, Store};
use serde::{Deserialize, Serialize};

use super::last_statements::LastStatement;
use super::scope::Scope;
use crate::output;
use ichido_serve::Failure;

const KIND: &str = "usage";
const VERSION: u32 = 1;
/// The most differences of reconciliations that are listed. All are counted.
const DIFFERENCES_MAX: usize = 1_000;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Statement {
    pub(super) statement: String,
    pub(super) version: u32,
    pub(super) created_at: String,
    /// Covers `tenant`, `month`, `app` and `rows`.
    pub(super) digest: String,
    /// Whether the month was over, in UTC, when the statement was made.
    pub(super) month_is_over: bool,
    pub(super) totals: Vec<Total>,
    #[serde(flatten)]
    pub(super) usage: Usage,
    /// `None`: this is the first statement of the month.
    pub(super) changes: Option<Changes>,
    pub(super) repeats: RepeatedRecords,
    /// `None`: none was run here for this month.
    pub(super) reconciliation: Option<Reconciliation>,
    pub(super) budgets: Vec<BudgetStatus>,
}

/// Records that arrived again.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RepeatedRecords {
    pub(super) duplicates: i64,
    pub(super) conflicts: i64,
    pub(super) stale: i64,
    pub(super) replaced: i64,
    /// They are counted since then. `None`: since the first record.
    pub(super) counted_since: Option<String>,
}

/// What reconciliations of the month found.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Reconciliation {
    /// When the last one was run.
    pub(super) last_at: String,
    pub(super) periods: usize,
    /// Whether the receiver said what it counted, for all of them.
    pub(super) receiver_answers: bool,
    pub(super) differences: usize,
    pub(super) found: Vec<Difference>,
}

impl Statement {
    /// Makes a statement of what a store has counted until now.
    pub(super) async fn make(
        store: &dyn Store,
        scope: &Scope,
        budgets: &[Budget],
        last: Option<LastStatement>,
        data_dir: &Path,
        now: Timestamp,
    ) -> Result<Self, Failure> {
        let failed = |error: ichido_meter::Error| Failure::usage(error_chain(&error));
        let Scope { tenant, month, app } = scope;
        let after = last.as_ref().map(|last| last.made_at_ms);
        let read = Usage::read(store, tenant, *month, app.as_deref(), after).await.map_err(failed)?;
        let query = RepeatsQuery { tenant: tenant.clone(), month: month.to_string(), app: app.clone() };
        let repeats = store.repeats(&query).await.map_err(failed)?;
        let mut statuses = Vec::new();
        let concerned = |budget: &&Budget| budget.tenant == *tenant && (app.is_none() || budget.app == *app);
        for budget in budgets.iter().filter(concerned) {
            statuses.push(budget.status(store, month.first()).await.map_err(failed)?);
        }
        let changes = last.map(|last| Changes {
            since: last.created_at,
            previous_digest: last.digest,
            rows: compare(&last.usage, &read),
        });
        Ok(Self {
            statement: KIND.to_owned(),
            version: VERSION,
            created_at: output::time(now),
            digest: read.usage.digest(),
            month_is_over: output::time(now)[..10] > *month.last().to_string(),
            totals: read.usage.totals().map_err(failed)?,
            usage: read.usage,
            changes,
            repeats: RepeatedRecords::of(&repeats),
            reconciliation: Reconciliation::read(data_dir, &month.to_string())?,
            budgets: statuses,
        })
    }

    /// Whether this is a statement that this version understands.
    pub(super) fn is_known(&self) -> bool {
        self.statement == KIND && self.version == VERSION
    }
}

impl RepeatedRecords {
    fn of(repeats: &Repeats) -> Self {
        let Repeats { duplicates, conflicts, stale, replaced, since } = *repeats;
        let time = |ms: i64| output::time(Timestamp(u64::try_from(ms).unwrap_or_default()));
        Self { duplicates, conflicts, stale, replaced, counted_since: since.map(time) }
    }

    pub(super) fn refused(&self) -> i64 {
        self.duplicates + self.conflicts + self.stale
    }
}

impl Reconciliation {
    fn read(data_dir: &Path, month: &str) -> Result<Option<Self>, Failure> {
        let Some(reconciled) = Reconciled::read(&State::new(data_dir))? else { return Ok(None) };
        let periods: Vec<_> = reconciled.month(month).map(|(_, period)| period).collect();
        let Some(last) = periods.iter().map(|period| &period.at).max() else { return Ok(None) };
        Ok(Some(Self {
            last_at: last.clone(),
            periods: periods.len(),
            receiver_answers: periods.iter().all(|period| period.receiver_answers),
            differences: periods.iter().map(|period| period.differences).sum(),
            found: periods.iter().flat_map(|period| &period.found).take(DIFFERENCES_MAX).cloned().collect(),
        }))
    }
}
