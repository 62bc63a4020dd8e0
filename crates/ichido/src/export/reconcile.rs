//! What the source has, what was sent, and what the receiver counted: by period, and down to the record.

mod receiver;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use ichido_delivery::store::{BatchDir, Layout};
use rust_decimal::Decimal;
use serde::Serialize;

use super::plan::Sums;
use super::state::Content;
use super::{Days, Export, Stretch, waiting};
use crate::exit::Failure;
use crate::output;

pub(crate) use self::receiver::Receiver;

/// All periods that were looked at.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Findings {
    pub(crate) periods: Vec<Compared>,
    pub(crate) differences: Vec<Difference>,
    /// Whether the receiver said what it counted.
    pub(crate) receiver_answers: bool,
}

/// One period, seen from three sides.
#[derive(Debug, Serialize)]
pub(crate) struct Compared {
    pub(crate) period: String,
    pub(crate) source: Side,
    pub(crate) sent: Side,
    pub(crate) counted: Side,
    pub(crate) differences: usize,
}

/// The sums of one side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Side {
    pub(crate) records: u64,
    pub(crate) requests: u64,
    pub(crate) tokens: u64,
    /// By currency.
    pub(crate) cost: BTreeMap<String, String>,
}

/// A record on which the sides do not agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Difference {
    pub(crate) period: String,
    pub(crate) id: String,
    pub(crate) what: Word,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<Sums>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sent: Option<Sums>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) counted: Option<Sums>,
}

/// How the sides differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Word {
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
    fn words(self) -> &'static str {
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
pub(crate) struct Sides {
    pub(crate) source: BTreeMap<String, Content>,
    pub(crate) sent: BTreeMap<String, Content>,
    /// `None`: the receiver does not tell.
    pub(crate) counted: Option<BTreeMap<String, Content>>,
}

/// Where records lie that have not arrived.
#[derive(Debug, Default)]
pub(crate) struct OnTheWay {
    pub(crate) spool: HashSet<String>,
    pub(crate) failed: HashSet<String>,
}

/// Compares the days that were asked for, or all that were exported.
pub(crate) async fn reconcile(
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
    for listed in layout.oldest(BatchDir::Failed, None, usize::MAX)? {
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

    /// Tables.
    pub(crate) fn print(&self) {
        let mut table = output::table(&["period", "", "records", "calls", "tokens", "cost", "differences"]);
        for compared in &self.periods {
            for (name, side) in
                [("source", &compared.source), ("sent", &compared.sent), ("counted", &compared.counted)]
            {
                let first = name == "source";
                let untold = name == "counted" && !self.receiver_answers;
                let number = |number: u64| if untold { "?".to_owned() } else { number.to_string() };
                let cost: Vec<String> =
                    side.cost.iter().map(|(currency, cost)| format!("{cost} {currency}")).collect();
                table.add_row([
                    if first { compared.period.clone() } else { String::new() },
                    name.to_owned(),
                    number(side.records),
                    number(side.requests),
                    number(side.tokens),
                    cost.join(", "),
                    if first { compared.differences.to_string() } else { String::new() },
                ]);
            }
        }
        outln!("{table}");
        for difference in &self.differences {
            let Difference { id, what, source, sent, counted, .. } = difference;
            let sides = [("source", source), ("sent", sent), ("counted", counted)];
            let told: Vec<String> = sides
                .into_iter()
                .filter_map(|(name, sums)| {
                    let sums = sums.as_ref()?;
                    let tokens = sums.input_tokens + sums.output_tokens;
                    Some(format!(
                        "{name} {} calls, {tokens} tokens, {} {}",
                        sums.requests, sums.cost, sums.currency
                    ))
                })
                .collect();
            outln!("{id}: {} ({})", what.words(), told.join("; "));
        }
        if !self.receiver_answers {
            outln!(
                "the receiver does not tell what it counted: only the source and what was sent are compared"
            );
        }
    }
}

/// Names every record on which the sides do not agree.
pub(crate) fn compare(period: &str, sides: &Sides, on_the_way: &OnTheWay) -> Vec<Difference> {
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
