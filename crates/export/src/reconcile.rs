//! Compares what the source has, what was sent, and what the receiver counted, by period and record.

mod receiver;
mod stored;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;

use futures_util::future::BoxFuture;
use ichido_delivery::store::{BatchDir, Layout};
use jiff::civil::Date;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use super::calendar::{Days, PeriodRange};
use super::collect::Collected;
use super::export::Export;
use super::jsonl;
use super::pending;
use super::plan::Sums;
use super::state::{Content, State};
use crate::settings::Dify;
use ichido_serve::Failure;

pub use self::receiver::Receiver;
pub use self::stored::{Reconciled, ReconciledPeriod};

/// The result of a reconciliation.
#[derive(Debug, Default, Serialize)]
pub struct Findings {
    /// The compared periods.
    pub periods: Vec<PeriodComparison>,
    /// The records on which the sides differ.
    pub differences: Vec<Difference>,
    /// Whether the receiver can list what it counted.
    pub receiver_answers: bool,
}

/// One period, from three sides.
#[derive(Debug, Serialize)]
pub struct PeriodComparison {
    /// The name of the period.
    pub period: String,
    /// What the source has.
    pub source: Side,
    /// What was sent.
    pub sent: Side,
    /// What the receiver counted.
    pub counted: Side,
    /// The number of differences.
    pub differences: usize,
}

/// The sums of one side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Side {
    /// Records.
    pub records: u64,
    /// Requests.
    pub requests: u64,
    /// Tokens.
    pub tokens: u64,
    /// The cost by currency.
    pub cost: BTreeMap<String, String>,
}

/// A record on which the sides differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The name of the period.
    pub period: String,
    /// The event id.
    pub id: String,
    /// How the sides differ.
    pub what: DifferenceKind,
    /// The sums in the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Sums>,
    /// The sums that were sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<Sums>,
    /// The sums that the receiver counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<Sums>,
}

/// How the sides differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// In the source, but not sent.
    NotSent,
    /// Changed in the source since it was sent.
    Changed,
    /// Sent, but no longer in the source.
    GoneFromSource,
    /// Sent, but still in the spool.
    Waiting,
    /// Sent, but in failed.
    Failed,
    /// Sent, but not counted by the receiver.
    NotCounted,
    /// Counted by the receiver with other sums.
    CountedOtherwise,
    /// Counted by the receiver, but never sent from here.
    CountedUnsent,
}

impl DifferenceKind {
    /// Describes the difference.
    pub fn describe(self) -> &'static str {
        match self {
            Self::NotSent => "in the source, but not sent",
            Self::Changed => "changed in the source since it was sent",
            Self::GoneFromSource => "sent, but no longer in the source",
            Self::Waiting => "sent, but still in the spool",
            Self::Failed => "sent, but in failed",
            Self::NotCounted => "sent, but not counted by the receiver",
            Self::CountedOtherwise => "counted with other sums than sent",
            Self::CountedUnsent => "counted by the receiver, but never sent from here",
        }
    }
}

/// The records of a period on each side.
#[derive(Debug, Default)]
struct Sides {
    source: BTreeMap<String, Content>,
    sent: BTreeMap<String, Content>,
    /// `None` if the receiver cannot list them.
    counted: Option<BTreeMap<String, Content>>,
}

/// The ids of undelivered records.
#[derive(Debug, Default)]
struct Undelivered {
    spool: HashSet<String>,
    failed: HashSet<String>,
}

/// What is compared with the source.
#[derive(Clone, Copy, Debug)]
pub struct Others<'a> {
    /// What was sent.
    pub state: &'a State,
    /// What was counted.
    pub receiver: &'a Receiver,
    /// What is undelivered.
    pub layout: &'a Layout,
}

/// Compares the given days of Dify, or all exported ones.
pub fn reconcile<'a>(
    export: &'a mut Export,
    days: Option<Days>,
    receiver: &'a Receiver,
    layout: &'a Layout,
) -> BoxFuture<'a, Result<Findings, Failure>> {
    Box::pin(async move {
        let days = match days {
            Some(days) => days,
            None => exported_days(export)?,
        };
        let state = export.state.clone();
        let others = Others { state: &state, receiver, layout };
        let undelivered = Undelivered::read(layout)?;
        let mut findings = Findings { receiver_answers: true, ..Findings::default() };
        for range in export.settings.calendar.periods(days)? {
            let collected = export.collect(&range).await?;
            findings.compare(&range, &collected, &others, &undelivered).await?;
        }
        Ok(findings)
    })
}

/// Compares the usage events in files: the given days, or those that the files contain.
pub fn reconcile_jsonl<'a>(
    files: &'a [PathBuf],
    settings: &'a Dify,
    days: Option<Days>,
    others: Others<'a>,
) -> BoxFuture<'a, Result<Findings, Failure>> {
    Box::pin(async move {
        if let Some(watermark) = others.state.watermark()? {
            watermark.check_rules(&settings.rules())?;
        }
        let mut read = jsonl::read(files, settings)?;
        if let Some(days) = days {
            let mut found: BTreeMap<Date, Collected> =
                read.into_iter().map(|(range, collected)| (range.first, collected)).collect();
            // A requested period that the files do not contain is missing from the source.
            let ranges = settings.calendar.periods(days)?.into_iter();
            read = ranges
                .map(|range| {
                    let collected = found.remove(&range.first);
                    (range, collected.unwrap_or_default())
                })
                .collect();
        }
        if read.is_empty() {
            return Err(Failure::usage("the files contain no usage events: there is nothing to compare"));
        }
        let undelivered = Undelivered::read(others.layout)?;
        let mut findings = Findings { receiver_answers: true, ..Findings::default() };
        for (range, collected) in read {
            findings.compare(&range, &collected, &others, &undelivered).await?;
        }
        Ok(findings)
    })
}

fn exported_days(export: &Export) -> Result<Days, Failure> {
    let periods = export.state.periods()?;
    match (periods.first(), periods.last()) {
        (Some(first), Some(last)) => Ok(export.settings.calendar.widen(Days { first: *first, last: *last })),
        _ => Err(Failure::usage("nothing was exported yet: set --from and --to, or export first")),
    }
}

fn failed_ids(layout: &Layout) -> Result<HashSet<String>, Failure> {
    let mut ids = HashSet::new();
    for listed in layout.oldest(BatchDir::Failed, None, usize::MAX).map_err(Failure::usage_from)? {
        if let Ok(Ok(stored)) = layout.read(BatchDir::Failed, &listed) {
            ids.extend(stored.batch.records().iter().map(|record| record.key().to_owned()));
        }
    }
    Ok(ids)
}

impl Undelivered {
    fn read(layout: &Layout) -> Result<Self, Failure> {
        Ok(Self { spool: pending::ids(layout)?, failed: failed_ids(layout)? })
    }
}

impl Findings {
    /// Compares one period.
    async fn compare(
        &mut self,
        range: &PeriodRange,
        collected: &Collected,
        others: &Others<'_>,
        undelivered: &Undelivered,
    ) -> Result<(), Failure> {
        let source = collected.records.iter();
        let sides = Sides {
            source: source
                .map(|record| (record.metadata.source_event_id.clone(), Content::of(record)))
                .collect(),
            sent: others.state.sent(&range.name())?.records,
            counted: others.receiver.records(range.first).await?,
        };
        self.receiver_answers &= sides.counted.is_some();
        self.add(range, &sides, undelivered);
        Ok(())
    }

    fn add(&mut self, range: &PeriodRange, sides: &Sides, undelivered: &Undelivered) {
        let period = range.name();
        let found = compare(&period, sides, undelivered);
        self.periods.push(PeriodComparison {
            period,
            source: Side::of(&sides.source),
            sent: Side::of(&sides.sent),
            counted: sides.counted.as_ref().map(Side::of).unwrap_or_default(),
            differences: found.len(),
        });
        self.differences.extend(found);
    }
}

/// Finds every record on which the sides differ.
fn compare(period: &str, sides: &Sides, undelivered: &Undelivered) -> Vec<Difference> {
    let known = sides.counted.iter().flat_map(BTreeMap::keys);
    let ids: BTreeSet<&String> = sides.source.keys().chain(sides.sent.keys()).chain(known).collect();
    let mut found = Vec::new();
    for id in ids {
        let (source, sent) = (sides.source.get(id), sides.sent.get(id));
        let counted = sides.counted.as_ref().map(|counted| counted.get(id));
        let mut add = |what| {
            found.push(Difference {
                period: period.to_owned(),
                id: id.clone(),
                what,
                source: source.map(Sums::of),
                sent: sent.map(Sums::of),
                counted: counted.flatten().map(Sums::of),
            });
        };
        match (source, sent) {
            (Some(_), None) if counted.flatten().is_none() => add(DifferenceKind::NotSent),
            (Some(source), Some(sent)) if source.hash != sent.hash => add(DifferenceKind::Changed),
            (None, Some(_)) => add(DifferenceKind::GoneFromSource),
            _ => {}
        }
        match (sent, counted) {
            (Some(_), Some(None)) => add(match () {
                () if undelivered.spool.contains(id) => DifferenceKind::Waiting,
                () if undelivered.failed.contains(id) => DifferenceKind::Failed,
                () => DifferenceKind::NotCounted,
            }),
            (Some(sent), Some(Some(counted))) if sent.hash != counted.hash => {
                add(DifferenceKind::CountedOtherwise)
            }
            (None, Some(Some(_))) => add(DifferenceKind::CountedUnsent),
            _ => {}
        }
    }
    found
}

impl Side {
    fn of(records: &BTreeMap<String, Content>) -> Self {
        let mut side = Self::default();
        let mut cost: BTreeMap<String, Decimal> = BTreeMap::new();
        for content in records.values() {
            side.records += 1;
            side.requests += content.requests;
            side.tokens += content.input + content.output;
            *cost.entry(content.currency.clone()).or_default() +=
                content.cost.parse::<Decimal>().unwrap_or_default();
        }
        side.cost =
            cost.into_iter().map(|(currency, cost)| (currency, cost.normalize().to_string())).collect();
        side
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(pairs: &[(&str, u64)]) -> BTreeMap<String, Content> {
        let content = |input: u64| Content {
            hash: input.to_string(),
            requests: 1,
            input,
            output: 0,
            cost: "0.1".to_owned(),
            currency: "USD".to_owned(),
        };
        pairs.iter().map(|(id, input)| ((*id).to_owned(), content(*input))).collect()
    }

    #[test]
    fn every_kind_of_difference_is_found() {
        let sides = Sides {
            source: records(&[
                ("same", 1),
                ("late", 2),
                ("unsent", 1),
                ("spool", 1),
                ("failed", 1),
                ("lost", 1),
                ("other", 1),
            ]),
            sent: records(&[
                ("same", 1),
                ("late", 1),
                ("spool", 1),
                ("failed", 1),
                ("lost", 1),
                ("other", 1),
                ("gone", 1),
            ]),
            counted: Some(records(&[("same", 1), ("late", 1), ("other", 9), ("gone", 1), ("foreign", 1)])),
        };
        let undelivered = Undelivered {
            spool: HashSet::from(["spool".to_owned()]),
            failed: HashSet::from(["failed".to_owned()]),
        };
        let found: Vec<(String, DifferenceKind)> = compare("2025-11-29", &sides, &undelivered)
            .into_iter()
            .map(|difference| (difference.id, difference.what))
            .collect();
        let expected = [
            ("failed", DifferenceKind::Failed),
            ("foreign", DifferenceKind::CountedUnsent),
            ("gone", DifferenceKind::GoneFromSource),
            ("late", DifferenceKind::Changed),
            ("lost", DifferenceKind::NotCounted),
            ("other", DifferenceKind::CountedOtherwise),
            ("spool", DifferenceKind::Waiting),
            ("unsent", DifferenceKind::NotSent),
        ];
        assert_eq!(found, expected.map(|(id, kind)| (id.to_owned(), kind)));
    }

    #[test]
    fn a_receiver_without_a_list_is_not_compared() {
        let sides = Sides { source: records(&[("a", 1)]), sent: records(&[("a", 1)]), counted: None };
        assert!(compare("2025-11-29", &sides, &Undelivered::default()).is_empty());
        assert_eq!(Side::of(&sides.source).cost["USD"], "0.1");
    }
}
