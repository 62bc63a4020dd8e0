//! What callers and the writer share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use ichido_core::mark::{self, Mark};
use ichido_core::rules::{self, Change};
use ichido_core::{Claim, ClaimRequest, SteadyTime};

use super::cache::Cache;
use super::engine::Engine;
use super::openings::Openings;
use super::queue::Queue;
use super::view::{Found, View};
use crate::Result;

/// What callers and the writer share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) dir: PathBuf,
    pub(super) time: SteadyTime,
    pub(super) openings: Openings,
    pub(super) cache: Cache,
    pub(super) queue: Queue,
    /// Nothing while the engine is being opened again, and after the end.
    pub(super) engine: RwLock<Option<Arc<Engine>>>,
    /// The generation of the last commit that readers see in full.
    pub(super) published: AtomicU64,
    /// Held by the sweep that is under way: there is one at a time.
    pub(super) sweeping: Mutex<()>,
}

/// What a caller can find out by itself.
#[derive(Debug)]
pub(super) enum Look<T> {
    /// The answer; it rests on what is durable.
    Answer(T),
    /// The writer must decide. With the generation at which there was nothing under the key.
    Ask { absent_at: Option<u64> },
}

impl Shared {
    pub(super) fn engine(&self) -> Option<Arc<Engine>> {
        self.engine.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_engine(&self, engine: Option<Arc<Engine>>) {
        *self.engine.write().unwrap_or_else(PoisonError::into_inner) = engine;
    }

    pub(super) fn view<'a>(&'a self, engine: &'a Engine) -> View<'a> {
        View { dir: &self.dir, engine, openings: &self.openings }
    }

    /// Answers a claim from the cache.
    pub(super) fn recall(&self, request: &ClaimRequest) -> Option<Claim> {
        let record = self.cache.get(request.key.index())?;
        let step = rules::claim(Some(&record), request, self.time.now());
        (step.change == Change::Keep).then_some(step.result)
    }

    /// Answers a claim that needs no write.
    pub(super) fn look_claim(&self, request: &ClaimRequest) -> Result<Look<Claim>> {
        if let Some(answer) = self.recall(request) {
            return Ok(Look::Answer(answer));
        }
        let (now, index) = (self.time.now(), request.key.index());
        // Noted before the look, and before the engine is taken: whatever is committed in between is found by the writer,
        // and so is what another engine has that takes the place of this one.
        let generation = self.published.load(Ordering::Acquire);
        let Some(engine) = self.engine() else { return Ok(Look::Ask { absent_at: None }) };
        let record = match self.view(&engine).claim(&index)? {
            Found::Absent => return Ok(Look::Ask { absent_at: Some(generation) }),
            Found::Moving => return Ok(Look::Ask { absent_at: None }),
            Found::Fresh(granted) => granted.record,
            Found::Open(record) => record,
            Found::Done { record, .. } => {
                self.cache.keep(&record);
                record
            }
        };
        let step = rules::claim(Some(&record), request, now);
        Ok(match step.change {
            Change::Keep => Look::Answer(step.result),
            Change::Put(_) | Change::Remove => Look::Ask { absent_at: None },
        })
    }

    /// Answers a mark that needs no write.
    pub(super) fn look_mark(&self, request: &mark::Request) -> Result<Look<Mark>> {
        let now = self.time.now();
        let generation = self.published.load(Ordering::Acquire);
        let Some(engine) = self.engine() else { return Ok(Look::Ask { absent_at: None }) };
        let Some(record) = self.view(&engine).mark(&request.key.index())? else {
            return Ok(Look::Ask { absent_at: Some(generation) });
        };
        let step = rules::mark(Some(&record), request, now);
        Ok(match step.change {
            Change::Keep => Look::Answer(step.result),
            Change::Put(_) | Change::Remove => Look::Ask { absent_at: None },
        })
    }
}
