//! What a request resulted in, and what follows from it.

use std::time::Duration;

use crate::batch::Batch;
use crate::conflict::Conflict;
use crate::exchange::{BodySent, Exchange, TransportErrorKind};
use crate::history::RequestState;
use crate::next_action::{NextAction, PassState, decide};
use crate::request::Envelope;
use crate::verdict::{BatchContext, Verdict, classify};

use super::rate_limit::RateLimited;
use super::under_way::Ended;
use super::{Job, Sender};

impl Sender {
    /// Acts on a request that has ended.
    pub(super) async fn act_on(&mut self, ended: Ended) {
        match self.judge_ended(ended) {
            Ok((job, exchange, verdict)) => self.proceed(job, &exchange, verdict).await,
            Err(job) => self.return_to_spool(*job),
        }
    }

    /// Interprets the result of a request. An error means that there was none before the process had to stop.
    pub(super) fn judge_ended(&self, ended: Ended) -> Result<(Job, Exchange, Verdict), Box<Job>> {
        let Ended { mut job, exchange, took, .. } = ended;
        let Some(exchange) = exchange else {
            self.note_request(&mut job, RequestState::TimedOut);
            return Err(Box::new(job));
        };
        let verdict = self.judge(&job, &exchange);
        self.record_metrics(&verdict, took);
        if !matches!(verdict, Verdict::Delivered { .. }) {
            self.note_request(&mut job, state_after(&exchange));
        }
        Ok((job, exchange, verdict))
    }

    /// Acts on the result of a request.
    pub(super) async fn proceed(&mut self, mut job: Job, exchange: &Exchange, verdict: Verdict) {
        let retries = match self.adapt_rate(&job, exchange) {
            RateLimited::No => job.retries - job.rate_limited,
            RateLimited::Wait(pause) => {
                self.log_error(&job, exchange, Some(pause));
                job.retries += 1;
                job.rate_limited += 1;
                return self.schedule_retry(job, pause);
            }
            RateLimited::GiveUp => self.rules.policy.max_retries,
        };
        let state = PassState {
            origin: job.origin,
            retries,
            records: job.stored.batch.records().len(),
            probe: job.probe,
        };
        let next = decide(verdict, &state, &self.rules.policy, self.deps.clock.now(), self.random());
        self.follow(job, exchange, next).await;
    }

    async fn follow(&mut self, mut job: Job, exchange: &Exchange, next: NextAction) {
        match next {
            NextAction::Done { duplicate } => self.delivered(job, exchange, duplicate),
            NextAction::Retry(pause) => {
                self.log_error(&job, exchange, Some(pause));
                job.retries += 1;
                self.schedule_retry(job, pause);
            }
            NextAction::Spool { retry_count, not_before } => {
                self.log_error(&job, exchange, None);
                self.note_exhausted(&job);
                let error = self.describe(exchange);
                job.stored.note(self.deps.clock.now(), &error);
                job.stored.retry_count = retry_count;
                job.stored.not_before = not_before;
                self.spool(job);
            }
            NextAction::Exhausted { retry_count } => {
                self.log_error(&job, exchange, None);
                self.note_exhausted(&job);
                let error = self.describe(exchange);
                job.stored.note(self.deps.clock.now(), &error);
                job.stored.retry_count = retry_count;
                self.fail(job);
            }
            NextAction::Rejected => {
                self.log_error(&job, exchange, None);
                self.lane_works(job.probe);
                self.count_failed(job.origin);
                let error = self.describe(exchange);
                job.stored.note(self.deps.clock.now(), &error);
                self.fail(job);
            }
            NextAction::Ambiguous => {
                self.log_error(&job, exchange, None);
                self.lane_works(job.probe);
                self.count_failed(job.origin);
                let error = ambiguous(&job.stored.batch, &self.describe(exchange));
                job.stored.note(self.deps.clock.now(), &error);
                self.fail(job);
            }
            NextAction::Hold => {
                self.log_error(&job, exchange, None);
                self.hold(exchange);
                // The token changed while the request was under way: the next request has the new one.
                if job.token_changes != self.deps.transport.token().changes() {
                    self.lane.probe_now();
                }
                let error = self.describe(exchange);
                job.stored.note(self.deps.clock.now(), &error);
                self.count_failed(job.origin);
                self.return_to_spool(job);
            }
            NextAction::Split => {
                self.lane_works(job.probe);
                // Boxed, because the parts of a batch are sent by the same functions.
                Box::pin(self.split(job, exchange)).await;
            }
            NextAction::ByRecord(results) => {
                self.lane_works(job.probe);
                self.handle_results(job, exchange, &results);
            }
        }
    }

    fn judge(&self, job: &Job, exchange: &Exchange) -> Verdict {
        let context = BatchContext {
            records: job.stored.batch.records().len(),
            conflict: if job.stored.by_record { Conflict::Record } else { self.rules.conflict },
            tracks_records: match self.rules.envelope {
                Envelope::Plain => false,
                Envelope::ApiMeter { .. } => true,
            },
            history: &job.stored.history,
            timeout: self.rules.timeout,
            now: self.deps.clock.now(),
        };
        classify(exchange, &context, || self.has_receipt(&job.stored.batch))
    }

    /// Records the state of a request, in memory and in the log on disk.
    pub(super) fn note_request(&self, job: &mut Job, request: RequestState) {
        let now = self.deps.clock.now();
        if let Some(owned) = &job.owned {
            self.deps.store.note_request(owned, request, now);
        }
        if request != RequestState::Started {
            let before = job.stored.history.clone();
            job.stored.history.add(request, now);
            job.history_changed |= job.stored.history != before;
        }
    }

    fn record_metrics(&self, verdict: &Verdict, took: Duration) {
        let outcome = if matches!(verdict, Verdict::Delivered { .. }) { "delivered" } else { "failed" };
        metrics::histogram!("ichido_delivery_request_seconds", "outcome" => outcome)
            .record(took.as_secs_f64());
    }

    /// Probes the lane if the token has changed.
    pub(super) fn notice_new_token(&mut self) {
        let changes = self.deps.transport.token().changes();
        if changes != self.token_changes {
            self.token_changes = changes;
            self.lane.probe_now();
        }
    }

    /// A batch used up the retries of this pass.
    fn note_exhausted(&mut self, job: &Job) {
        self.count_failed(job.origin);
        if self.lane.exhausted(self.deps.clock.steady()) {
            tracing::warn!(
                origin = job.origin.as_str(),
                "several batches in a row failed; pausing until the receiver responds again"
            );
        }
    }

    /// The receiver responded as expected. If the lane was closed meanwhile, only a probe can show that it works again:
    /// other requests started before.
    pub(super) fn lane_works(&mut self, probe: bool) {
        if self.lane.is_closed() && !probe {
            return;
        }
        self.lane.succeeded();
        self.deps.notifier.lane_works();
    }

    fn hold(&mut self, exchange: &Exchange) {
        let reason = self.describe(exchange);
        self.hold_with_reason(&reason);
    }

    pub(super) fn hold_with_reason(&mut self, reason: &str) {
        let steady = self.deps.clock.steady();
        if self.lane.hold(reason, steady) {
            tracing::error!(reason, "the lane is held; nothing is sent until an operator acts");
            self.deps.notifier.held(reason);
        }
    }
}

/// The state of a request that did not deliver its batch.
fn state_after(exchange: &Exchange) -> RequestState {
    match exchange {
        Exchange::Responded(_) => RequestState::Settled,
        Exchange::Failed(transport_error) => match (transport_error.sent, transport_error.kind) {
            (BodySent::Partial, _) => RequestState::Settled,
            (BodySent::Complete, TransportErrorKind::Timeout) => RequestState::TimedOut,
            (BodySent::Complete, TransportErrorKind::Network | TransportErrorKind::Tls) => {
                RequestState::ResponseLost
            }
        },
    }
}

/// The message for the operator who must decide about a 409.
fn ambiguous(batch: &Batch, response: &str) -> String {
    let key = Some(batch.key_prefix()).filter(|key| !key.is_empty()).unwrap_or(batch.key());
    format!(
        "ambiguous conflict: the receiver responded with 409 without saying whether it has the whole batch. \
         If it does, run: ichido failed accept {key}. \
         If it tracks individual records, run: ichido failed resend --by-record {key}. \
         Set EXTERNAL_API_CONFLICT to batch or record to decide this for all batches. Response: {response}"
    )
}
