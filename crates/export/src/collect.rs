//! From rows to records: read, made alike, summed, and given ids.

use std::io::{IsTerminal, Write as _};

use ichido_usage::aggregate::Options;
use ichido_usage::dify::{Item, RowCounts, Source};
use ichido_usage::{Aggregator, CheckedEvent, Record, Transform};
use serde::Serialize;

use super::days::Stretch;
use super::source::failed;
use super::state::short_hash;
use crate::settings::Dify;
use ichido_serve::Failure;

/// How often it is told how far the reading is.
const TELL_EVERY: u64 = 100_000;
/// More rows that cannot be counted than this in one period are no accident.
const MOST_REFUSED: usize = 10_000;

/// What a source has of a period.
#[derive(Debug, Default)]
pub struct Collected {
    pub records: Vec<Record>,
    pub refused: Vec<Refused>,
    pub rows: RowCounts,
}

/// A row or a sum that is no record.
#[derive(Clone, Debug, Serialize)]
pub struct Refused {
    pub text: String,
    pub reason: String,
}

impl Refused {
    /// What it is known by: the same row with the same fault lies in failed once.
    pub fn hash(&self) -> String {
        short_hash(&format!("{}\n{}", self.reason, self.text))
    }
}

/// Sums that grow, and what does not fit into them.
pub struct Collector {
    totals: Aggregator,
    transform: Transform,
    refused: Vec<Refused>,
    seen: u64,
    too_many: bool,
}

impl Collector {
    pub fn new(settings: &Dify) -> Self {
        let options = Options {
            mode: settings.mode,
            period: settings.calendar.period,
            zone: settings.calendar.zone.clone(),
            names: settings.names.clone(),
            ..Options::default()
        };
        let transform =
            Transform { scheme: settings.scheme, profile: settings.profile, ..Transform::default() };
        Self { totals: Aggregator::new(options), transform, refused: Vec::new(), seen: 0, too_many: false }
    }

    pub fn event(&mut self, event: &CheckedEvent<'_>) {
        self.row_read();
        if let Err(error) = self.totals.add(event) {
            let text = serde_json::json!({ "id": event.id, "time": event.time.to_string() }).to_string();
            self.refuse(text, format!("{}: {error}", event.id));
        }
    }

    /// Counts a row towards the progress that is told.
    pub fn row_read(&mut self) {
        self.seen += 1;
        if self.seen.is_multiple_of(TELL_EVERY) {
            tell(self.seen);
        }
    }

    pub fn refuse(&mut self, text: String, reason: String) {
        match self.refused.len() < MOST_REFUSED {
            true => self.refused.push(Refused { text, reason }),
            false => self.too_many = true,
        }
    }

    /// The records, sorted as they always are.
    pub fn finish(mut self, rows: RowCounts) -> Result<Collected, Failure> {
        let totals = std::mem::replace(&mut self.totals, Aggregator::new(Options::default())).finish();
        let (mut records, mut tenant) = (Vec::new(), None::<String>);
        for made in self.transform.records(&totals) {
            match made {
                Ok(outgoing) => {
                    let known = tenant.get_or_insert_with(|| outgoing.tenant.clone());
                    if *known != outgoing.tenant {
                        return Err(Failure::usage(format!(
                            "there is usage of several workspaces ({known}, {}): set export.dify.workspace to one of them",
                            outgoing.tenant
                        )));
                    }
                    records.push(outgoing.record);
                }
                Err(refused) => {
                    let text = serde_json::to_string(&refused.record).unwrap_or_default();
                    self.refuse(text, refused.reason.to_string());
                }
            }
        }
        if self.too_many {
            let first = self.refused.first().map(|refused| refused.reason.clone()).unwrap_or_default();
            return Err(Failure::usage(format!(
                "more than {MOST_REFUSED} rows of one period cannot be counted; nothing of it is sent; the first: {first}"
            )));
        }
        Ok(Collected { records, refused: self.refused, rows })
    }
}

/// What Dify has of a period.
pub async fn from_dify(
    source: &mut Source,
    settings: &Dify,
    stretch: &Stretch,
) -> Result<Collected, Failure> {
    let mut collector = Collector::new(settings);
    let mut see = |item: Item<'_>| match item {
        Item::Event(event) => collector.event(event),
        Item::Invalid(invalid) => collector.refuse(invalid.row, invalid.reason),
    };
    let rows = source.read(stretch.span, &mut see).await.map_err(failed)?;
    if rows.total_only > 0 {
        tracing::warn!(
            rows = rows.total_only,
            "rows tell only a sum of tokens; it counts as tokens of the prompt"
        );
    }
    collector.finish(rows)
}

/// How far the reading is: in the log, and for whoever sits before it.
fn tell(rows: u64) {
    tracing::info!(rows, "progress");
    if std::io::stderr().is_terminal() {
        let _ = writeln!(std::io::stderr(), "{rows} rows read");
    }
}
