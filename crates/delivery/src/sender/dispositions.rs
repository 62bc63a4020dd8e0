//! What happens to a batch after an attempt: it is finished, goes to the spool, or goes to failed.

use std::time::Duration;

use ichido_core::Timestamp;

use crate::batch::Batch;
use crate::conflict::Proof;
use crate::exchange::Exchange;
use crate::next_action::Origin;
use crate::notifier::Cause;
use crate::receipt::Disposition;
use crate::record::Record;
use crate::store::{self, OwnedFile, StoredBatch};
use crate::time::iso;

use super::{Error, InvalidInput, Job, Sender};

/// Logs a line about a batch, with its context.
macro_rules! log_batch {
    ($level:ident, $sender:expr, $origin:expr, $stored:expr, $($rest:tt)+) => {
        tracing::$level!(
            context.destination = $sender.destination,
            context.origin = $origin.as_str(),
            context.records = $stored.batch.records().len(),
            context.firstAttempt = iso($stored.first_attempt),
            batchIdempotencyKey = $stored.batch.key(),
            $($rest)+
        )
    };
}

impl Sender {
    pub(super) fn delivered(&mut self, job: Job, exchange: &Exchange, duplicate: Option<Proof>) {
        let (response, status) = (self.response(exchange), exchange.status());
        let (origin, stored, retry_count) = (job.origin, &job.stored, job.retries);
        match duplicate {
            Some(proof) => log_batch!(
                warn,
                self,
                origin,
                stored,
                duplicate = true,
                evidence = proof.as_str(),
                status,
                response,
                "duplicate data detected"
            ),
            None => log_batch!(
                info,
                self,
                origin,
                stored,
                success = true,
                retryCount = retry_count,
                status,
                response,
                "delivered"
            ),
        }
        self.count_delivered(&job, duplicate.is_some());
        self.lane_works(job.probe);
        // Before the file is removed: if a crash leaves the file behind, the receipt shows that the batch was
        // delivered.
        self.write_receipt(&job, Disposition::Delivered, duplicate);
        if let Some(owned) = &job.owned
            && let Err(error) = self.deps.store.remove(owned)
        {
            // It will be sent again, and the receiver will report a duplicate.
            tracing::error!(%error, "cannot remove the file of a delivered batch");
        }
    }

    fn count_delivered(&mut self, job: &Job, duplicate: bool) {
        self.count_success(job.origin);
        let counters = &mut self.counters;
        counters.send_duplicate += u64::from(duplicate);
        counters.retry_success += u64::from(job.retries > 0);
        if job.retries > 0 {
            metrics::counter!("ichido_delivery_retry_success_total").increment(1);
        }
        counters.records_delivered += job.stored.batch.records().len() as u64;
        let age = self.deps.clock.now().ms_since(job.stored.first_attempt);
        let word = if duplicate { "duplicate" } else { "delivered" };
        metrics::counter!("ichido_delivery_batches_total", "outcome" => word).increment(1);
        let origin = job.origin.as_str();
        metrics::histogram!("ichido_delivery_age_seconds", "origin" => origin)
            .record(Duration::from_millis(age).as_secs_f64());
    }

    /// Counts a batch whose sending ended with its delivery.
    pub(super) fn count_success(&mut self, origin: Origin) {
        self.counters.send_total += 1;
        self.counters.send_success += 1;
        count_pass(origin, "delivered");
        if let Origin::Spool { .. } = origin {
            self.counters.spool_resend_attempts += 1;
            self.counters.spool_resend_success += 1;
        }
    }

    /// Counts a batch whose sending ended without delivery.
    pub(super) fn count_failed(&mut self, origin: Origin) {
        self.counters.send_total += 1;
        self.counters.send_failed += 1;
        count_pass(origin, "not-delivered");
        if let Origin::Spool { .. } = origin {
            self.counters.spool_resend_attempts += 1;
        }
    }

    /// Puts a batch into the spool with its new state.
    pub(super) fn spool(&mut self, mut job: Job) {
        if matches!(job.origin, Origin::Spool { .. }) && self.is_past_retention(job.stored.first_attempt) {
            return self.expire(job);
        }
        let Some(mut owned) = self.owned_file(&mut job) else { return };
        let stored = &job.stored;
        let spooled = self.deps.store.spool(&mut owned, stored).or_else(|error| {
            tracing::error!(%error, "cannot write the new state of a batch; spooling it with its old state");
            self.deps.store.put_back(&mut owned)
        });
        match spooled {
            Ok(path) => {
                self.write_receipt(&job, Disposition::Spooled, None);
                log_batch!(
                    warn,
                    self,
                    job.origin,
                    stored,
                    spoolSaved = true,
                    spoolPath = %path.display(),
                    spoolRetry = spool_retry(job.origin, stored.retry_count),
                    retryCount = stored.retry_count,
                    "kept in the spool"
                );
                match job.origin {
                    Origin::Fresh => {
                        self.counters.spool_saved += 1;
                        metrics::counter!("ichido_delivery_spool_saved_total").increment(1);
                    }
                    Origin::Spool { .. } => self.counters.spool_returned += 1,
                }
            }
            // It stays in this process's directory, from which the next process recovers it.
            Err(error) => tracing::error!(%error, "cannot move a batch to the spool"),
        }
    }

    /// Puts a batch back into the spool without counting a failed pass.
    pub(super) fn return_to_spool(&mut self, mut job: Job) {
        match (job.origin, &mut job.owned) {
            (Origin::Spool { .. }, Some(owned))
                if !job.history_changed
                    && (job.stored.last_error.is_none() || self.deps.stop.is_cancelled()) =>
            {
                self.put_back(owned);
                self.counters.spool_returned += 1;
            }
            _ => self.spool(job),
        }
    }

    /// Moves a batch to failed that exceeded its retention.
    pub(super) fn expire(&mut self, mut job: Job) {
        job.stored.note(self.deps.clock.now(), "kept longer than SPOOL_RETENTION_DAYS");
        self.fail_for(Cause::Expired, job);
    }

    /// Moves a batch to failed. The notice is queued first: after a crash in between, the next pass repeats both.
    pub(super) fn fail(&mut self, job: Job) {
        self.fail_for(Cause::Failed, job);
    }

    fn fail_for(&mut self, cause: Cause, mut job: Job) {
        let Some(mut owned) = self.owned_file(&mut job) else { return };
        let now = self.deps.clock.now();
        let stored = &job.stored;
        if let Err(error) = self.deps.store.update(&mut owned, stored) {
            tracing::error!(%error, "cannot write the final state of a batch");
        }
        let moved_before = self.counters.failed_moved;
        self.move_to_failed(cause, &mut owned, job.origin, stored, now);
        if self.counters.failed_moved > moved_before {
            self.write_receipt(&job, Disposition::Failed, None);
        }
    }

    fn move_to_failed(
        &mut self,
        cause: Cause,
        owned: &mut OwnedFile,
        origin: Origin,
        stored: &StoredBatch,
        now: Timestamp,
    ) {
        let path = self.deps.store.failed_path(stored.batch.key(), now, owned.is_compressed());
        match self.deps.notifier.failed(cause, &path, stored) {
            Ok(notice) => self.move_file_to_failed(owned, origin, stored, now, Some(&notice)),
            // Nobody would be notified: the batch stays in the spool, and the next pass tries again.
            Err(_) => self.put_back(owned),
        }
    }

    /// `notice` is the id of the notice that was queued for it.
    fn move_file_to_failed(
        &mut self,
        owned: &mut OwnedFile,
        origin: Origin,
        stored: &StoredBatch,
        now: Timestamp,
        notice: Option<&str>,
    ) {
        match self.deps.store.fail(owned, stored.batch.key(), now) {
            Ok(path) => {
                log_batch!(
                    error,
                    self,
                    origin,
                    stored,
                    movedToFailed = true,
                    // The notice is in the outbox. The process that sends it logs `notificationSent` = true with
                    // this `noticeId`.
                    notificationQueued = notice.is_some(),
                    notificationSent = false,
                    noticeId = notice,
                    path = %path.display(),
                    spoolRetry = spool_retry(origin, stored.retry_count),
                    retryCount = stored.retry_count,
                    firstAttempt = iso(stored.first_attempt),
                    lastError = stored.last_error.as_deref(),
                    "moved to failed"
                );
                self.counters.failed_moved += 1;
                metrics::counter!("ichido_delivery_failed_total").increment(1);
            }
            Err(error) => tracing::error!(%error, "cannot move a batch to failed"),
        }
    }

    /// Moves a file that cannot be read to failed unchanged, with the reason.
    pub(super) fn fail_unreadable(&mut self, owned: &mut OwnedFile, reason: &str) {
        let record = Record::parse("{}").ok();
        let key = self.deps.store.name_key(owned).to_owned();
        let batch = Batch::stored(key, record.into_iter().collect());
        let mut stored = StoredBatch::fresh(batch, self.deps.store.name_time(owned));
        stored.last_error = Some(reason.to_owned());
        let origin = Origin::Spool { retry_count: 0 };
        let moved_before = self.counters.failed_moved;
        self.move_to_failed(Cause::Failed, owned, origin, &stored, self.deps.clock.now());
        if self.counters.failed_moved > moved_before {
            self.write_unsent_receipt(&stored, origin);
        }
    }

    /// Keeps an invalid input item in failed, wrapped into a record.
    pub(super) fn store_invalid_input(&mut self, text: &str, reason: &str) -> Result<(), Error> {
        let wrapped = serde_json::json!({ "unreadable": text, "reason": reason }).to_string();
        let Ok(record) = Record::parse(&wrapped) else { return Ok(()) };
        let now = self.deps.clock.now();
        let mut stored = StoredBatch::fresh(Batch::new(vec![record]), now);
        stored.note(now, reason);
        stored.is_invalid_input = true;
        let mut owned = self.accept(&stored)?;
        // The first item is reported before it is moved; the others are reported together at the end.
        let notice = if self.invalid_input.is_reported {
            self.invalid_input.unreported += 1;
            reason.clone_into(&mut self.invalid_input.last);
            None
        } else if let Ok(notice) = self.deps.notifier.invalid_input(1, reason) {
            self.invalid_input.is_reported = true;
            Some(notice)
        } else {
            // Nobody would be notified: the next pass moves it.
            self.put_back(&mut owned);
            return Ok(());
        };
        self.move_file_to_failed(&mut owned, Origin::Fresh, &stored, now, notice.as_deref());
        self.write_unsent_receipt(&stored, Origin::Fresh);
        Ok(())
    }

    /// Notifies operators of the remaining invalid input items, in one notice.
    pub(super) fn notify_invalid_input(&mut self) {
        let InvalidInput { unreported, last, .. } = std::mem::take(&mut self.invalid_input);
        if unreported > 0
            && let Err(error) = self.deps.notifier.invalid_input(unreported, &last)
        {
            tracing::error!(%error, count = unreported, "cannot queue a notice of invalid input");
        }
    }

    /// Puts a batch back into the spool unchanged.
    pub(super) fn put_back(&self, owned: &mut OwnedFile) {
        if let Err(error) = self.deps.store.put_back(owned) {
            // It stays in this process's directory, from which the next process recovers it.
            tracing::error!(%error, "cannot move a batch back to the spool");
        }
    }

    /// The file of a batch. If the disk was full before, tries to write it now.
    fn owned_file(&mut self, job: &mut Job) -> Option<OwnedFile> {
        if let Some(owned) = job.owned.take() {
            return Some(owned);
        }
        match self.accept(&job.stored) {
            Ok(owned) => Some(owned),
            Err(error) => {
                tracing::error!(
                    %error,
                    batchIdempotencyKey = job.stored.batch.key(),
                    records = job.stored.batch.records().len(),
                    "a batch was neither delivered nor written to disk; send it again"
                );
                self.counters.lost += 1;
                None
            }
        }
    }

    /// Whether a batch that was first tried at this time exceeds its retention.
    pub(super) fn is_past_retention(&self, first_attempt: Timestamp) -> bool {
        let age = self.deps.clock.now().ms_since(first_attempt);
        !self.deps.stop.is_cancelled() && Duration::from_millis(age) > self.rules.retention
    }

    /// Puts all batches that wait for a retry back into the spool.
    pub(super) fn return_all(&mut self) {
        while let Some(std::cmp::Reverse(waiting)) = self.retry_queue.pop() {
            self.return_to_spool(waiting.job);
        }
    }

    pub(super) fn log_error(&self, job: &Job, exchange: &Exchange, pause: Option<Duration>) {
        let pass = match job.origin {
            Origin::Fresh => 0,
            Origin::Spool { retry_count } => retry_count.saturating_add(1),
        };
        log_batch!(
            error,
            self,
            job.origin,
            job.stored,
            errorKind = exchange.error_kind(),
            error = self.describe(exchange),
            status = exchange.status(),
            retryCount = job.retries,
            spoolRetry = spool_retry(job.origin, pass),
            nextBackoff = pause.map(|pause| pause.as_secs_f64()),
            maxRetriesReached = pause.is_none().then_some(job.retries >= self.rules.policy.max_retries),
            response = self.response(exchange),
            "not delivered"
        );
    }

    fn response(&self, exchange: &Exchange) -> Option<String> {
        match exchange {
            Exchange::Responded(response) => {
                Some(self.deps.transport.token().redactor().bytes(&response.body))
            }
            Exchange::Failed(_) => None,
        }
    }

    /// What went wrong, with the receiver's message, redacted.
    pub(super) fn describe(&self, exchange: &Exchange) -> String {
        let redactor = self.deps.transport.token().redactor();
        let short = redactor.text(&exchange.short());
        match exchange {
            Exchange::Responded(response)
                if matches!(response.status, 400..=499) && !response.body.is_empty() =>
            {
                format!("{short}: {}", redactor.bytes(&response.body))
            }
            Exchange::Responded(_) | Exchange::Failed(_) => short,
        }
    }

    /// Writes the parts of a batch, then removes the whole. `None`: an operation failed, and the whole batch remains.
    pub(super) fn split_on_disk(
        &self,
        whole: &StoredBatch,
        owned: Option<&OwnedFile>,
        parts: Vec<Batch>,
    ) -> Option<Vec<(Option<OwnedFile>, StoredBatch)>> {
        let mut written = Vec::new();
        for batch in parts {
            let stored = whole.with(batch);
            match self.deps.store.write(&stored) {
                Ok(part) => written.push((Some(part), stored)),
                // The whole batch had no copy on disk, so its parts need none.
                Err(_) if owned.is_none() => written.push((None, stored)),
                Err(error) => return self.undo_split(&written, &error),
            }
        }
        match owned.map(|owned| self.deps.store.remove(owned)) {
            None | Some(Ok(())) => Some(written),
            // If it stayed next to its parts, it would be split again, perhaps differently.
            Some(Err(error)) => self.undo_split(&written, &error),
        }
    }

    fn undo_split<T>(&self, written: &[(Option<OwnedFile>, StoredBatch)], error: &store::Error) -> Option<T> {
        tracing::error!(%error, "cannot split a batch on disk");
        for part in written.iter().filter_map(|(part, _)| part.as_ref()) {
            drop(self.deps.store.remove(part));
        }
        None
    }
}

fn count_pass(origin: Origin, outcome: &'static str) {
    metrics::counter!("ichido_delivery_passes_total", "origin" => origin.as_str(), "outcome" => outcome)
        .increment(1);
}

/// The number of the pass over the spool, for log lines.
fn spool_retry(origin: Origin, pass: u32) -> Option<u32> {
    match origin {
        Origin::Fresh => None,
        Origin::Spool { .. } => Some(pass),
    }
}
