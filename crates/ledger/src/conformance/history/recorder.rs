//! The recorder: wraps a backend and records calls and results.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use ichido_core::mark::{self, Erased, Forgotten, Mark};
use ichido_core::{
    Adopted, Claim, ClaimRequest, Clock, Index, Key, MarkKey, Record, Resolution, Resolved, Settle, Settled,
    SystemClock, Token,
};

use super::operation::{ClaimAnswer, ClaimCall, ClaimOperation, End, History, MarkOperation, Operation};
use crate::{
    Backend, Capabilities, Effect, Maintain, MarkPage, MarkQuery, Page, Query, Result, Stats, Swept,
};

/// Records what clients ask of backends.
#[derive(Debug, Default)]
pub struct Recorder {
    clock: SystemClock,
    claims: Mutex<Log<ClaimCall, ClaimAnswer>>,
    marks: Mutex<Log<mark::Request, Mark>>,
}

/// A key's text and its operations. One that provably did not happen is replaced by `None`.
type OfKey<C, A> = (String, Vec<Option<Operation<C, A>>>);

/// The operations of each key.
struct Log<C, A>(HashMap<Index, OfKey<C, A>>);

impl<C, A> Default for Log<C, A> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<C, A> fmt::Debug for Log<C, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Log({} keys)", self.0.len())
    }
}

impl Recorder {
    /// Wraps a backend, recording every call as one of `client`.
    pub fn wrap(self: &Arc<Self>, client: usize, backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Recorded { recorder: self.clone(), client, backend })
    }

    /// What has been recorded so far.
    pub fn history(&self) -> History {
        History {
            claims: lock(&self.claims).0.values().map(named::<ClaimOperation>).collect(),
            marks: lock(&self.marks).0.values().map(named::<MarkOperation>).collect(),
        }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.clock.steady().as_micros()).unwrap_or(u64::MAX)
    }

    /// Starts an operation. It stays open until it is ended, for example if its future is dropped.
    fn ask<C, A>(&self, log: &Mutex<Log<C, A>>, client: usize, key: (Index, &str), call: C) -> usize {
        let mut log = lock(log);
        let (_, operations) = log.0.entry(key.0).or_insert_with(|| (key.1.to_owned(), Vec::new()));
        operations.push(Some(Operation { client, call, asked_us: self.now_us(), end: End::Open }));
        operations.len() - 1
    }

    fn end<C, A>(
        &self,
        log: &Mutex<Log<C, A>>,
        index: Index,
        position: usize,
        result: std::result::Result<A, Effect>,
    ) {
        let at_us = self.now_us();
        let mut log = lock(log);
        let Some((_, operations)) = log.0.get_mut(&index) else { return };
        match result {
            Err(Effect::Unknown) => {}
            Err(Effect::None) => operations[position] = None,
            Ok(answer) => {
                if let Some(operation) = &mut operations[position] {
                    operation.end = End::Answered { at_us, answer };
                }
            }
        }
    }
}

fn lock<T>(log: &Mutex<T>) -> MutexGuard<'_, T> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

fn named<O: Clone>((key, operations): &(String, Vec<Option<O>>)) -> (String, Vec<O>) {
    (key.clone(), operations.iter().flatten().cloned().collect())
}

#[derive(Debug)]
struct Recorded {
    recorder: Arc<Recorder>,
    client: usize,
    backend: Arc<dyn Backend>,
}

impl Recorded {
    async fn on_claim<T: Clone>(
        &self,
        key: &Key,
        call: ClaimCall,
        call_future: impl Future<Output = Result<T>>,
        answer: impl FnOnce(T) -> ClaimAnswer,
    ) -> Result<T> {
        let (recorder, log) = (&self.recorder, &self.recorder.claims);
        let position = recorder.ask(log, self.client, (key.index(), key.text()), call);
        let result = call_future.await;
        let result_or_effect =
            result.as_ref().map(|value| answer(value.clone())).map_err(|error| error.effect());
        recorder.end(log, key.index(), position, result_or_effect);
        result
    }
}

#[async_trait]
impl Backend for Recorded {
    fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim> {
        let call = ClaimCall::Claim(Box::new(request.clone()));
        self.on_claim(&request.key, call, self.backend.claim(request), ClaimAnswer::Claim).await
    }

    async fn settle(&self, key: &Key, token: Token, action: &Settle) -> Result<Settled> {
        let call = ClaimCall::Settle(token, action.clone());
        self.on_claim(key, call, self.backend.settle(key, token, action), ClaimAnswer::Settle).await
    }

    /// A batch is one operation on each of its keys: it is not atomic as a whole.
    async fn mark(&self, requests: &[mark::Request]) -> Result<Vec<Mark>> {
        let (recorder, log) = (&self.recorder, &self.recorder.marks);
        let ask = |request: &mark::Request| {
            recorder.ask(log, self.client, (request.key.index(), request.key.text()), request.clone())
        };
        let positions: Vec<usize> = requests.iter().map(ask).collect();
        let result = self.backend.mark(requests).await;
        for (number, (request, position)) in requests.iter().zip(positions).enumerate() {
            let result_or_effect =
                result.as_ref().map(|marks| marks[number].clone()).map_err(|error| error.effect());
            recorder.end(log, request.key.index(), position, result_or_effect);
        }
        result
    }

    async fn adopt(&self, record: &Record) -> Result<Adopted> {
        self.backend.adopt(record).await
    }
}

#[async_trait]
impl Maintain for Recorded {
    async fn init(&self) -> Result<()> {
        self.backend.init().await
    }

    async fn check(&self) -> Result<Vec<String>> {
        self.backend.check().await
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>> {
        let answer = |found: Option<Record>| ClaimAnswer::Get(found.map(Box::new));
        self.on_claim(key, ClaimCall::Get, self.backend.get(key), answer).await
    }

    async fn list(&self, query: &Query) -> Result<Page> {
        self.backend.list(query).await
    }

    async fn resolve(&self, key: &Key, resolution: &Resolution) -> Result<Resolved> {
        let call = ClaimCall::Resolve(resolution.clone());
        self.on_claim(key, call, self.backend.resolve(key, resolution), ClaimAnswer::Resolve).await
    }

    async fn get_mark(&self, key: &MarkKey) -> Result<Option<mark::Record>> {
        self.backend.get_mark(key).await
    }

    async fn list_marks(&self, query: &MarkQuery) -> Result<MarkPage> {
        self.backend.list_marks(query).await
    }

    async fn forget_mark(&self, seen: &mark::Record) -> Result<Forgotten> {
        self.backend.forget_mark(seen).await
    }

    async fn erase_mark(&self, seen: &mark::Record) -> Result<Erased> {
        self.backend.erase_mark(seen).await
    }

    async fn sweep(&self, limit: usize) -> Result<Swept> {
        self.backend.sweep(limit).await
    }

    async fn stats(&self) -> Result<Stats> {
        self.backend.stats().await
    }

    async fn close(&self) -> Result<()> {
        self.backend.close().await
    }
}
