//! The receiver, and the way to it. It knows batches by their keys or records by their ids, and counts the records that it takes.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ichido_core::Clock;
use ichido_delivery::exchange::{BodySent, Exchange, Response, TransportError, TransportErrorKind};
use ichido_delivery::request::Request;
use ichido_delivery::token::{Source, Token};
use ichido_delivery::transport::Transport;
use serde_json::{Value, json};

use crate::faults::Life;

/// What the receiver does instead of what it should.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Says {
    /// It does what it should.
    Take,
    /// It takes the batch, and its answer is lost.
    TakeAndHangUp,
    /// It takes the batch, and the sender dies before it reads the answer.
    TakeAndDie,
    /// The sender dies before a byte is sent.
    Die,
    /// An answer without an effect.
    Status(u16),
    /// The same with `Retry-After` in seconds.
    RetryAfter(u16, u32),
    /// No answer within the deadline.
    Timeout,
    /// No answer within the deadline; in the end it takes the batch, or fails where it says that it is still at work.
    Slow { fails: bool },
    /// The connection breaks.
    HangUp,
    /// It cannot prove who it is.
    Tls,
    /// Every second record is to be sent again later, where it speaks of each.
    Half,
}

/// What the receiver recognises, and how it says so.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Knows {
    /// Batches, and a 409 says so.
    #[default]
    Batches,
    /// Batches, and a 409 says nothing.
    BatchesBare,
    /// Records: a batch with one that it knows is refused whole, by a 409 that says nothing.
    RecordsBare,
}

/// How long the receiver works on what timed out.
const SLOW: Duration = Duration::from_secs(100);

/// A request that the receiver is still at work on.
#[derive(Debug)]
struct Pending {
    key: String,
    ids: Vec<String>,
    until: Duration,
    fails: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Receiver(Mutex<Books>);

#[derive(Debug, Default)]
pub(crate) struct Books {
    pub(crate) keys: HashSet<String>,
    pub(crate) counts: BTreeMap<String, u32>,
    pub(crate) script: VecDeque<Says>,
    pub(crate) refused: BTreeSet<String>,
    pub(crate) most_records: usize,
    pub(crate) by_record: bool,
    pub(crate) knows: Knows,
    pending: Vec<Pending>,
    pub(crate) knows_token: bool,
    pub(crate) is_down: bool,
    /// Requests that are answered within a second of the steady clock; the others get 429.
    pub(crate) most_per_second: Option<usize>,
    /// When each request was answered with 429.
    pub(crate) limited: Vec<Duration>,
    /// When each request came, by the steady clock, and its first record.
    pub(crate) seen: Vec<(Duration, String)>,
}

impl Receiver {
    pub(crate) fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    /// Whether the last request is one more than may come within its second.
    fn is_one_too_many(&mut self) -> bool {
        let (Some(most), Some((now, _))) = (self.most_per_second, self.seen.last()) else { return false };
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

    fn takes(&mut self, key: &str, ids: &[String], half: bool) -> Response {
        if self.pending.iter().any(|pending| pending.key == key) {
            return match self.knows {
                Knows::BatchesBare => answer(409, String::new()),
                Knows::Batches | Knows::RecordsBare => {
                    answer(409, json!({"type": "/.well-known/idempotency/in-flight"}).to_string())
                }
            };
        }
        if self.by_record {
            return self.takes_each(ids, half);
        }
        let is_known = self.keys.contains(key);
        match self.knows {
            Knows::Batches if is_known => return answer(409, "duplicate batch detected".to_owned()),
            Knows::BatchesBare if is_known => return answer(409, String::new()),
            Knows::RecordsBare if ids.iter().any(|id| self.counts.contains_key(id)) => {
                return answer(409, String::new());
            }
            Knows::Batches | Knows::BatchesBare | Knows::RecordsBare => {}
        }
        if ids.len() > self.most_records {
            return answer(413, String::new());
        }
        if let Some(id) = ids.iter().find(|id| self.refused.contains(*id)) {
            return answer(422, format!("record {id}: no usage_date"));
        }
        self.keys.insert(key.to_owned());
        ids.iter().for_each(|id| *self.counts.entry(id.clone()).or_default() += 1);
        answer(201, String::new())
    }

    /// Begins to work on a request, and does not answer in time.
    fn begins(&mut self, key: &str, ids: &[String], fails: bool, now: Duration) {
        // Where a 409 says nothing, nobody could tell work that will fail from work that is done.
        let will_fail =
            fails || ids.len() > self.most_records || ids.iter().any(|id| self.refused.contains(id));
        let is_pending = self.pending.iter().any(|pending| pending.key == key);
        if is_pending || (will_fail && self.knows == Knows::BatchesBare) {
            return;
        }
        let (key, ids) = (key.to_owned(), ids.to_vec());
        self.pending.push(Pending { key, ids, until: now + SLOW, fails });
    }

    /// Finishes what it was at work on until now.
    pub(crate) fn settle(&mut self, now: Duration) {
        let (over, pending) =
            std::mem::take(&mut self.pending).into_iter().partition(|pending| pending.until <= now);
        self.pending = pending;
        let over: Vec<Pending> = over;
        for pending in over.into_iter().filter(|pending| !pending.fails) {
            self.takes(&pending.key, &pending.ids, false);
        }
    }

    fn takes_each(&mut self, ids: &[String], half: bool) -> Response {
        let result = |(place, id): (usize, &String)| match self.counts.contains_key(id) {
            true => json!({"status": "duplicate"}),
            false if self.refused.contains(id) => json!({"status": 422, "error": format!("record {id}: no")}),
            false if half && place % 2 == 1 => json!({"status": 503}),
            false => {
                self.counts.insert(id.clone(), 1);
                json!({"status": "inserted"})
            }
        };
        let results: Vec<Value> = ids.iter().enumerate().map(result).collect();
        answer(207, json!({ "results": results }).to_string())
    }
}

/// The way from one process to the receiver.
#[derive(Debug)]
pub(crate) struct Link {
    receiver: Arc<Receiver>,
    life: Arc<Life>,
    clock: Arc<dyn Clock>,
    token: Token,
}

impl Link {
    pub(crate) fn new(receiver: Arc<Receiver>, life: Arc<Life>, clock: Arc<dyn Clock>) -> Self {
        let token = Token::open(Source::Value("a-token".into())).unwrap();
        Self { receiver, life, clock, token }
    }
}

#[async_trait::async_trait]
impl Transport for Link {
    async fn post(&self, request: &Request) -> Exchange {
        let (key, ids) = read(request);
        let says = {
            let mut books = self.receiver.books();
            books.settle(self.clock.steady());
            books.seen.push((self.clock.steady(), ids[0].clone()));
            match books.script.pop_front().unwrap_or(Says::Take) {
                Says::Take | Says::Half if books.is_one_too_many() => Says::RetryAfter(429, 1),
                Says::Take | Says::Half if books.is_down => Says::Status(503),
                Says::Take | Says::Half if !books.knows_token => Says::Status(401),
                other => other,
            }
        };
        let transport_error =
            |kind, sent| Exchange::Failed(TransportError { kind, message: format!("{kind:?}"), sent });
        let take = |half| self.receiver.books().takes(&key, &ids, half);
        match says {
            Says::Take => Exchange::Responded(take(false)),
            Says::Half => Exchange::Responded(take(true)),
            Says::TakeAndHangUp => {
                take(false);
                transport_error(TransportErrorKind::Network, BodySent::Complete)
            }
            Says::TakeAndDie => {
                take(false);
                self.life.end()
            }
            Says::Die => self.life.end(),
            Says::Status(status) => Exchange::Responded(answer(status, String::new())),
            Says::RetryAfter(status, seconds) => {
                let retry_after = Some(seconds.to_string());
                Exchange::Responded(Response { retry_after, ..answer(status, String::new()) })
            }
            Says::Timeout => {
                tokio::time::sleep(Duration::from_secs(30)).await;
                transport_error(TransportErrorKind::Timeout, BodySent::Partial)
            }
            Says::Slow { fails } => {
                self.receiver.books().begins(&key, &ids, fails, self.clock.steady());
                tokio::time::sleep(Duration::from_secs(30)).await;
                transport_error(TransportErrorKind::Timeout, BodySent::Complete)
            }
            Says::HangUp => transport_error(TransportErrorKind::Network, BodySent::Partial),
            Says::Tls => transport_error(TransportErrorKind::Tls, BodySent::Partial),
        }
    }

    fn token(&self) -> &Token {
        &self.token
    }
}

fn answer(status: u16, body: String) -> Response {
    Response { status, body: body.into_bytes(), ..Response::default() }
}

fn read(request: &Request) -> (String, Vec<String>) {
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    let id = |record: &Value| record["source_event_id"].as_str().unwrap_or_default().to_owned();
    let ids = body["records"].as_array().unwrap().iter().map(id).collect();
    (request.key.clone(), ids)
}
