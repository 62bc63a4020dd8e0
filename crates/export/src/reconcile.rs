//! What the source has, what was sent, and what the receiver counted: by period, and down to the record.

mod receiver;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use ichido_delivery::store::{BatchDir, Layout};
use rust_decimal::Decimal;
use serde::Serialize;

use super::plan::Sums;
use super::state::Content;
use super::{Days, Export, Stretch, waiting};
use ichido_serve::Failure;

pub use self::receiver::Receiver;

/// All periods that were looked at.
#[derive(Debug, Default, Serialize)]
pub struct Findings {
    pub periods: Vec<Compared>,
    pub differences: Vec<Difference>,
    /// Whether the receiver said what it counted.
    pub receiver_answers: bool,
}

/// One period, seen from three sides.
#[derive(Debug, Serialize)]
pub struct Compared {
    pub period: String,
    pub source: Side,
    pub sent: Side,
    pub counted: Side,
    pub differences: usize,
}

/// The sums of one side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Side {
    pub records: u64,
    pub requests: u64,
    pub tokens: u64,
    /// By currency.
    pub cost: BTreeMap<String, String>,
}

/// A record on which the sides do not agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub period: String,
    pub id: String,
    pub what: Word,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Sums>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<Sums>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<Sums>,
}

/// How the sides differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// The source has it, and it was not sent.
    NotSent,
    /// Its sums have changed since it was sent.
    Changed,
    /// It was sent, and the source has it no more.
    GoneFromSource,
    /// It was sent, and waits in the spool.
    Waiting,
    /// It was sent, and lies in failed.
    Failed,
    /// It was sent, and the receiver does not know it.
    NotCounted,
    /// The receiver counted something else than was sent.
    CountedOtherwise,
    /// The receiver counted what was never sent from here.
    CountedUnsent,
}

impl Word {
    pub fn words(self) -> &'static str {
        match self {
            Self::NotSent => "in the source, not sent",
            Self::Changed => "changed in the source since it was sent",
            Self::GoneFromSource => "sent, and not in the source any more",
            Self::Waiting => "sent, and waits in the spool",
            Self::Failed => "sent, and lies in failed",
            Self::NotCounted => "sent, and not counted by the receiver",
            Self::CountedOtherwise => "counted otherwise than it was sent",
            Self::CountedUnsent => "counted by the receiver, and never sent from here",
        }
    }
}

/// What each side says of the records of a period.
#[derive(Debug, Default)]
pub struct Sides {
    pub source: BTreeMap<String, Content>,
    pub sent: BTreeMap<String, Content>,
    /// `None`: the receiver does not tell.
    pub counted: Option<BTreeMap<String, Content>>,
}

/// Where records lie that have not arrived.
#[derive(Debug, Default)]
pub struct OnTheWay {
    pub spool: HashSet<String>,
    pub failed: HashSet<String>,
}

/// Compares the days that were asked for, or all that were exported.
pub async fn reconcile(
    export: &mut Export,
    days: Option<Days>,
    receiver: &Receiver,
    layout: &Layout,
) -> Result<Findings, Failure> {
    let days = match days {
        Some(days) => days,
        None => exported(export)?,
    };
    let on_the_way = OnTheWay { spool: waiting::ids(layout)?, failed: failed(layout)? };
    let mut findings = Findings { receiver_answers: true, ..Findings::default() };
    for stretch in export.settings.calendar.stretches(days)? {
        let collected = export.collect(&stretch).await?;
        let source = collected.records.iter();
        let sides = Sides {
            source: source
                .map(|record| (record.metadata.source_event_id.clone(), Content::of(record)))
                .collect(),
            sent: export.state.sent(&stretch.name())?.records,
            counted: receiver.records(stretch.first).await?,
        };
        findings.receiver_answers &= sides.counted.is_some();
        findings.add(&stretch, &sides, &on_the_way);
    }
    Ok(findings)
}

fn exported(export: &Export) -> Result<Days, Failure> {
    let periods = export.state.periods()?;
    match (periods.first(), periods.last()) {
        (Some(first), Some(last)) => Ok(export.settings.calendar.whole(Days { first: *first, last: *last })),
        _ => Err(Failure::usage("nothing was exported yet: name days with --from and --to, or export first")),
    }
}

fn failed(layout: &Layout) -> Result<HashSet<String>, Failure> {
    let mut ids = HashSet::new();
    for listed in layout.oldest(BatchDir::Failed, None, usize::MAX).map_err(Failure::usage_from)? {
        if let Ok(Ok(stored)) = layout.read(BatchDir::Failed, &listed) {
            ids.extend(stored.batch.records().iter().map(|record| record.key().to_owned()));
        }
    }
    Ok(ids)
}

impl Findings {
    fn add(&mut self, stretch: &Stretch, sides: &Sides, on_the_way: &OnTheWay) {
        let period = stretch.name();
        let found = compare(&period, sides, on_the_way);
        self.periods.push(Compared {
            period,
            source: Side::of(&sides.source),
            sent: Side::of(&sides.sent),
            counted: sides.counted.as_ref().map(Side::of).unwrap_or_default(),
            differences: found.len(),
        });
        self.differences.extend(found);
    }
}

/// Names every record on which the sides do not agree.
pub fn compare(period: &str, sides: &Sides, on_the_way: &OnTheWay) -> Vec<Difference> {
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
            (Some(_), None) if counted.flatten().is_none() => add(Word::NotSent),
            (Some(source), Some(sent)) if source.hash != sent.hash => add(Word::Changed),
            (None, Some(_)) => add(Word::GoneFromSource),
            _ => {}
        }
        match (sent, counted) {
            (Some(_), Some(None)) => add(match () {
                () if on_the_way.spool.contains(id) => Word::Waiting,
                () if on_the_way.failed.contains(id) => Word::Failed,
                () => Word::NotCounted,
            }),
            (Some(sent), Some(Some(counted))) if sent.hash != counted.hash => add(Word::CountedOtherwise),
            (None, Some(Some(_))) => add(Word::CountedUnsent),
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
    fn every_kind_of_difference_is_named() {
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
        let on_the_way = OnTheWay {
            spool: HashSet::from(["spool".to_owned()]),
            failed: HashSet::from(["failed".to_owned()]),
        };
        let found: Vec<(String, Word)> = compare("2025-11-29", &sides, &on_the_way)
            .into_iter()
            .map(|difference| (difference.id, difference.what))
            .collect();
        let expected = [
            ("failed", Word::Failed),
            ("foreign", Word::CountedUnsent),
            ("gone", Word::GoneFromSource),
            ("late", Word::Changed),
            ("lost", Word::NotCounted),
            ("other", Word::CountedOtherwise),
            ("spool", Word::Waiting),
            ("unsent", Word::NotSent),
        ];
        assert_eq!(found, expected.map(|(id, word)| (id.to_owned(), word)));
    }

    #[test]
    fn a_receiver_that_does_not_tell_is_not_compared() {
        let sides = Sides { source: records(&[("a", 1)]), sent: records(&[("a", 1)]), counted: None };
        assert!(compare("2025-11-29", &sides, &OnTheWay::default()).is_empty());
        assert_eq!(Side::of(&sides.source).cost["USD"], "0.1");
    }
}
