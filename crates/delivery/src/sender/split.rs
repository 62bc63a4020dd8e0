//! A batch of which something is refused: smaller parts tell what.

use std::collections::HashMap;
use std::ops::Range;

use crate::bisect::{Action, Bisect, middle};
use crate::exchange::Exchange;
use crate::receipt::Disposition;
use crate::record_results::RecordResult;
use crate::store::{OwnedFile, StoredBatch};
use crate::verdict::Verdict;

use super::attempt::Attempted;
use super::{Job, Sender};

/// The parts that exist, by their place in the whole.
type Parts = HashMap<(usize, usize), (Option<OwnedFile>, StoredBatch)>;

impl Sender {
    /// Sends parts until each refused record stands alone.
    pub(super) async fn split(&mut self, job: Job, exchange: &Exchange) {
        let whole = job.stored.clone();
        let records = whole.batch.records().len();
        let at = middle(&(0..records));
        tracing::warn!(
            batchIdempotencyKey = whole.batch.key(),
            records,
            error = self.describe(exchange),
            "refused: trying smaller parts"
        );
        let mut parts = Parts::new();
        if !self.cut(&mut parts, &whole, &(0..records), at, (job.owned.as_ref(), &whole)) {
            return self.return_to_spool(job);
        }
        self.leave_receipt(&job, Disposition::Split, None);
        let mut bisect = Bisect::new(records);
        while let Some(range) = bisect.next_part() {
            let Some((owned, stored)) = parts.remove(&(range.start, range.end)) else { continue };
            let mut part = self.job(owned, stored, job.origin);
            let (exchange, verdict) = match self.request(&mut part).await {
                Attempted::Ended(exchange, verdict) => (exchange, verdict),
                Attempted::Closed | Attempted::Stopped => {
                    self.return_to_spool(part);
                    break;
                }
            };
            let actions = if verdict == Verdict::Split {
                self.lane_works();
                let words = self.describe(&exchange);
                part.stored.note(self.deps.clock.now(), &words);
                parts.insert((range.start, range.end), (part.owned.take(), part.stored));
                bisect.rejected(range, &words)
            } else {
                // A part that was not refused goes on like any batch. Boxed: it is sent by the same functions.
                Box::pin(self.proceed(part, &exchange, verdict)).await;
                bisect.passed()
            };
            for action in actions {
                self.apply(&mut parts, &whole, &job, action);
            }
        }
        // OwnedFile, stopped, or the disk refused: what is left waits.
        for (owned, stored) in parts.into_values() {
            let part = self.job(owned, stored, job.origin);
            self.return_to_spool(part);
        }
    }

    fn apply(&mut self, parts: &mut Parts, whole: &StoredBatch, job: &Job, action: Action) {
        match action {
            Action::Split(range, at) => {
                if let Some((owned, stored)) = parts.remove(&(range.start, range.end))
                    && !self.cut(parts, whole, &range, at, (owned.as_ref(), &stored))
                {
                    parts.insert((range.start, range.end), (owned, stored));
                }
            }
            Action::Reject(record) => {
                if let Some((owned, stored)) = parts.remove(&(record, record + 1)) {
                    self.count_failed(job.origin);
                    let part = self.job(owned, stored, job.origin);
                    self.fail(part);
                }
            }
            Action::Hold => {
                let last = parts.values().find_map(|(_, stored)| stored.last_error.clone());
                self.hold_with_reason(&format!(
                    "every record is refused alike: {}",
                    last.unwrap_or_default()
                ));
            }
        }
    }

    /// Divides a part; says whether the disk let it.
    fn cut(
        &mut self,
        parts: &mut Parts,
        whole: &StoredBatch,
        range: &Range<usize>,
        at: usize,
        (owned, stored): (Option<&OwnedFile>, &StoredBatch),
    ) -> bool {
        let batches = vec![whole.batch.slice(range.start..at), whole.batch.slice(at..range.end)];
        let Some(written) = self.divide(stored, owned, batches) else { return false };
        let indexes = [(range.start, at), (at, range.end)];
        parts.extend(indexes.into_iter().zip(written));
        true
    }

    /// The receiver has said of each record what state_after of it.
    pub(super) fn sort(&mut self, mut job: Job, exchange: &Exchange, results: &[RecordResult]) {
        let indexes = |wanted: fn(&RecordResult) -> bool| -> Vec<usize> {
            results.iter().enumerate().filter(|(_, result)| wanted(result)).map(|(index, _)| index).collect()
        };
        let again = indexes(|result| matches!(result, RecordResult::Retry));
        let refused = indexes(|result| matches!(result, RecordResult::Rejected(_)));
        let arrived = results.len() - again.len() - refused.len();
        self.counters.records_delivered += arrived as u64;
        tracing::warn!(
            batchIdempotencyKey = job.stored.batch.key(),
            arrived,
            again = again.len(),
            refused = refused.len(),
            error = self.describe(exchange),
            "a result for each record"
        );
        let mut batches: Vec<_> = refused.iter().map(|index| job.stored.batch.select(&[*index])).collect();
        if !again.is_empty() {
            batches.push(job.stored.batch.select(&again));
        }
        let whole = job.stored.clone();
        let Some(mut parts) = self.divide(&whole, job.owned.as_ref(), batches) else {
            job.retries += 1;
            return self.return_to_spool(job);
        };
        self.leave_receipt(&job, Disposition::Split, None);
        let rest = if again.is_empty() { None } else { parts.pop() };
        for (index, (owned, mut stored)) in refused.into_iter().zip(parts) {
            if let RecordResult::Rejected(words) = &results[index] {
                let words = self.deps.transport.token().redactor().text(words);
                stored.note(self.deps.clock.now(), &words);
            }
            self.count_failed(job.origin);
            let part = self.job(owned, stored, job.origin);
            self.fail(part);
        }
        if let Some((owned, stored)) = rest {
            let mut part = self.job(owned, stored, job.origin);
            (part.retries, part.rate_limited) = (job.retries, job.rate_limited);
            let charged = part.retries - part.rate_limited;
            match charged < self.rules.policy.max_retries {
                true => {
                    let pause = self.rules.policy.pause(charged, self.random());
                    part.retries += 1;
                    self.schedule_retry(part, pause);
                }
                false => {
                    self.count_failed(part.origin);
                    part.stored.note(self.deps.clock.now(), "some records were to be sent again later");
                    self.charge(part);
                }
            }
        } else if arrived == results.len() {
            self.count_success(job.origin);
        }
    }

    /// The end of a pass that did not bring everything across.
    fn charge(&mut self, mut part: Job) {
        if let crate::next_action::Origin::Spool { retry_count } = part.origin {
            part.stored.retry_count = retry_count.saturating_add(1);
            if part.stored.retry_count >= self.rules.policy.max_spool_retries {
                return self.fail(part);
            }
        }
        self.spool(part);
    }
}
