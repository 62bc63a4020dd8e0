//! Marks during and after an outage.
//!
//! A lost reply is the difficult case: the caller's own mark may be in the primary, where other callers of this
//! instance see it.

use std::sync::Arc;

use ichido_core::mark::{self, Mark};
use ichido_core::{Index, Timestamp};

use super::state::Fallback;
use crate::{Backend, Effect, Error, Kind, LocalBackend as _, Marked, Result};

impl Fallback {
    pub(crate) async fn mark(self: &Arc<Self>, requests: &[mark::Request]) -> Result<Vec<Marked>> {
        let keys: Vec<Index> = requests.iter().map(|request| request.key.index()).collect();
        let mut maybe_marked_since = None;
        loop {
            let now = self.mirror.now();
            if let Some(call) = self.begin_primary_call(&keys).await {
                match self.primary.mark(requests).await {
                    Ok(mut marks) => {
                        if maybe_marked_since.is_some() || self.pending().has_refused_mark(&keys) {
                            self.keep_local_marks_seen(requests, &mut marks);
                        }
                        self.mirror_marks(requests, &marks).await;
                        return Ok(marks.into_iter().map(|mark| Marked { mark, degraded: false }).collect());
                    }
                    Err(error) if error.is_outage() => {
                        if error.effect() == Effect::Unknown {
                            maybe_marked_since.get_or_insert(now);
                        }
                        self.degrade(&error).await;
                    }
                    Err(error) => return Err(error),
                }
                drop(call);
            }
            // The primary came back meanwhile and has everything: ask it.
            let Some(_mode) = self.wait_for_local_turn(&keys).await else { continue };
            let mut marked = Vec::with_capacity(requests.len());
            for request in requests {
                let mark = self.mark_locally(request, maybe_marked_since).await?;
                marked.push(Marked { mark, degraded: true });
            }
            return Ok(marked);
        }
    }

    /// From `maybe_marked_since` on, the caller's own mark may be in the primary, although its reply was lost.
    async fn mark_locally(
        &self,
        request: &mark::Request,
        maybe_marked_since: Option<Timestamp>,
    ) -> Result<Mark> {
        if let Some(mark) = self.mirror.peek_mark(request)
            && !self.may_be_own_mark(request, &mark, maybe_marked_since)
        {
            return Ok(mark);
        }
        let mark = self.local.mark(std::slice::from_ref(request)).await?.into_iter().next();
        let mark = mark.ok_or_else(|| Error::new(Kind::Closed, "marking locally"))?;
        if mark == Mark::New {
            self.pending().add_mark(request, self.store.now());
            self.count_pending();
        }
        Ok(mark)
    }

    /// Whether the mark that others saw may be this caller's own, whose reply was lost. In that case nobody was
    /// told that the event is new. An event that everybody takes for seen is lost, which is worse than a duplicate.
    fn may_be_own_mark(
        &self,
        request: &mark::Request,
        mark: &Mark,
        maybe_marked_since: Option<Timestamp>,
    ) -> bool {
        let (Mark::Seen { first_seen, .. }, Some(since)) = (mark, maybe_marked_since) else { return false };
        let by_others = mark::Request { nonce: self.foreign_nonce, ..request.clone() };
        *first_seen >= since && self.mirror.peek_mark(&by_others) == Some(Mark::New)
    }

    /// Keeps events as seen that this instance has already reported as new, although the primary does not know
    /// them. That happens if another caller came while this one waited for a lost reply, or if the primary refused
    /// the mark's handover.
    fn keep_local_marks_seen(&self, requests: &[mark::Request], marks: &mut [Mark]) {
        for (request, mark) in requests.iter().zip(marks) {
            let by_others = mark::Request { nonce: self.foreign_nonce, ..request.clone() };
            if *mark == Mark::New
                && let Some(handed_over @ Mark::Seen { .. }) = self.mirror.peek_mark(request)
                && self.mirror.peek_mark(&by_others) != Some(Mark::New)
            {
                *mark = handed_over;
            }
        }
    }

    /// What the primary reported as new stays new for the same nonce; what it had seen is seen for every nonce.
    async fn mirror_marks(&self, requests: &[mark::Request], marks: &[Mark]) {
        for (request, mark) in requests.iter().zip(marks) {
            // A full mirror keeps what it has and learns nothing more: it is best effort.
            let _ = match mark {
                Mark::New => self.mirror.put_mark(request),
                Mark::Seen { .. } => {
                    let by_others = mark::Request { nonce: self.foreign_nonce, ..request.clone() };
                    self.mirror.mark(&[by_others]).await.map(drop)
                }
            };
        }
    }
}
