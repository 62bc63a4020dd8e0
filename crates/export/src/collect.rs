//! Turns rows into records: reads them, normalizes names, sums them and assigns ids.

use std::io::{IsTerminal, Write as _};

use ichido_usage::aggregate::Options;
use ichido_usage::dify::{Item, RowCounts, Source};
use ichido_usage::{Aggregator, CheckedEvent, Record, Transform};
use serde::Serialize;

use super::calendar::PeriodRange;
use super::source::failed;
use super::state::short_hash;
use crate::settings::Dify;
use ichido_serve::Failure;

/// Rows between two progress messages.
const PROGRESS_ROWS: u64 = 100_000;
/// The most rejected rows in one period. More of them point to a systematic error.
const REJECTED_MAX: usize = 10_000;

/// The usage of a period.
#[derive(Debug, Default)]
pub struct Collected {
    /// The records, sorted.
    pub records: Vec<Record>,
    /// The rows and sums that are not valid records.
    pub refused: Vec<RejectedRow>,
    /// How many rows were read.
    pub rows: RowCounts,
}

/// A row or sum that is not a valid record.
#[derive(Clone, Debug, Serialize)]
pub struct RejectedRow {
    /// The row or sum, as JSON.
    pub text: String,
    /// Why it was rejected.
    pub reason: String,
}

impl RejectedRow {
    /// The hash of the row and the reason. The same row with the same error is written to failed only once.
    pub(crate) fn hash(&self) -> String {
        short_hash(&format!("{}\n{}", self.reason, self.text))
    }
}

/// Sums events, and keeps the rows that it rejects.
pub(crate) struct Collector {
    totals: Aggregator,
    transform: Transform,
    refused: Vec<RejectedRow>,
    rows_read: u64,
    too_many: bool,
}

impl Collector {
    pub(crate) fn new(settings: &Dify) -> Self {
        let options = Options {
            mode: settings.mode,
            period: settings.calendar.period,
            zone: settings.calendar.zone.clone(),
            names: settings.names.clone(),
            ..Options::default()
        };
        let transform =
            Transform { scheme: settings.scheme, profile: settings.profile, ..Transform::default() };
        Self {
            totals: Aggregator::new(options),
            transform,
            refused: Vec::new(),
            rows_read: 0,
            too_many: false,
        }
    }

    /// Adds an event.
    pub(crate) fn event(&mut self, event: &CheckedEvent<'_>) {
        self.row_read();
        if let Err(error) = self.totals.add(event) {
            let text = serde_json::json!({ "id": event.id, "time": event.time.to_string() }).to_string();
            self.reject(text, format!("{}: {error}", event.id));
        }
    }

    /// Counts a row for the progress messages.
    pub(crate) fn row_read(&mut self) {
        self.rows_read += 1;
        if self.rows_read.is_multiple_of(PROGRESS_ROWS) {
            report_progress(self.rows_read);
        }
    }

    /// Rejects a row.
    pub(crate) fn reject(&mut self, text: String, reason: String) {
        match self.refused.len() < REJECTED_MAX {
            true => self.refused.push(RejectedRow { text, reason }),
            false => self.too_many = true,
        }
    }

    /// Returns the records in their fixed order.
    pub(crate) fn finish(mut self, rows: RowCounts) -> Result<Collected, Failure> {
        let totals = std::mem::replace(&mut self.totals, Aggregator::new(Options::default())).finish();
        let (mut records, mut tenant) = (Vec::new(), None::<String>);
        for made in self.transform.records(&totals) {
            match made {
                Ok(outgoing) => {
                    let known = tenant.get_or_insert_with(|| outgoing.tenant.clone());
                    if *known != outgoing.tenant {
                        return Err(Failure::usage(format!(
                            "the source has usage of several workspaces ({known}, {}): set export.dify.workspace to one of them",
                            outgoing.tenant
                        )));
                    }
                    records.push(outgoing.record);
                }
                Err(refused) => {
                    let text = serde_json::to_string(&refused.record).unwrap_or_default();
                    self.reject(text, refused.reason.to_string());
                }
            }
        }
        if self.too_many {
            let first = self.refused.first().map(|refused| refused.reason.clone()).unwrap_or_default();
            return Err(Failure::usage(format!(
                "more than {REJECTED_MAX} rows of one period cannot be counted, so the period is not sent; the first: {first}"
            )));
        }
        Ok(Collected { records, refused: self.refused, rows })
    }
}

/// Reads and sums Dify's usage of a period.
pub(crate) async fn from_dify(
    source: &mut Source,
    settings: &Dify,
    range: &PeriodRange,
) -> Result<Collected, Failure> {
    let mut collector = Collector::new(settings);
    let mut see = |item: Item<'_>| match item {
        Item::Event(event) => collector.event(event),
        Item::Invalid(invalid) => collector.reject(invalid.row, invalid.reason),
    };
    let rows = source.read(range.span, &mut see).await.map_err(failed)?;
    if rows.total_only > 0 {
        tracing::warn!(
            rows = rows.total_only,
            "rows have only a total of tokens; it is counted as prompt tokens"
        );
    }
    collector.finish(rows)
}

/// Reports the progress to the log, and to the terminal if there is one.
fn report_progress(rows: u64) {
    tracing::info!(rows, "progress");
    if std::io::stderr().is_terminal() {
        let _ = writeln!(std::io::stderr(), "{rows} rows read");
    }
}
