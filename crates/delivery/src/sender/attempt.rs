//! One try of a batch, and what follows from it.

use std::time::Duration;

use crate::batch::Batch;
use crate::conflict::Conflict;
use crate::exchange::{Exchange, Sent, TroubleKind};
use crate::history::Request;
use crate::lane::Gate;
use crate::next_action::{Next, Standing, step};
use crate::receipt;
use crate::request::Envelope;
use crate::time::iso;
use crate::verdict::{Situation, Verdict, classify};

use super::rate_limit::Slowed;
use super::{GRACE, Job, Sender};

/// What one request brought.
pub(super) enum Tried {
    /// An end to the exchange, and what it means.
    Ended(Exchange, Verdict),
    /// Nothing may go now.
    Shut,
    /// The process is asked to end.
    Stopped,
}

impl Sender {
    /// Tries a batch once, and does what follows.
    pub(super) async fn attempt(&mut self, mut job: Job) {
        match self.request(&mut job).await {
            Tried::Ended(exchange, verdict) => self.proceed(job, &exchange, verdict).await,
            Tried::Shut | Tried::Stopped => self.keep(job),
        }
    }

    /// Does what follows from an answer, or from none.
    pub(super) async fn proceed(&mut self, mut job: Job, exchange: &Exchange, verdict: Verdict) {
        let retries = match self.slow_down(&job, exchange) {
            Slowed::No => job.retries - job.slowed,
            Slowed::Wait(pause) => {
                self.log_error(&job, exchange, Some(pause));
                job.retries += 1;
                job.slowed += 1;
                return self.wait(job, pause);
            }
            Slowed::GiveUp => self.rules.policy.max_retries,
        };
        let standing = Standing {
            origin: job.origin,
            retries,
            records: job.stored.batch.records().len(),
            probe: job.probe,
        };
        let next = step(verdict, &standing, &self.rules.policy, self.parts.clock.now(), self.chance());
        self.follow(job, exchange, next).await;
    }

    async fn follow(&mut self, mut job: Job, exchange: &Exchange, next: Next) {
        match next {
            Next::Done { duplicate } => self.arrived(job, exchange, duplicate),
            Next::Again(pause) => {
                self.log_error(&job, exchange, Some(pause));
                job.retries += 1;
                self.wait(job, pause);
            }
            Next::Spool { retry_count, not_before } => {
                self.log_error(&job, exchange, None);
                self.gave_up(&job);
                let error = self.words(exchange);
                job.stored.note(self.parts.clock.now(), &error);
                job.stored.retry_count = retry_count;
                job.stored.not_before = not_before;
                self.park(job);
            }
            Next::Exhausted { retry_count } => {
                self.log_error(&job, exchange, None);
                self.gave_up(&job);
                let error = self.words(exchange);
                job.stored.note(self.parts.clock.now(), &error);
                job.stored.retry_count = retry_count;
                self.fail(job);
            }
            Next::Refused => {
                self.log_error(&job, exchange, None);
                self.lane_works();
                self.count_failed(job.origin);
                let error = self.words(exchange);
                job.stored.note(self.parts.clock.now(), &error);
                self.fail(job);
            }
            Next::Ambiguous => {
                self.log_error(&job, exchange, None);
                self.lane_works();
                self.count_failed(job.origin);
                let error = ambiguous(&job.stored.batch, &self.words(exchange));
                job.stored.note(self.parts.clock.now(), &error);
                self.fail(job);
            }
            Next::Hold => {
                self.log_error(&job, exchange, None);
                self.hold(exchange);
                let error = self.words(exchange);
                job.stored.note(self.parts.clock.now(), &error);
                self.count_failed(job.origin);
                self.keep(job);
            }
            Next::Split => {
                self.lane_works();
                // Boxed: the parts of a batch are sent by the same functions.
                Box::pin(self.split(job, exchange)).await;
            }
            Next::Sort(fates) => {
                self.lane_works();
                self.sort(job, exchange, &fates);
            }
        }
    }

    /// Makes one request, if the lane lets it through.
    pub(super) async fn request(&mut self, job: &mut Job) -> Tried {
        self.notice_new_token();
        job.probe = match self.lane.gate(self.parts.clock.steady()) {
            Gate::Open => false,
            Gate::Probe => true,
            Gate::Shut => return Tried::Shut,
        };
        tokio::select! {
            () = self.turn_comes() => {}
            () = self.parts.stop.cancelled() => return Tried::Stopped,
        }
        if job.retries > 0 {
            self.counters.retries += 1;
            metrics::counter!("ichido_delivery_retries_total").increment(1);
        }
        let (began, started) = (self.parts.clock.now(), self.parts.clock.steady());
        self.pace.sent(started);
        self.note_request(job, Request::Begun);
        let Some(exchange) = self.exchange(job).await else {
            self.note_request(job, Request::TimedOut);
            return Tried::Stopped;
        };
        let took = self.parts.clock.steady().saturating_sub(started);
        job.attempts.push(receipt::Attempt {
            at: iso(began),
            status: exchange.status(),
            error: exchange.status().is_none().then(|| exchange.error_kind()),
            latency_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        });
        let verdict = self.judge(job, &exchange);
        self.observe(&verdict, took);
        if !matches!(verdict, Verdict::Delivered { .. }) {
            self.note_request(job, became(&exchange));
        }
        Tried::Ended(exchange, verdict)
    }

    /// Makes the request itself. `None`: the process was asked to end, and the answer did not come within the grace.
    async fn exchange(&self, job: &Job) -> Option<Exchange> {
        let post = self.parts.transport.post(&job.request);
        tokio::pin!(post);
        tokio::select! {
            exchange = &mut post => Some(exchange),
            // What is under way may still end well; beyond that it may have arrived, or may still be processed.
            () = self.parts.stop.cancelled() => tokio::time::timeout(GRACE, post).await.ok(),
        }
    }

    fn judge(&self, job: &Job, exchange: &Exchange) -> Verdict {
        let situation = Situation {
            records: job.stored.batch.records().len(),
            conflict: if job.stored.by_record { Conflict::Record } else { self.rules.conflict },
            knows_records: match self.rules.envelope {
                Envelope::Plain => false,
                Envelope::ApiMeter { .. } => true,
            },
            history: &job.stored.history,
            timeout: self.rules.timeout,
            now: self.parts.clock.now(),
        };
        classify(exchange, &situation, || self.has_receipt(&job.stored.batch))
    }

    /// Remembers what became of a request, on disk for whoever comes after this process.
    fn note_request(&self, job: &mut Job, request: Request) {
        let now = self.parts.clock.now();
        if let Some(held) = &job.held {
            self.parts.store.note_request(held, request, now);
        }
        if request != Request::Begun {
            let before = job.stored.history.clone();
            job.stored.history.add(request, now);
            job.has_news |= job.stored.history != before;
        }
    }

    fn observe(&self, verdict: &Verdict, took: Duration) {
        let outcome = if matches!(verdict, Verdict::Delivered { .. }) { "delivered" } else { "failed" };
        metrics::histogram!("ichido_delivery_request_seconds", "outcome" => outcome)
            .record(took.as_secs_f64());
    }

    /// A lane that is held for a token is worth another look when there is a new one.
    pub(super) fn notice_new_token(&mut self) {
        let changes = self.parts.transport.token().changes();
        if changes != self.token_changes {
            self.token_changes = changes;
            self.lane.look_again();
        }
    }

    /// A batch failed all its tries of this pass.
    fn gave_up(&mut self, job: &Job) {
        self.count_failed(job.origin);
        if self.lane.exhausted(self.parts.clock.steady()) {
            tracing::warn!(
                origin = job.origin.word(),
                "several batches in a row failed: the rest waits until the receiver answers again"
            );
        }
    }

    /// The receiver answered sensibly.
    pub(super) fn lane_works(&mut self) {
        self.lane.succeeded();
        self.parts.alarm.lane_works();
    }

    fn hold(&mut self, exchange: &Exchange) {
        let reason = self.words(exchange);
        self.hold_for(&reason);
    }

    pub(super) fn hold_for(&mut self, reason: &str) {
        let steady = self.parts.clock.steady();
        if self.lane.hold(reason, steady) {
            tracing::error!(reason, "the lane is held: nothing is sent until someone acts");
            self.parts.alarm.held(reason);
        }
    }
}

/// What became of a request that did not deliver its batch.
fn became(exchange: &Exchange) -> Request {
    match exchange {
        Exchange::Answered(_) => Request::Settled,
        Exchange::Failed(trouble) => match (trouble.sent, trouble.kind) {
            (Sent::NotAll, _) => Request::Settled,
            (Sent::All, TroubleKind::Timeout) => Request::TimedOut,
            (Sent::All, TroubleKind::Network | TroubleKind::Tls) => Request::AnswerLost,
        },
    }
}

/// The message for the operator who has to decide about a 409.
fn ambiguous(batch: &Batch, words: &str) -> String {
    let key = Some(batch.short_key()).filter(|key| !key.is_empty()).unwrap_or(batch.key());
    format!(
        "ambiguous conflict: the receiver answered 409 and did not say whether it has the whole batch. If it has: ichido \
         failed accept {key}. If it knows single records: ichido failed resend --by-record {key}. Set \
         EXTERNAL_API_CONFLICT to batch or record to decide it for all batches. Answer: {words}"
    )
}
