//! Exports usage events from JSON Lines, through the same pipeline as Dify's.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use futures_util::future::BoxFuture;
use ichido_core::{Clock, SystemClock};
use ichido_delivery::sender::Sender;
use ichido_delivery::settings::Settings as Delivery;
use ichido_usage::dify::RowCounts;
use ichido_usage::source::jsonl::Reader;
use jiff::civil::Date;

use super::calendar::PeriodRange;
use super::collect::{Collected, Collector};
use super::deliver::{export_period, pending_ids, resend};
use super::report::Report;
use super::state::{State, Watermark};
use crate::settings::Dify;
use ichido_serve::Failure;

/// Exports the events of the files.
pub fn run<'a>(
    report: &'a mut Report,
    files: &'a [PathBuf],
    settings: &'a Dify,
    sender: &'a mut Sender,
    delivery: &'a Delivery,
) -> BoxFuture<'a, Result<(), Failure>> {
    Box::pin(async move {
        let state = State::new(&delivery.data_dir);
        let _lock = state.lock(SystemClock::default().now())?;
        let rules = settings.rules();
        match state.watermark()? {
            Some(watermark) => watermark.check_rules(&rules)?,
            None => state.set_watermark(&Watermark::new(rules))?,
        }
        let periods = read(files, settings)?;
        resend(sender).await?;
        let pending = pending_ids(sender, settings.profile).await?;
        for (range, collected) in periods {
            let exported = export_period(
                &state,
                &range,
                collected,
                sender,
                settings.profile,
                &pending,
                delivery.batch_size,
            );
            let (period, plan) = exported.await?;
            report.add(period, &plan);
        }
        Ok(())
    })
}

/// Reads the events of the files and sums them by period.
pub fn read(files: &[PathBuf], settings: &Dify) -> Result<Vec<(PeriodRange, Collected)>, Failure> {
    let mut collector = Collector::new(settings);
    let mut rows = RowCounts::default();
    let stdin = [PathBuf::from("-")];
    for file in if files.is_empty() { &stdin[..] } else { files } {
        let mut reader = Reader::new(open(file)?);
        loop {
            let next = reader.next_event();
            let next =
                next.map_err(|error| Failure::usage(format!("cannot read {}: {error}", file.display())))?;
            match next {
                None => break,
                Some(Ok(event)) => {
                    rows.rows += 1;
                    rows.debugger += u64::from(event.debugger);
                    match event.debugger && !settings.include_debugger {
                        true => collector.row_read(),
                        false => collector.event(&event),
                    }
                }
                Some(Err(invalid)) => {
                    rows.invalid += 1;
                    let reason = format!("{}, {invalid}", file.display());
                    collector.reject(invalid.text, reason);
                }
            }
        }
    }
    Ok(split_by_period(collector.finish(rows)?, settings))
}

fn open(file: &Path) -> Result<Box<dyn BufRead>, Failure> {
    if file.as_os_str() == "-" {
        return Ok(Box::new(BufReader::new(std::io::stdin())));
    }
    let opened = File::open(file);
    let opened =
        opened.map_err(|error| Failure::usage(format!("cannot open {}: {error}", file.display())))?;
    Ok(Box::new(BufReader::new(opened)))
}

/// Splits the records by period. Rejected rows and row counts belong to no period; the first one gets them.
fn split_by_period(collected: Collected, settings: &Dify) -> Vec<(PeriodRange, Collected)> {
    let mut periods: BTreeMap<Date, Collected> = BTreeMap::new();
    for record in collected.records {
        periods.entry(record.usage_date).or_default().records.push(record);
    }
    if periods.is_empty() && !collected.refused.is_empty() {
        periods.entry(settings.calendar.period.start(Date::constant(1970, 1, 1))).or_default();
    }
    if let Some(mut first) = periods.first_entry() {
        first.get_mut().refused = collected.refused;
        first.get_mut().rows = collected.rows;
    }
    let whole = |first: Date| {
        let last = settings.calendar.period.end(first);
        PeriodRange { first, last, span: settings.calendar.span(first, last) }
    };
    periods.into_iter().map(|(first, collected)| (whole(first), collected)).collect()
}
