//! A simulated receiver, and the transport to it. It deduplicates batches or records, and counts the records it
//! accepts.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ichido_core::Clock;
use ichido_delivery::exchange::{BodySent, Exchange, Response, TransportError, TransportErrorKind};
use ichido_delivery::request::Request;
use ichido_delivery::token::{Source, Token};
use ichido_delivery::transport::Transport;
use serde_json::{Value, json};

use super::faults::FaultInjector;

/// How the receiver behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Behavior {
    /// It behaves normally.
    Accept,
    /// It accepts the batch, and its response is lost.
    AcceptAndDisconnect,
    /// It accepts the batch, and the sender crashes before it reads the response.
    AcceptAndCrash,
    /// The sender crashes before a byte is sent.
    Crash,
    /// It responds with a status, without any effect.
    Status(u16),
    /// The same, with `Retry-After` in seconds.
    RetryAfter(u16, u32),
    /// It does not respond before the timeout.
    Timeout,
    /// It does not respond before the timeout. Later it accepts the batch, or fails if it reports requests in progress.
    Slow { fails: bool },
    /// The connection breaks.
    Disconnect,
    /// Its certificate is not accepted.
    Tls,
    /// If it returns results for each record, every second one is to be retried.
    Half,
}

/// What the receiver deduplicates, and how it behavior so.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Dedup {
    /// Batches, and the 409 behavior so.
    #[default]
    Batches,
    /// Batches, with a bare 409.
    BatchesBare,
    /// Records: a batch with a duplicate is rejected as a whole, with a bare 409.
    RecordsBare,
}

/// How long the receiver processes a request that timed out.
const SLOW: Duration = Duration::from_secs(100);

/// A request that the receiver is still processing.
#[derive(Debug)]
struct Pending {
    key: String,
    ids: Vec<String>,
    until: Duration,
    fails: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Receiver(Mutex<State>);

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) keys: HashSet<String>,
    pub(crate) counts: BTreeMap<String, u32>,
    pub(crate) script: VecDeque<Behavior>,
    pub(crate) rejected: BTreeSet<String>,
    pub(crate) records_max: usize,
    pub(crate) by_record: bool,
    pub(crate) dedup: Dedup,
    pending: Vec<Pending>,
    pub(crate) accepts_token: bool,
    pub(crate) is_down: bool,
    /// The most requests that are accepted per second of the steady clock. The others get a 429.
    pub(crate) requests_per_second_max: Option<usize>,
    /// When each request was answered with a 429.
    pub(crate) limited: Vec<Duration>,
    /// When each request arrived, by the steady clock, and its first record.
    pub(crate) seen: Vec<(Duration, String)>,
    /// How long after a request its response arrives.
    pub(crate) latency: Duration,
    /// The most requests of one process that were under way.
    pub(crate) most_under_way: usize,
}

impl Receiver {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether the last request exceeds the limit of its second.
    fn exceeds_rate(&mut self) -> bool {
        let (Some(most), Some((now, _))) = (self.requests_per_second_max, self.seen.last()) else {
            return false;
        };
        let now = *now;
        let second = |at: &Duration| at.as_secs() == now.as_secs();
        let asked = self.seen.iter().rev().take_while(|(at, _)| second(at)).count();
        let refused = self.limited.iter().rev().take_while(|at| second(at)).count();
        let is_one = asked - refused > most;
        if is_one {
            self.limited.push(now);
        }
        is_one
    }

    fn accept(&mut self, key: &str, ids: &[String], half: bool) -> Response {
        if self.pending.iter().any(|pending| pending.key == key) {
            return match self.dedup {
                Dedup::BatchesBare => response(409, String::new()),
                Dedup::Batches | Dedup::RecordsBare => {
                    response(409, json!({"type": "/.well-known/idempotency/in-flight"}).to_string())
                }
            };
        }
        if self.by_record {
            return self.accept_each(ids, half);
        }
        let is_known = self.keys.contains(key);
        match self.dedup {
            Dedup::Batches if is_known => return response(409, "duplicate batch detected".to_owned()),
            Dedup::BatchesBare if is_known => return response(409, String::new()),
            Dedup::RecordsBare if ids.iter().any(|id| self.counts.contains_key(id)) => {
                return response(409, String::new());
            }
            Dedup::Batches | Dedup::BatchesBare | Dedup::RecordsBare => {}
        }
        if ids.len() > self.records_max {
            return response(413, String::new());
        }
        if let Some(id) = ids.iter().find(|id| self.rejected.contains(*id)) {
            return response(422, format!("record {id}: no usage_date"));
        }
        self.keys.insert(key.to_owned());
        ids.iter().for_each(|id| *self.counts.entry(id.clone()).or_default() += 1);
        response(201, String::new())
    }

    /// Starts to process a request, without a response before the timeout.
    fn start_processing(&mut self, key: &str, ids: &[String], fails: bool, now: Duration) {
        // With a bare 409, nobody could distinguish a request that will fail from one that is done.
        let will_fail =
            fails || ids.len() > self.records_max || ids.iter().any(|id| self.rejected.contains(id));
        let is_pending = self.pending.iter().any(|pending| pending.key == key);
        if is_pending || (will_fail && self.dedup == Dedup::BatchesBare) {
            return;
        }
        let (key, ids) = (key.to_owned(), ids.to_vec());
        self.pending.push(Pending { key, ids, until: now + SLOW, fails });
    }

    /// Completes the requests that are due.
    pub(crate) fn settle(&mut self, now: Duration) {
        let (over, pending) =
            std::mem::take(&mut self.pending).into_iter().partition(|pending| pending.until <= now);
        self.pending = pending;
        let over: Vec<Pending> = over;
        for pending in over.into_iter().filter(|pending| !pending.fails) {
            self.accept(&pending.key, &pending.ids, false);
        }
    }

    fn accept_each(&mut self, ids: &[String], half: bool) -> Response {
        let result = |(index, id): (usize, &String)| match self.counts.contains_key(id) {
            true => json!({"status": "duplicate"}),
            false if self.rejected.contains(id) => {
                json!({"status": 422, "error": format!("record {id}: no")})
            }
            false if half && index % 2 == 1 => json!({"status": 503}),
            false => {
                self.counts.insert(id.clone(), 1);
                json!({"status": "inserted"})
            }
        };
        let results: Vec<Value> = ids.iter().enumerate().map(result).collect();
        response(207, json!({ "results": results }).to_string())
    }
}

/// The transport from one process to the receiver.
#[derive(Debug)]
pub(crate) struct SimulatedTransport {
    receiver: Arc<Receiver>,
    injector: Arc<FaultInjector>,
    clock: Arc<dyn Clock>,
    token: Token,
    concurrency: usize,
    /// The keys of the requests under way.
    under_way: Mutex<Vec<String>>,
}

impl SimulatedTransport {
    pub(crate) fn new(
        receiver: Arc<Receiver>,
        injector: Arc<FaultInjector>,
        clock: Arc<dyn Clock>,
        concurrency: usize,
    ) -> Self {
        let token = Token::open(Source::Value("a-token".into())).unwrap();
        Self { receiver, injector, clock, token, concurrency, under_way: Mutex::default() }
    }

    fn under_way(&self) -> MutexGuard<'_, Vec<String>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait::async_trait]
impl Transport for SimulatedTransport {
    async fn post(&self, request: &Request) -> Exchange {
        {
            let mut under_way = self.under_way();
            assert!(!under_way.contains(&request.key), "{} is under way twice", request.key);
            under_way.push(request.key.clone());
            assert!(under_way.len() <= self.concurrency, "{under_way:?}");
            let mut state = self.receiver.state();
            state.most_under_way = state.most_under_way.max(under_way.len());
        }
        let exchange = self.exchange(request).await;
        self.under_way().retain(|key| *key != request.key);
        exchange
    }

    fn token(&self) -> &Token {
        &self.token
    }
}

impl SimulatedTransport {
    async fn exchange(&self, request: &Request) -> Exchange {
        let (key, ids) = read(request);
        let behavior = {
            let mut state = self.receiver.state();
            state.settle(self.clock.steady());
            state.seen.push((self.clock.steady(), ids[0].clone()));
            match state.script.pop_front().unwrap_or(Behavior::Accept) {
                Behavior::Accept | Behavior::Half if state.exceeds_rate() => Behavior::RetryAfter(429, 1),
                Behavior::Accept | Behavior::Half if state.is_down => Behavior::Status(503),
                Behavior::Accept | Behavior::Half if !state.accepts_token => Behavior::Status(401),
                other => other,
            }
        };
        let transport_error =
            |kind, sent| Exchange::Failed(TransportError { kind, message: format!("{kind:?}"), sent });
        let take = |half| self.receiver.state().accept(&key, &ids, half);
        let latency = self.receiver.state().latency;
        let respond = async || {
            if !latency.is_zero() {
                tokio::time::sleep(latency).await;
            }
        };
        match behavior {
            Behavior::Accept | Behavior::Half => {
                let response = take(behavior == Behavior::Half);
                respond().await;
                Exchange::Responded(response)
            }
            Behavior::AcceptAndDisconnect => {
                take(false);
                respond().await;
                transport_error(TransportErrorKind::Network, BodySent::Complete)
            }
            Behavior::AcceptAndCrash => {
                take(false);
                respond().await;
                self.injector.crash()
            }
            Behavior::Crash => self.injector.crash(),
            Behavior::Status(status) => {
                respond().await;
                Exchange::Responded(response(status, String::new()))
            }
            Behavior::RetryAfter(status, seconds) => {
                respond().await;
                let retry_after = Some(seconds.to_string());
                Exchange::Responded(Response { retry_after, ..response(status, String::new()) })
            }
            Behavior::Timeout => {
                tokio::time::sleep(Duration::from_secs(30)).await;
                transport_error(TransportErrorKind::Timeout, BodySent::Partial)
            }
            Behavior::Slow { fails } => {
                self.receiver.state().start_processing(&key, &ids, fails, self.clock.steady());
                tokio::time::sleep(Duration::from_secs(30)).await;
                transport_error(TransportErrorKind::Timeout, BodySent::Complete)
            }
            Behavior::Disconnect => transport_error(TransportErrorKind::Network, BodySent::Partial),
            Behavior::Tls => transport_error(TransportErrorKind::Tls, BodySent::Partial),
        }
    }
}

fn response(status: u16, body: String) -> Response {
    Response { status, body: body.into_bytes(), ..Response::default() }
}

fn read(request: &Request) -> (String, Vec<String>) {
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    let id = |record: &Value| record["source_event_id"].as_str().unwrap_or_default().to_owned();
    let ids = body["records"].as_array().unwrap().iter().map(id).collect();
    (request.key.clone(), ids)
}
