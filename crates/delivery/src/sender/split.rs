//! Splits a batch that the receiver rejects, to find out which records it rejects.

use std::collections::HashMap;
use std::ops::Range;

use crate::bisect::{Action, Bisect, middle};
use crate::exchange::Exchange;
use crate::next_action::Origin;
use crate::receipt::{Attempt, Disposition};
use crate::record_results::RecordResult;
use crate::store::{OwnedFile, StoredBatch};
use crate::verdict::Verdict;

use super::{Job, Sender};

/// The existing parts, by their range in the whole batch.
type Parts = HashMap<(usize, usize), Part>;

/// A part of a batch, and the request that rejected it.
#[derive(Debug)]
struct Part {
    owned: Option<OwnedFile>,
    stored: StoredBatch,
    attempts: Vec<Attempt>,
}

impl Part {
    fn new((owned, stored): (Option<OwnedFile>, StoredBatch)) -> Self {
        Self { owned, stored, attempts: Vec::new() }
    }
}

impl Sender {
    /// Sends parts until each rejected record is alone.
    pub(super) async fn split(&mut self, job: Job, exchange: &Exchange) {
        let whole = job.stored.clone();
        let records = whole.batch.records().len();
        let at = middle(&(0..records));
        tracing::warn!(
            batchIdempotencyKey = whole.batch.key(),
            records,
            error = self.describe(exchange),
            "batch rejected; sending smaller parts"
        );
        let mut parts = Parts::new();
        if !self.split_part(&mut parts, &whole, &(0..records), at, (job.owned.as_ref(), &whole)) {
            return self.return_to_spool(job);
        }
        self.write_receipt(&job, Disposition::Split, None);
        let mut bisect = Bisect::new(records);
        while let Some(range) = bisect.next_part() {
            let Some(part) = parts.remove(&(range.start, range.end)) else { continue };
            let part = self.part_job(part, job.origin);
            let ended = self.request(part).await.and_then(|ended| self.judge_ended(ended));
            let (mut part, exchange, verdict) = match ended {
                Ok(judged) => judged,
                Err(part) => {
                    self.return_to_spool(*part);
                    break;
                }
            };
            let actions = if verdict == Verdict::Split {
                self.lane_works(part.probe);
                let message = self.describe(&exchange);
                part.stored.note(self.deps.clock.now(), &message);
                let Job { owned, stored, attempts, .. } = part;
                parts.insert((range.start, range.end), Part { owned, stored, attempts });
                bisect.rejected(range, &message)
            } else {
                // A part that was not rejected proceeds like any batch. Boxed, because it is sent by the same
                // functions.
                Box::pin(self.proceed(part, &exchange, verdict)).await;
                bisect.passed()
            };
            for action in actions {
                self.apply(&mut parts, &whole, &job, action);
            }
        }
        // The lane is held or closed, the process stops, or the disk failed: the remaining parts wait.
        for part in parts.into_values() {
            let part = self.part_job(part, job.origin);
            self.return_to_spool(part);
        }
    }

    fn part_job(&self, part: Part, origin: Origin) -> Job {
        let Part { owned, stored, attempts } = part;
        Job { attempts, ..self.job(owned, stored, origin) }
    }

    fn apply(&mut self, parts: &mut Parts, whole: &StoredBatch, job: &Job, action: Action) {
        match action {
            Action::Split(range, at) => {
                let Some(part) = parts.remove(&(range.start, range.end)) else { return };
                let part = self.part_job(part, job.origin);
                if self.split_part(parts, whole, &range, at, (part.owned.as_ref(), &part.stored)) {
                    self.write_receipt(&part, Disposition::Split, None);
                } else {
                    let Job { owned, stored, attempts, .. } = part;
                    parts.insert((range.start, range.end), Part { owned, stored, attempts });
                }
            }
            Action::Reject(record) => {
                if let Some(part) = parts.remove(&(record, record + 1)) {
                    self.count_failed(job.origin);
                    let part = self.part_job(part, job.origin);
                    self.fail(part);
                }
            }
            Action::Hold => {
                let last = parts.values().find_map(|part| part.stored.last_error.clone());
                self.hold_with_reason(&format!(
                    "every record is rejected with the same message: {}",
                    last.unwrap_or_default()
                ));
            }
        }
    }

    /// Splits a part. Returns whether the parts could be written.
    fn split_part(
        &mut self,
        parts: &mut Parts,
        whole: &StoredBatch,
        range: &Range<usize>,
        at: usize,
        (owned, stored): (Option<&OwnedFile>, &StoredBatch),
    ) -> bool {
        let batches = vec![whole.batch.slice(range.start..at), whole.batch.slice(at..range.end)];
        let Some(written) = self.split_on_disk(stored, owned, batches) else { return false };
        let indexes = [(range.start, at), (at, range.end)];
        parts.extend(indexes.into_iter().zip(written.into_iter().map(Part::new)));
        true
    }

    /// Handles a response with a result for each record.
    pub(super) fn handle_results(&mut self, mut job: Job, exchange: &Exchange, results: &[RecordResult]) {
        let indexes = |wanted: fn(&RecordResult) -> bool| -> Vec<usize> {
            results.iter().enumerate().filter(|(_, result)| wanted(result)).map(|(index, _)| index).collect()
        };
        let retry = indexes(|result| matches!(result, RecordResult::Retry));
        let rejected = indexes(|result| matches!(result, RecordResult::Rejected(_)));
        let accepted = indexes(|result| matches!(result, RecordResult::Delivered));
        let delivered = accepted.len();
        self.counters.records_delivered += delivered as u64;
        tracing::warn!(
            batchIdempotencyKey = job.stored.batch.key(),
            delivered,
            retry = retry.len(),
            rejected = rejected.len(),
            error = self.describe(exchange),
            "response has a result for each record"
        );
        let mut batches: Vec<_> = rejected.iter().map(|index| job.stored.batch.select(&[*index])).collect();
        if !retry.is_empty() {
            batches.push(job.stored.batch.select(&retry));
        }
        let whole = job.stored.clone();
        let Some(mut parts) = self.split_on_disk(&whole, job.owned.as_ref(), batches) else {
            job.retries += 1;
            return self.return_to_spool(job);
        };
        self.write_split_receipt(&job, &accepted);
        let rest = if retry.is_empty() { None } else { parts.pop() };
        for (index, (owned, mut stored)) in rejected.into_iter().zip(parts) {
            if let RecordResult::Rejected(message) = &results[index] {
                let message = self.deps.transport.token().redactor().text(message);
                stored.note(self.deps.clock.now(), &message);
            }
            self.count_failed(job.origin);
            // The request that rejected it was that of the whole batch.
            let attempts = job.attempts.last().cloned().into_iter().collect();
            let part = self.part_job(Part { owned, stored, attempts }, job.origin);
            self.fail(part);
        }
        if let Some((owned, stored)) = rest {
            let mut part = self.job(owned, stored, job.origin);
            (part.retries, part.rate_limited) = (job.retries, job.rate_limited);
            let counted_retries = part.retries - part.rate_limited;
            match counted_retries < self.rules.policy.max_retries {
                true => {
                    let pause = self.rules.policy.pause(counted_retries, self.random());
                    part.retries += 1;
                    self.schedule_retry(part, pause);
                }
                false => {
                    self.count_failed(part.origin);
                    part.stored.note(self.deps.clock.now(), "some records must be retried later");
                    self.end_failed_pass(part);
                }
            }
        } else if delivered == results.len() {
            self.count_success(job.origin);
        }
    }

    /// Counts a failed pass for a part that was not delivered.
    fn end_failed_pass(&mut self, mut part: Job) {
        if let crate::next_action::Origin::Spool { retry_count } = part.origin {
            part.stored.retry_count = retry_count.saturating_add(1);
            if part.stored.retry_count >= self.rules.policy.max_spool_retries {
                return self.fail(part);
            }
        }
        self.spool(part);
    }
}
