//! What callers, the writer and the housekeeper share.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use ichido_core::mark::{self, Mark};
use ichido_core::rules::{self, Change};
use ichido_core::{Claim, ClaimRequest, SteadyTime};

use super::cache::Cache;
use super::queue::Queue;
use super::tasks::Tasks;
use crate::log::View;
use crate::{Error, Kind, Result};

/// What callers, the writer and the housekeeper share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) dir: PathBuf,
    pub(super) time: SteadyTime,
    pub(super) cache: Cache,
    pub(super) queue: Queue,
    /// `None` while the store is being opened again, and after the end.
    pub(super) view: RwLock<Option<Arc<View>>>,
    pub(super) tasks: Tasks,
}

/// What a caller can find out by itself.
#[derive(Debug)]
pub(super) enum Look<T> {
    /// The answer, which depends only on what is durable.
    Answer(T),
    /// The writer must decide.
    Ask,
}

impl Shared {
    pub(super) fn view(&self) -> Option<Arc<View>> {
        self.view.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_view(&self, view: Option<Arc<View>>) {
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = view;
    }

    /// The view of an operator, who needs one.
    pub(super) fn require_view(&self) -> Result<Arc<View>> {
        self.view().ok_or_else(|| Error::new(Kind::Unavailable, "reading the file ledger"))
    }

    /// Answers a claim from the cache.
    pub(super) fn recall(&self, request: &ClaimRequest) -> Option<Claim> {
        let record = self.cache.get(request.key.index())?;
        let decision = rules::claim(Some(&record), request, self.time.now());
        (decision.change == Change::Keep).then_some(decision.result)
    }

    /// Answers a claim that needs no write.
    pub(super) fn look_claim(&self, request: &ClaimRequest) -> Result<Look<Claim>> {
        if let Some(answer) = self.recall(request) {
            return Ok(Look::Answer(answer));
        }
        let Some(view) = self.view() else { return Ok(Look::Ask) };
        let Some(found) = view.claim(&request.key.index())? else { return Ok(Look::Ask) };
        self.cache.keep(&found.record);
        let decision = rules::claim(Some(&found.record), request, self.time.now());
        Ok(match decision.change {
            Change::Keep => Look::Answer(decision.result),
            Change::Put(_) | Change::Remove => Look::Ask,
        })
    }

    /// Answers a mark that needs no write.
    pub(super) fn look_mark(&self, request: &mark::Request) -> Result<Look<Mark>> {
        let Some(view) = self.view() else { return Ok(Look::Ask) };
        let Some(found) = view.mark(&request.key.index())? else { return Ok(Look::Ask) };
        let decision = rules::mark(Some(&found.record), request, self.time.now());
        Ok(match decision.change {
            Change::Keep => Look::Answer(decision.result),
            Change::Put(_) | Change::Remove => Look::Ask,
        })
    }
}
