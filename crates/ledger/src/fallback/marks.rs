//! Marks, wherever they are answered.
//!
//! An answer that was lost is the difficult case: the caller's own mark may be in the primary, where others of this
//! instance see it.

use std::sync::Arc;

use ichido_core::mark::{self, Mark};
use ichido_core::{Index, Timestamp};

use super::state::Fallback;
use crate::{Backend, Effect, Error, Kind, Local as _, Marked, Result};

impl Fallback {
    pub(crate) async fn mark(self: &Arc<Self>, requests: &[mark::Request]) -> Result<Vec<Marked>> {
        let keys: Vec<Index> = requests.iter().map(|request| request.key.index()).collect();
        let mut perhaps_since = None;
        loop {
            let now = self.mirror.now();
            if let Some(asked) = self.ask_primary(&keys).await {
                match self.primary.mark(requests).await {
                    Ok(mut marks) => {
                        if perhaps_since.is_some() || self.owed().has_refused_mark(&keys) {
                            self.told_before(requests, &mut marks);
                        }
                        self.mirror_marks(requests, &marks).await;
                        return Ok(marks.into_iter().map(|mark| Marked { mark, degraded: false }).collect());
                    }
                    Err(error) if error.is_outage() => {
                        if error.effect() == Effect::Unknown {
                            perhaps_since.get_or_insert(now);
                        }
                        self.degrade(&error).await;
                    }
                    Err(error) => return Err(error),
                }
                drop(asked);
            }
            // The primary came back meanwhile, and was told everything: it is the one to ask.
            let Some(_mode) = self.local_turn(&keys).await else { continue };
            let mut marked = Vec::with_capacity(requests.len());
            for request in requests {
                let mark = self.mark_locally(request, perhaps_since).await?;
                marked.push(Marked { mark, degraded: true });
            }
            return Ok(marked);
        }
    }

    /// `perhaps_since`: from then on the caller's own mark may be in the primary, although it got no answer.
    async fn mark_locally(&self, request: &mark::Request, perhaps_since: Option<Timestamp>) -> Result<Mark> {
        if let Some(mark) = self.mirror.peek_mark(request)
            && !self.may_be_its_own(request, &mark, perhaps_since)
        {
            return Ok(mark);
        }
        let mark = self.local.mark(std::slice::from_ref(request)).await?.into_iter().next();
        let mark = mark.ok_or_else(|| Error::new(Kind::Closed, "marking locally"))?;
        if mark == Mark::New {
            self.owed().add_mark(request, self.store.now());
            self.count_owed();
        }
        Ok(mark)
    }

    /// Whether what others were told they had seen can have been the mark of this caller, whose answer was lost. Then
    /// nobody was told that it is new, and an event that all take for seen is lost: the worse of the two errors.
    fn may_be_its_own(&self, request: &mark::Request, mark: &Mark, perhaps_since: Option<Timestamp>) -> bool {
        let (Mark::Seen { first_seen, .. }, Some(since)) = (mark, perhaps_since) else { return false };
        let by_others = mark::Request { nonce: self.others, ..request.clone() };
        *first_seen >= since && self.mirror.peek_mark(&by_others) == Some(Mark::New)
    }

    /// Another caller was told here that the event is new, and the primary does not know it: it is not new again. (An
    /// answer was lost, and the other came while its caller waited; or the primary refused the mark at the handover.)
    fn told_before(&self, requests: &[mark::Request], marks: &mut [Mark]) {
        for (request, mark) in requests.iter().zip(marks) {
            let by_others = mark::Request { nonce: self.others, ..request.clone() };
            if *mark == Mark::New
                && let Some(told @ Mark::Seen { .. }) = self.mirror.peek_mark(request)
                && self.mirror.peek_mark(&by_others) != Some(Mark::New)
            {
                *mark = told;
            }
        }
    }

    /// What the primary called new stays new for the same nonce; what it had seen is seen for every nonce.
    async fn mirror_marks(&self, requests: &[mark::Request], marks: &[Mark]) {
        for (request, mark) in requests.iter().zip(marks) {
            // A full mirror forgets nothing and learns nothing more: best effort.
            let _ = match mark {
                Mark::New => self.mirror.put_mark(request),
                Mark::Seen { .. } => {
                    let by_others = mark::Request { nonce: self.others, ..request.clone() };
                    self.mirror.mark(&[by_others]).await.map(drop)
                }
            };
        }
    }
}
