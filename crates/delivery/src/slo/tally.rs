//! Adds up the receipts of a period.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use ichido_core::Timestamp;

use super::distribution::Distribution;
use super::{
    Against, BATCHES_MAX, Comparison, Criterion, FAILED_SHARE, LATENCY_MS, Name, RESEND_SUCCESS,
    RETRY_SUCCESS, SEND_SUCCESS, SPOOL_AGE_MS,
};
use crate::batch::key_prefix;
use crate::receipt::Disposition;
use crate::receipt::read::{Origin, Receipt};
use crate::time::iso;

/// The counts of a period, and the batches that count against each criterion.
#[derive(Debug, Default)]
pub(super) struct Tally {
    delivered: u64,
    duplicates: u64,
    spooled: u64,
    failed: u64,
    retries: u64,
    retry_success: u64,
    resends: u64,
    resend_success: u64,
    latency: Distribution,
    /// Receipts of passes that do not say where the batch came from.
    pub(super) without_origin: u64,
    /// How batches from the spool ended last, by a hash of the key.
    from_spool: HashMap<u64, LastPass>,
    /// Batches that an operator accepted: the receiver has them.
    accepted: HashMap<u64, LastPass>,
    /// Batches in the spool that are older than the target.
    overdue: Vec<(String, Timestamp, u64)>,
    moved: u64,
    /// The starts of the keys of batches that receipts report as moved.
    moved_keys: HashSet<String>,
    without_receipt: u64,
    against: [Named; 6],
    hasher: RandomState,
}

/// The last pass over a batch from the spool.
#[derive(Debug)]
struct LastPass {
    at: Timestamp,
    first_attempt: Timestamp,
    result: PassResult,
}

/// How a pass ended. Only the keys that count against the target are kept.
#[derive(Debug)]
enum PassResult {
    OnTime,
    Late(String),
    Failed(String),
}

impl LastPass {
    fn delivered(key: &str, at: Timestamp, first_attempt: Timestamp) -> Self {
        let result = match at.ms_since(first_attempt) >= SPOOL_AGE_MS {
            true => PassResult::Late(key.to_owned()),
            false => PassResult::OnTime,
        };
        Self { at, first_attempt, result }
    }
}

/// The first few batches, and how many there are.
#[derive(Debug, Default)]
struct Named {
    first: Vec<Against>,
    count: u64,
}

impl Named {
    fn add(&mut self, batch: &str, at: Timestamp, what: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < BATCHES_MAX {
            self.first.push(Against { batch: batch.to_owned(), at: iso(at), what: what() });
        }
    }
}

impl Tally {
    pub(super) fn add<R>(&mut self, receipt: &Receipt<R>) {
        let (key, at) = (&*receipt.batch_idempotency_key, receipt.at);
        let what = match receipt.disposition {
            Disposition::Delivered => "delivered",
            Disposition::Spooled => "spooled",
            Disposition::Failed => "failed",
            Disposition::Split => "split",
            // No pass: an operator decided.
            Disposition::Accepted => return self.accept(receipt),
        };
        if receipt.disposition == Disposition::Failed {
            self.moved += 1;
            self.moved_keys.insert(key_prefix(key).to_owned());
            self.note(Name::FailedShare, key, at, || what.to_owned());
        }
        let is_delivered = match receipt.disposition {
            Disposition::Delivered => true,
            // The receiver accepted some of its records.
            Disposition::Split => !receipt.accepted.is_empty(),
            Disposition::Spooled | Disposition::Failed | Disposition::Accepted => false,
        };
        self.add_retries(receipt, is_delivered, what);
        // Without a request there was no pass: the lane was closed, or the batch expired.
        let is_pass = !receipt.attempts.is_empty();
        if receipt.disposition == Disposition::Split && !is_delivered {
            return;
        }
        if is_pass {
            match receipt.disposition {
                Disposition::Delivered | Disposition::Split | Disposition::Accepted => self.delivered += 1,
                Disposition::Spooled => self.spooled += 1,
                Disposition::Failed => self.failed += 1,
            }
            self.duplicates += u64::from(receipt.duplicate.is_some());
            if !is_delivered {
                self.note(Name::SendSuccess, key, at, || what.to_owned());
            }
            self.add_resend(receipt, is_delivered, what);
        }
        if is_delivered && let Some(took) = receipt.took_ms() {
            self.latency.add(took);
            if took >= LATENCY_MS {
                self.note(Name::SendLatencyP95, key, at, || format!("{took} ms"));
            }
        }
        self.settle(receipt, is_delivered);
    }

    fn add_retries<R>(&mut self, receipt: &Receipt<R>, is_delivered: bool, what: &str) {
        let retries = receipt.attempts.len().saturating_sub(1) as u64;
        self.retries += retries;
        if retries > 0 {
            match is_delivered {
                true => self.retry_success += 1,
                false => {
                    self.note(Name::RetrySuccess, &receipt.batch_idempotency_key, receipt.at, || {
                        what.to_owned()
                    });
                }
            }
        }
    }

    fn add_resend<R>(&mut self, receipt: &Receipt<R>, is_delivered: bool, what: &str) {
        match receipt.origin {
            None => self.without_origin += 1,
            Some(Origin::Fresh) => {}
            Some(Origin::Spool) => {
                self.resends += 1;
                self.resend_success += u64::from(is_delivered);
                if !is_delivered {
                    self.note(Name::ResendSuccess, &receipt.batch_idempotency_key, receipt.at, || {
                        what.to_owned()
                    });
                }
            }
        }
    }

    /// Remembers how a batch from the spool ended last. Files are not read in the order of time.
    fn settle<R>(&mut self, receipt: &Receipt<R>, is_delivered: bool) {
        let Receipt { batch_idempotency_key: key, at, disposition, .. } = receipt;
        let (Some(Origin::Spool), Some(first_attempt)) = (receipt.origin, receipt.first_attempt) else {
            return;
        };
        let last = match (is_delivered, disposition) {
            (true, _) => LastPass::delivered(key, *at, first_attempt),
            // A batch that is back in the spool is still there, or has a later receipt.
            (false, Disposition::Spooled) => return,
            (false, _) => LastPass { at: *at, first_attempt, result: PassResult::Failed(key.clone()) },
        };
        let hash = self.hasher.hash_one(key);
        if self.from_spool.get(&hash).is_none_or(|known| known.at <= last.at) {
            self.from_spool.insert(hash, last);
        }
    }

    fn accept<R>(&mut self, receipt: &Receipt<R>) {
        if let Some(first_attempt) = receipt.first_attempt {
            let key = &receipt.batch_idempotency_key;
            let accepted = LastPass::delivered(key, receipt.at, first_attempt);
            self.accepted.insert(self.hasher.hash_one(key), accepted);
        }
    }

    /// A batch in the spool is older than the target.
    pub(super) fn overdue(&mut self, key: &str, first_attempt: Timestamp, age_ms: u64) {
        self.overdue.push((key.to_owned(), first_attempt, age_ms));
    }

    /// A file in failed was moved there in the period.
    pub(super) fn in_failed(&mut self, key: &str, at: Timestamp) {
        if !self.moved_keys.contains(key) {
            self.moved += 1;
            self.without_receipt += 1;
            self.note(Name::FailedShare, key, at, || "failed".to_owned());
        }
    }

    fn note(&mut self, name: Name, key: &str, at: Timestamp, what: impl FnOnce() -> String) {
        self.against[name as usize].add(key, at, what);
    }

    /// The six criteria. `until` is the end of what was measured.
    pub(super) fn criteria(mut self, until: Timestamp) -> Vec<Criterion> {
        let passes = self.delivered + self.spooled + self.failed;
        let (spool_age, undelivered) = self.spool_age(until);
        let spool_total = spool_age.total();
        let on_time = spool_total - self.against[Name::SpoolAgeP95 as usize].count;
        let ratio =
            |name, target, part, whole| Criterion::ratio(name, target, Comparison::AtLeast, (part, whole));
        let criteria = [
            (
                ratio(Name::SendSuccess, SEND_SUCCESS, self.delivered, passes),
                vec![
                    ("passes", passes),
                    ("delivered", self.delivered),
                    ("duplicates", self.duplicates),
                    ("spooled", self.spooled),
                    ("failed", self.failed),
                ],
            ),
            (
                ratio(Name::RetrySuccess, RETRY_SUCCESS, self.retry_success, self.retries),
                vec![("retries", self.retries), ("delivered", self.retry_success)],
            ),
            (
                ratio(Name::ResendSuccess, RESEND_SUCCESS, self.resend_success, self.resends),
                vec![
                    ("resends", self.resends),
                    ("delivered", self.resend_success),
                    ("unknown", self.without_origin),
                ],
            ),
            (
                Criterion::seconds(Name::SendLatencyP95, LATENCY_MS, self.latency.p95()),
                vec![
                    ("delivered", self.latency.total()),
                    ("late", self.against[Name::SendLatencyP95 as usize].count),
                ],
            ),
            (
                Criterion::seconds(Name::SpoolAgeP95, SPOOL_AGE_MS, spool_age.p95()),
                vec![
                    ("batches", spool_total),
                    ("within_24_h", on_time),
                    ("undelivered", undelivered),
                    ("unknown", self.without_origin),
                ],
            ),
            (
                Criterion::ratio(
                    Name::FailedShare,
                    FAILED_SHARE,
                    Comparison::Below,
                    (self.moved, passes.max(self.moved)),
                ),
                vec![("passes", passes), ("moved", self.moved), ("without_receipt", self.without_receipt)],
            ),
        ];
        criteria
            .into_iter()
            .zip(self.against)
            .map(|((criterion, counts), against)| Criterion {
                counts: counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
                more_batches: against.count - against.first.len() as u64,
                batches: against.first,
                ..criterion
            })
            .collect()
    }

    /// The ages of batches that were in the spool. One that was not delivered counts with its age so far, and at least with
    /// the target.
    fn spool_age(&mut self, until: Timestamp) -> (Distribution, u64) {
        let (mut ages, mut undelivered) = (Distribution::default(), 0);
        let mut accepted = std::mem::take(&mut self.accepted);
        let last = |(hash, pass): (u64, LastPass)| match accepted.remove(&hash) {
            Some(accepted) if accepted.at >= pass.at => accepted,
            Some(_) | None => pass,
        };
        let mut passes: Vec<LastPass> = std::mem::take(&mut self.from_spool).into_iter().map(last).collect();
        passes.sort_unstable_by_key(|pass| pass.at);
        for LastPass { at, first_attempt, result } in passes {
            let age = at.ms_since(first_attempt);
            match result {
                PassResult::OnTime => ages.add(whole_seconds(age)),
                PassResult::Late(key) => {
                    ages.add(whole_seconds(age));
                    self.note(Name::SpoolAgeP95, &key, at, || format!("{} s", age / 1_000));
                }
                PassResult::Failed(key) => {
                    undelivered += 1;
                    ages.add(whole_seconds(until.ms_since(first_attempt).max(SPOOL_AGE_MS)));
                    self.note(Name::SpoolAgeP95, &key, at, || "failed".to_owned());
                }
            }
        }
        let mut overdue = std::mem::take(&mut self.overdue);
        overdue.sort_unstable_by_key(|(_, first_attempt, _)| *first_attempt);
        for (key, first_attempt, age) in overdue {
            undelivered += 1;
            ages.add(whole_seconds(age));
            self.note(Name::SpoolAgeP95, &key, first_attempt, || "spooled".to_owned());
        }
        (ages, undelivered)
    }
}

/// Whole seconds, in milliseconds: few different values, whatever the number of batches.
fn whole_seconds(ms: u64) -> u64 {
    ms - ms % 1_000
}
