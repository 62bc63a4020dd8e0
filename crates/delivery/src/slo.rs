//! The six criteria that tell whether delivery works, for any period.
//!
//! They are computed from receipts and from the files in the spool and in failed, never from counters, which end with their
//! process. So they cover runs and daemons alike.
//!
//! A *pass* is one try to deliver a batch: a request and its retries. Receipts of earlier versions do not say whether a pass
//! was a resend, nor when its batch was first tried. They do not count where that is needed, and their number is reported.

mod distribution;
mod tally;

use std::collections::BTreeMap;

use ichido_core::Timestamp;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use self::tally::Tally;
use crate::receipt::read::ReceiptFiles;
use crate::store::{BatchDir, Layout};
use crate::time::iso;

/// The share of passes that deliver.
const SEND_SUCCESS: f64 = 0.999;
/// The share of retries that deliver.
const RETRY_SUCCESS: f64 = 0.8;
/// The share of resends that deliver.
const RESEND_SUCCESS: f64 = 0.95;
/// The share of passes that end in failed.
const FAILED_SHARE: f64 = 0.01;
/// How long a delivery may take, in milliseconds.
const LATENCY_MS: u64 = 5_000;
/// How long a batch may be in the spool.
const SPOOL_AGE_MS: u64 = 24 * 60 * 60 * 1_000;
/// The batches that are named for each criterion. The others are counted.
const BATCHES_MAX: usize = 20;

/// A period, from its start up to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// The first moment.
    pub from: Timestamp,
    /// The first moment after it.
    pub to: Timestamp,
}

impl Period {
    fn contains(&self, at: Timestamp) -> bool {
        self.from <= at && at < self.to
    }
}

/// A criterion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Name {
    /// The share of passes that deliver their batch.
    SendSuccess,
    /// The share of retries that deliver their batch.
    RetrySuccess,
    /// The share of resends from the spool that deliver their batch.
    ResendSuccess,
    /// The 95th percentile of the time from the first request of a pass to the response that confirms it.
    SendLatencyP95,
    /// The 95th percentile of the time from the first attempt to the delivery of a batch that was in the spool.
    SpoolAgeP95,
    /// The number of batches moved to failed, as a share of passes.
    FailedShare,
}

/// How a value is compared with its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// The value must reach the target.
    AtLeast,
    /// The value must stay below the target.
    Below,
}

/// The unit of a value and its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A share between 0 and 1.
    Ratio,
    /// Seconds.
    Seconds,
}

/// Whether a target was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It was.
    Met,
    /// It was not.
    Missed,
    /// Nothing was measured.
    NoData,
}

/// One criterion, measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Criterion {
    /// Which one.
    pub name: Name,
    /// Its target.
    pub target: f64,
    /// How the value is compared with it.
    pub comparison: Comparison,
    /// The value. `None` if nothing was measured.
    pub value: Option<f64>,
    /// The unit of both.
    pub unit: Unit,
    /// Whether the target was reached.
    pub verdict: Verdict,
    /// The counts behind the value.
    pub counts: BTreeMap<String, u64>,
    /// Batches that count against it.
    pub batches: Vec<Against>,
    /// How many more there are.
    pub more_batches: u64,
}

/// A batch that counts against a criterion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Against {
    /// Its key, or the start of it.
    pub batch: String,
    /// When.
    pub at: String,
    /// What happened: the disposition of the batch, or the time it took.
    pub what: String,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The six criteria.
    pub criteria: Vec<Criterion>,
    /// What limits the figures, such as a file that could not be read.
    pub notes: Vec<String>,
}

/// Measures a period.
pub fn measure(layout: &Layout, period: Period, now: Timestamp) -> Measured {
    let (mut tally, mut notes) = (Tally::default(), Vec::new());
    match ReceiptFiles::list(layout.root()) {
        Ok(files) => {
            let skipped = files.each::<IgnoredAny>(period.from, period.to, |receipt| tally.add(&receipt));
            notes.extend(skipped.unreadable.into_iter().map(|why| format!("cannot read {why}")));
            if skipped.torn_lines > 0 {
                notes.push(format!(
                    "{} receipts were cut off by a crash and do not count",
                    skipped.torn_lines
                ));
            }
            notes.extend(late_start(&files, period));
        }
        Err(error) => {
            notes.push(format!("cannot read {}: {error}", layout.root().join("receipts").display()))
        }
    }
    let until = period.to.min(now);
    let spool = layout.each_listed(BatchDir::Spool, |listed| {
        let (first, due) = (listed.at(), listed.at() + SPOOL_AGE_MS);
        if period.contains(due) && due <= now {
            tally.overdue(&listed.name.key, first, until.ms_since(first));
        }
    });
    let failed = layout.each_listed(BatchDir::Failed, |listed| {
        if period.contains(listed.at()) {
            tally.in_failed(&listed.name.key, listed.at());
        }
    });
    for result in [spool, failed] {
        notes.extend(result.err().map(|error| error.to_string()));
    }
    if tally.without_origin > 0 {
        notes.push(format!(
            "{} receipts of an earlier version do not say whether they are resends; they do not count for resend_success and \
             spool_age_p95",
            tally.without_origin
        ));
    }
    Measured { criteria: tally.criteria(until), notes }
}

/// Says if receipts start later than the period: they have expired, or nothing was sent before.
fn late_start(files: &ReceiptFiles, period: Period) -> Option<String> {
    let start: String = iso(period.from).chars().filter(char::is_ascii_digit).take(8).collect();
    let first = files.first_day().filter(|first| **first > *start)?;
    let (year, month, day) = (&first[..4], &first[4..6], &first[6..]);
    Some(format!(
        "the oldest receipts are of {year}-{month}-{day}: nothing was sent before, or it has expired (RECEIPT_RETENTION_DAYS)"
    ))
}

impl Measured {
    /// Whether a target was missed.
    pub fn is_missed(&self) -> bool {
        self.criteria.iter().any(|criterion| criterion.verdict == Verdict::Missed)
    }
}

impl Criterion {
    fn ratio(name: Name, target: f64, comparison: Comparison, (part, whole): (u64, u64)) -> Self {
        #[allow(clippy::cast_precision_loss, reason = "a share")]
        let value = (whole > 0).then(|| part as f64 / whole as f64);
        Self::new(name, target, comparison, value, Unit::Ratio)
    }

    fn seconds(name: Name, target_ms: u64, value_ms: Option<u64>) -> Self {
        #[allow(clippy::cast_precision_loss, reason = "rounded to a millisecond")]
        let seconds = |ms: u64| ms as f64 / 1_000.0;
        Self::new(name, seconds(target_ms), Comparison::Below, value_ms.map(seconds), Unit::Seconds)
    }

    fn new(name: Name, target: f64, comparison: Comparison, value: Option<f64>, unit: Unit) -> Self {
        let verdict = match (value, comparison) {
            (None, _) => Verdict::NoData,
            (Some(value), Comparison::AtLeast) if value >= target => Verdict::Met,
            (Some(value), Comparison::Below) if value < target => Verdict::Met,
            (Some(_), Comparison::AtLeast | Comparison::Below) => Verdict::Missed,
        };
        Self {
            name,
            target,
            comparison,
            value,
            unit,
            verdict,
            counts: BTreeMap::new(),
            batches: Vec::new(),
            more_batches: 0,
        }
    }
}

#[cfg(test)]
mod tests;
