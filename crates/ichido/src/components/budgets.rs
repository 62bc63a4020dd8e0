//! Watches the budgets of the meter, and reports when a part of one is used: log, metric and notice.
//!
//! Each threshold is announced once for a month and a budget. The meter's database remembers it, so neither a restart nor
//! another meter that shares the database repeats it. It is noted after the notice is on disk: a crash in between repeats
//! a notice, but never loses one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ichido_core::{Clock, SystemClock, error_chain};
use ichido_delivery::notice::Event;
use ichido_meter::budget::{Announcement, Budget, BudgetStatus};
use ichido_meter::{Store, store};
use ichido_serve::Failure;
use jiff::ToSpan;
use jiff::civil::Date;
use metrics::gauge;
use tokio_util::sync::CancellationToken;

use crate::components::outbox::{Outbox, Queued};
use crate::settings::Settings;

/// How often the budgets are checked, at most.
const INTERVAL: Duration = Duration::from_secs(10);
/// A check that takes long is repeated less often: at most 5 % of the time is spent on checks.
const PAUSE_FACTOR: u32 = 20;

/// Watches the budgets.
pub(crate) struct BudgetWatch {
    budgets: Vec<Budget>,
    store: Arc<dyn Store>,
    outbox: Outbox,
    clock: Arc<dyn Clock>,
    /// What this process has announced, in case it cannot be noted.
    announced: BTreeSet<(String, String, u8)>,
    is_failing: bool,
}

impl BudgetWatch {
    /// `None` if there are no budgets.
    pub(crate) fn new(
        settings: &Settings,
        budgets: &[Budget],
        store: Arc<dyn Store>,
        stop: &CancellationToken,
    ) -> Result<Option<Self>, Failure> {
        if budgets.is_empty() {
            return Ok(None);
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let outbox = Outbox::new(settings, clock.clone(), stop.clone())?;
        let (budgets, announced) = (budgets.to_vec(), BTreeSet::new());
        Ok(Some(Self { budgets, store, outbox, clock, announced, is_failing: false }))
    }

    /// Checks the budgets until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        self.outbox.send_what_waits();
        while !stop.is_cancelled() {
            let began = self.clock.steady();
            match self.check().await {
                Ok(()) => self.is_failing = false,
                Err(error) if self.is_failing => {
                    tracing::debug!(error = error_chain(&error), "cannot check budgets")
                }
                Err(error) => {
                    self.is_failing = true;
                    tracing::warn!(error = error_chain(&error), "cannot check the budgets of the meter");
                }
            }
            let took = self.clock.steady().saturating_sub(began);
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(INTERVAL.max(took * PAUSE_FACTOR)) => {}
            }
        }
        self.outbox.close().await;
    }

    /// Checks this month, and the one before: its last records arrive late.
    async fn check(&mut self) -> store::Result<()> {
        let today = today(&*self.clock);
        for (day, is_current) in [(today.first_of_month().saturating_sub(1.day()), false), (today, true)] {
            let mut reached = Vec::new();
            for budget in &self.budgets {
                let status = budget.status(&*self.store, day).await?;
                if is_current {
                    record(&status);
                }
                reached.extend(status.reached().map(|announcement| (announcement, status.clone())));
            }
            if !reached.is_empty() {
                self.announce(&day.strftime("%Y-%m").to_string(), reached).await?;
            }
        }
        Ok(())
    }

    async fn announce(
        &mut self,
        month: &str,
        mut reached: Vec<(Announcement, BudgetStatus)>,
    ) -> store::Result<()> {
        let known = self.store.announced(month).await?;
        reached.retain(|(announcement, _)| {
            !known.contains(announcement) && !self.announced.contains(&key(announcement))
        });
        let highest = |announcement: &Announcement| {
            let same = |other: &&(Announcement, BudgetStatus)| other.0.budget == announcement.budget;
            reached.iter().filter(same).all(|(other, _)| other.threshold <= announcement.threshold)
        };
        // A budget that is used up at once needs one notice, not one for each threshold.
        let events: Vec<Event> = reached
            .iter()
            .filter(|(announcement, _)| highest(announcement))
            .map(|(announcement, status)| event(announcement.threshold, status))
            .collect();
        if events.is_empty() {
            return Ok(());
        }
        let queued = self.outbox.announce(events).await;
        if queued == Queued::Nowhere {
            // The next check tries again.
            return Ok(());
        }
        self.announced.extend(reached.iter().map(|(announcement, _)| key(announcement)));
        if queued == Queued::OnDisk {
            let at = i64::try_from(self.clock.now().0).unwrap_or(i64::MAX);
            for (announcement, _) in &reached {
                self.store.note_announced(announcement, at).await?;
            }
        }
        Ok(())
    }
}

/// The current day, in UTC.
fn today(clock: &dyn Clock) -> Date {
    let now = i64::try_from(clock.now().0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    now.unwrap_or_default().to_zoned(jiff::tz::TimeZone::UTC).date()
}

fn key(announcement: &Announcement) -> (String, String, u8) {
    let Announcement { month, budget, threshold } = announcement.clone();
    (month, budget, threshold)
}

fn record(status: &BudgetStatus) {
    let BudgetStatus { tenant, app, unit, limit, used, .. } = status;
    let number = |text: &String| text.parse::<f64>().unwrap_or_default();
    let (app, unit) = (app.clone().unwrap_or_default(), unit.clone());
    let labels = [("tenant", tenant.clone()), ("app", app), ("unit", unit), ("limit", limit.clone())];
    gauge!("ichido_meter_budget_used_ratio", &labels).set(number(used) / number(limit));
}

fn event(threshold: u8, status: &BudgetStatus) -> Event {
    let BudgetStatus { tenant, app, month, unit, limit, used, .. } = status.clone();
    tracing::warn!(tenant, app, month, threshold, used, limit, unit, "part of a budget is used");
    Event::Budget { tenant, app, month, threshold, used, limit, unit }
}
