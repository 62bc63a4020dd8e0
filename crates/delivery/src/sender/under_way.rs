//! The requests that are under way: when one may start, and what follows when it ends.
//!
//! Requests overlap, but everything else happens in turn: the sender starts a request, or acts on the result of one. The
//! futures of the requests are part of the sender and not tasks of their own, so nothing runs when the sender does not:
//! who waits for something else with requests under way does so in [`Sender::work_until`].

use std::pin::pin;
use std::sync::PoisonError;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use futures_util::{FutureExt, future};
use ichido_core::Timestamp;

use crate::exchange::Exchange;
use crate::history::RequestState;
use crate::lane::Gate;
use crate::receipt;
use crate::time::iso;

use super::{GRACE, Job, Sender};

/// A request that ended.
#[derive(Debug)]
pub(super) struct Ended {
    number: u64,
    pub(super) job: Job,
    /// `None`: the process was asked to stop, and no response arrived within the grace period.
    pub(super) exchange: Option<Exchange>,
    /// How long it took.
    pub(super) took: Duration,
}

/// Whether a request may start.
enum Admission {
    /// It may.
    Now,
    /// It may, as a probe, if no other request is under way.
    Probe,
    /// Not before this time of the steady clock.
    At(Duration),
    /// The lane is closed.
    Closed,
    /// The process was asked to stop.
    Stopped,
}

impl Sender {
    /// Starts the request of a batch as soon as it may, and acts on the results of others meanwhile. Returns when it has
    /// started, or when the batch is back in the spool because the lane is closed or the process stops.
    ///
    /// A probe is the only request under way, and this waits for its result.
    pub(super) async fn start(&mut self, mut job: Job) {
        loop {
            self.wait_for_slot().await;
            if self.is_sending(&job) {
                self.act_on_next().await;
                continue;
            }
            match self.admission() {
                Admission::Now => {
                    job.probe = false;
                    self.begin(job);
                    return self.act_on_ready().await;
                }
                Admission::Probe if self.under_way() > 0 => self.act_on_next().await,
                Admission::Probe => {
                    job.probe = true;
                    self.begin(job);
                    return self.act_on_next().await;
                }
                Admission::At(until) => self.act_until(Some(until)).await,
                Admission::Closed | Admission::Stopped => return self.return_to_spool(job),
            }
        }
    }

    /// Makes one request and waits for its end, if the lane allows it. The results of others are acted on later.
    pub(super) async fn request(&mut self, mut job: Job) -> Result<Ended, Box<Job>> {
        loop {
            if self.is_sending(&job) {
                self.collect_until(None).await;
                continue;
            }
            match self.admission() {
                Admission::Now => break job.probe = false,
                Admission::Probe if !self.keys_under_way.is_empty() => self.collect_until(None).await,
                Admission::Probe => break job.probe = true,
                Admission::At(until) => self.collect_until(Some(until)).await,
                Admission::Closed | Admission::Stopped => return Err(Box::new(job)),
            }
        }
        let number = self.begin(job);
        loop {
            if let Some(at) = self.ended.iter().position(|ended| ended.number == number)
                && let Some(ended) = self.ended.remove(at)
            {
                return Ok(ended);
            }
            self.collect().await;
        }
    }

    /// Waits until another request may be under way.
    pub(super) async fn wait_for_slot(&mut self) {
        while self.under_way() >= self.rules.concurrency {
            self.act_on_next().await;
        }
    }

    /// Whether a request with the same key is under way. A receiver may check for a duplicate before it stores a batch, so
    /// the same key is never sent twice at once.
    fn is_sending(&self, job: &Job) -> bool {
        self.keys_under_way.iter().any(|key| key == job.stored.batch.key())
    }

    /// Number of requests that are under way, or ended and were not acted on.
    pub(super) fn under_way(&self) -> usize {
        self.keys_under_way.len() + self.ended.len()
    }

    /// Whether a request may start now.
    fn admission(&mut self) -> Admission {
        if self.deps.stop.is_cancelled() {
            return Admission::Stopped;
        }
        self.notice_new_token();
        let steady = self.deps.clock.steady();
        let gate = self.lane.gate(steady);
        match (gate, self.limiter.next_at()) {
            (Gate::Closed, _) => Admission::Closed,
            (Gate::Open | Gate::Probe, next_at) if next_at > steady => Admission::At(next_at),
            (Gate::Open, _) => Admission::Now,
            (Gate::Probe, _) => Admission::Probe,
        }
    }

    /// Starts a request, and returns its number.
    fn begin(&mut self, mut job: Job) -> u64 {
        if job.retries > 0 {
            self.counters.retries += 1;
            metrics::counter!("ichido_delivery_retries_total").increment(1);
        }
        let clock = self.deps.clock.clone();
        let (began, started) = (clock.now(), clock.steady());
        self.limiter.sent(started);
        (job.sent_at, job.token_changes) = (started, self.token_changes);
        self.note_request(&mut job, RequestState::Started);
        self.keys_under_way.push(job.stored.batch.key().to_owned());
        self.sequence += 1;
        let number = self.sequence;
        let (transport, stop) = (self.deps.transport.clone(), self.deps.stop.clone());
        self.requests().push(Box::pin(async move {
            let exchange = {
                let post = transport.post(&job.request);
                tokio::pin!(post);
                tokio::select! {
                    exchange = &mut post => Some(exchange),
                    // The pending request may still succeed. After the grace period, it may have been processed or
                    // still be in progress.
                    () = stop.cancelled() => tokio::time::timeout(GRACE, post).await.ok(),
                }
            };
            let took = clock.steady().saturating_sub(started);
            if let Some(exchange) = &exchange {
                job.attempts.push(attempt(exchange, began, took));
            }
            Ended { number, job, exchange, took }
        }));
        number
    }

    /// Waits for the next request to end, and acts on its result.
    pub(super) async fn act_on_next(&mut self) {
        if self.ended.is_empty() {
            self.collect().await;
        }
        if let Some(ended) = self.ended.pop_front() {
            self.act_on(ended).await;
        }
    }

    /// Acts on the next result, unless the time comes or the process is asked to stop before there is one.
    pub(super) async fn act_until(&mut self, until: Option<Duration>) {
        if self.ended.is_empty() {
            self.collect_until(until).await;
        }
        if let Some(ended) = self.ended.pop_front() {
            self.act_on(ended).await;
        }
    }

    /// Waits for all requests under way, and acts on their results.
    pub(super) async fn act_on_all(&mut self) {
        while self.under_way() > 0 {
            self.act_on_next().await;
        }
    }

    /// Lets the requests make progress without waiting, and acts on those that have ended.
    pub(super) async fn act_on_ready(&mut self) {
        while !self.keys_under_way.is_empty() && self.collect().now_or_never().is_some() {
            self.act_on_next().await;
        }
    }

    /// Waits for the next request to end, unless the time comes or the process is asked to stop before. Returns at once if
    /// there is nothing to wait for.
    async fn collect_until(&mut self, until: Option<Duration>) {
        let stop = self.deps.stop.clone();
        let pause = until.map(|until| until.saturating_sub(self.deps.clock.steady()));
        let sleep = async {
            match pause {
                // Timers have a resolution of one millisecond.
                Some(pause) => tokio::time::sleep(pause.max(Duration::from_millis(1))).await,
                None => future::pending().await,
            }
        };
        if pause.is_none() && self.keys_under_way.is_empty() {
            return;
        }
        let has_requests = !self.keys_under_way.is_empty();
        tokio::select! {
            () = self.collect(), if has_requests => {}
            () = sleep => {}
            () = stop.cancelled() => {}
        }
    }

    /// Waits for something else, and meanwhile acts on results and starts what is due.
    pub async fn work_until<T>(&mut self, event: impl Future<Output = T>) -> T {
        let mut event = pin!(event);
        loop {
            self.run_due().await;
            if let Some(ended) = self.ended.pop_front() {
                self.act_on(ended).await;
                continue;
            }
            let due = self.next_due();
            if self.deps.stop.is_cancelled() || (due.is_none() && self.under_way() == 0) {
                return event.await;
            }
            tokio::select! {
                biased;
                result = &mut event => return result,
                () = self.collect_until(due) => {}
            }
        }
    }

    fn requests(&mut self) -> &mut FuturesUnordered<BoxFuture<'static, Ended>> {
        self.requests.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next request to end, if one is under way.
    async fn collect(&mut self) {
        if let Some(ended) = self.requests().next().await {
            let key = ended.job.stored.batch.key();
            if let Some(at) = self.keys_under_way.iter().position(|known| known == key) {
                self.keys_under_way.swap_remove(at);
            }
            self.ended.push_back(ended);
        }
    }
}

fn attempt(exchange: &Exchange, began: Timestamp, took: Duration) -> receipt::Attempt {
    receipt::Attempt {
        at: iso(began),
        status: exchange.status(),
        error: exchange.status().is_none().then(|| exchange.error_kind()),
        latency_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
    }
}
