//! Runs an export.

use std::path::Path;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use ichido_core::{Clock, SystemClock};
use ichido_delivery::sender::Sender;
use ichido_usage::dify::Source;
use jiff::ToSpan;
use jiff::civil::Date;
use tokio_util::sync::CancellationToken;

use super::calendar::{self, Days, PeriodRange, RequestedDays};
use super::collect::{self, Collected};
use super::deliver::{export_period, pending_ids, resend, stopped};
use super::report::Report;
use super::source;
use super::state::{SentRecords, State, Watermark};
use crate::settings::Dify;
use ichido_serve::Failure;

/// Late changes are searched from this long before the last read: clocks differ, and transactions take time.
const OVERLAP: jiff::SignedDuration = jiff::SignedDuration::from_mins(10);

/// An export of Dify's usage.
#[derive(Debug)]
pub struct Export {
    /// The checked settings.
    pub settings: Dify,
    /// What was sent.
    pub state: State,
    source: Source,
    clock: Arc<dyn Clock>,
    /// Whether to export days that are not over yet.
    pub include_open: bool,
}

impl Export {
    /// Prepares an export without connecting to the source.
    pub fn new(settings: Dify, data_dir: &Path) -> Result<Self, Failure> {
        let source = source::open(&settings)?;
        Ok(Self {
            settings,
            state: State::new(data_dir),
            source,
            clock: Arc::new(SystemClock::default()),
            include_open: false,
        })
    }

    /// The requested days, widened to whole periods.
    pub fn days(&self, asked: &RequestedDays) -> Result<Option<Days>, Failure> {
        asked.days(&self.settings.calendar, self.clock.now())
    }

    /// Exports the requested days, or what is new.
    pub fn run<'a>(
        &'a mut self,
        asked: Option<Days>,
        sender: &'a mut Sender,
        batch_size: usize,
        stop: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Report, Failure>> {
        Box::pin(async move {
            let mut report = Report::default();
            self.run_into(&mut report, asked, sender, batch_size, stop).await.map(|()| report)
        })
    }

    /// Like [`Export::run`], but `report` also says what was done if the export fails.
    pub fn run_into<'a>(
        &'a mut self,
        report: &'a mut Report,
        asked: Option<Days>,
        sender: &'a mut Sender,
        batch_size: usize,
        stop: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let begun = self.clock.now();
            let _lock = self.state.lock(begun)?;
            let mut watermark = self.watermark()?;
            let is_first = watermark.through.is_none();
            let days = self.choose(asked, &watermark, report).await?;
            resend(sender).await?;
            let pending = pending_ids(sender, self.settings.profile).await?;
            let Some(days) = days else { return Ok(()) };
            let mut whole = true;
            for range in self.settings.calendar.periods(days)? {
                // Reading a period may take minutes, and batches of the one before are under way.
                let collected = sender.work_until(async {
                    tokio::select! {
                        collected = self.collect(&range) => collected,
                        () = stop.cancelled() => Err(stopped()),
                    }
                });
                let collected = collected.await?;
                let exported = export_period(
                    &self.state,
                    &range,
                    collected,
                    sender,
                    self.settings.profile,
                    &pending,
                    batch_size,
                );
                let (period, plan) = exported.await?;
                whole &= period.withheld == 0;
                report.add(period, &plan);
                if whole && range.last <= self.last_closed()? {
                    watermark.advance(&range)?;
                    self.state.set_watermark(&watermark)?;
                }
            }
            // Requested days are only a part of what was exported before, except in the first export.
            if whole && (asked.is_none() || is_first) {
                watermark.read_at = Some(calendar::to_jiff(begun)?);
                self.state.set_watermark(&watermark)?;
            }
            Ok(())
        })
    }

    /// Calls `see` with what an export would compare, period by period. Sends nothing.
    pub async fn preview(
        &mut self,
        asked: Option<Days>,
        mut see: impl FnMut(&PeriodRange, Collected, SentRecords),
    ) -> Result<Report, Failure> {
        let mut report = Report::default();
        let watermark = self.state.watermark()?.unwrap_or_else(|| Watermark::new(self.settings.rules()));
        if let Some(days) = self.choose(asked, &watermark, &mut report).await? {
            for range in self.settings.calendar.periods(days)? {
                let collected = self.collect(&range).await?;
                see(&range, collected, self.state.sent(&range.name())?);
            }
        }
        Ok(report)
    }

    /// Reads and sums the usage of a period.
    pub fn collect<'a>(&'a mut self, range: &'a PeriodRange) -> BoxFuture<'a, Result<Collected, Failure>> {
        Box::pin(async move { collect::from_dify(&mut self.source, &self.settings, range).await })
    }

    /// Checks that the source can be read, and describes it.
    pub fn check(&mut self) -> BoxFuture<'_, Result<String, Failure>> {
        Box::pin(async move { self.source.check().await.map_err(source::failed) })
    }

    /// The last day of the last period that is over.
    pub fn last_closed(&self) -> Result<Date, Failure> {
        self.settings.calendar.last_closed(self.clock.now())
    }

    /// Reads the watermark. Fails if it was written under other rules.
    fn watermark(&self) -> Result<Watermark, Failure> {
        let rules = self.settings.rules();
        let Some(watermark) = self.state.watermark()? else { return Ok(Watermark::new(rules)) };
        watermark.check_rules(&rules)?;
        Ok(watermark)
    }

    /// Decides which days to export.
    async fn choose(
        &mut self,
        asked: Option<Days>,
        watermark: &Watermark,
        report: &mut Report,
    ) -> Result<Option<Days>, Failure> {
        let last = self.last_closed()?;
        if let Some(days) = asked {
            if self.include_open || days.last <= last {
                return Ok(Some(days));
            }
            let open = self.settings.calendar.still_open();
            if days.first > last {
                return Err(Failure::usage(format!(
                    "{} is {open}: the last day that can be exported is {last}",
                    days.first
                )));
            }
            report.left_out =
                Some(format!("not exported: {} to {}, {open}", calendar::after(last)?, days.last));
            return Ok(Some(Days { first: days.first, last }));
        }
        let Some(through) = watermark.through else {
            let first = self.settings.calendar.period.start(last);
            return Ok(Some(Days { first, last }));
        };
        let first = self.first_day(through, watermark).await?;
        Ok((first <= last).then_some(Days { first, last }))
    }

    /// The first day of an export that continues an earlier one. It reads a few closed days again, and goes back as far as
    /// messages were changed late, but never before the first exported period.
    async fn first_day(&mut self, through: Date, watermark: &Watermark) -> Result<Date, Failure> {
        let calendar = self.settings.calendar.clone();
        let back = |days: u32| through.checked_sub(i64::from(days).days()).unwrap_or(Date::MIN);
        let mut first = calendar::after(back(self.settings.overlap_days))?;
        if let Some(read_at) = watermark.read_at
            && self.settings.late_days > 0
        {
            let since = read_at.checked_sub(OVERLAP).unwrap_or(read_at);
            let span = calendar.span(back(self.settings.late_days), through);
            let changed = self.source.changed_since(since, span).await.map_err(source::failed)?;
            if let Some(at) = changed {
                first = first.min(calendar.zone.day(at));
            }
        }
        let earliest = self.state.periods()?.first().copied().unwrap_or(through);
        Ok(calendar.period.start(first.max(earliest)))
    }
}
