//! Fallback: any primary ledger, and a local one for while it is out.
//!
//! In healthy times the primary answers, and what it answered is mirrored, so that a repeat is known during an outage
//! too. After an outage error the local ledger answers for a while (60 s), then one probe is made. On recovery the
//! marks that were made locally are put into the primary if absent; the primary wins, and conflicts are counted. A
//! claim is settled where it was granted; a completed one is written back; until then the local ledger is asked first.
//!
//! What must stay true: one instance never answers "new" or "granted" twice for one key. So a key whose question is on
//! its way to the primary is not answered locally until that question is settled ([`Asking`]), and the step from
//! degraded to healthy waits for local answers that are under way (the `mode` lock). Two instances may both answer
//! "new" while degraded: that is the price, and it is counted afterwards.

mod asking;
mod recovery;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ichido_core::mark::{self, Mark};
use ichido_core::{Claim, ClaimRequest, Index, Key, Nonce, Settle, Settled, Timestamp, Token};
use metrics::{Counter, Gauge, counter, gauge};
use tokio::sync::RwLock;

use self::asking::Asking;
use self::recovery::Owed;
use crate::guard::Guard;
use crate::memory::Memory;
use crate::{Backend, Claimed, Effect, Error, Marked, Result};

/// How a fallback behaves.
#[derive(Clone, Debug)]
pub struct FallbackSettings {
    /// How long the local ledger answers before the primary is tried again.
    pub pause: Duration,
    /// The most marks and claims that are mirrored in healthy times.
    pub mirror_bound: usize,
}

impl Default for FallbackSettings {
    fn default() -> Self {
        Self { pause: Duration::from_secs(60), mirror_bound: crate::memory::DEFAULT_BOUND / 2 }
    }
}

#[derive(Debug)]
pub(crate) struct Fallback {
    primary: Guard,
    local: Guard,
    /// What the primary answered to this instance; best effort, bounded.
    mirror: Memory,
    /// Stands in the mirror for whoever marked an event that the primary had seen.
    others: Nonce,
    pause: Duration,
    mode: RwLock<Mode>,
    asking: Asking,
    owed: Mutex<Owed>,
    /// Held while a claim that is owed is asked for or settled, so that none is granted here as its key is given up.
    owed_turn: tokio::sync::Mutex<()>,
    meters: Meters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Healthy,
    /// The local ledger answers; from `until` on (steady clock) one probe is made.
    Degraded {
        until: Duration,
        probing: bool,
    },
}

struct Meters {
    degraded: Gauge,
    outages: Counter,
    written_back: Counter,
    conflicts: Counter,
}

impl Fallback {
    pub(crate) fn new(primary: Guard, local: Guard, settings: FallbackSettings) -> Self {
        Self {
            mirror: Memory::new(primary.settings.clock.clone(), settings.mirror_bound),
            others: Nonce::draw(&*primary.settings.entropy),
            primary,
            local,
            pause: settings.pause,
            mode: RwLock::new(Mode::Healthy),
            asking: Asking::default(),
            owed: Mutex::default(),
            owed_turn: tokio::sync::Mutex::default(),
            meters: Meters::new(),
        }
    }

    pub(crate) async fn mark(self: &Arc<Self>, requests: &[mark::Request]) -> Result<Vec<Marked>> {
        let keys: Vec<Index> = requests.iter().map(|request| request.key.index()).collect();
        let mut perhaps_since = None;
        loop {
            let now = self.mirror.now();
            if let Some(asked) = self.ask_primary(&keys).await {
                match self.primary.mark(requests).await {
                    Ok(marks) => {
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

    pub(crate) async fn claim(self: &Arc<Self>, request: &ClaimRequest) -> Result<Claimed> {
        let index = request.key.index();
        loop {
            if let Some(claim) = self.claim_owed(request).await? {
                return Ok(Claimed { claim, degraded: true });
            }
            if let Some(asked) = self.ask_primary(&[index]).await {
                // Granted here just before the primary came back. From now on nobody is: `asked` is known to all.
                if self.owed().has_claim(index) {
                    continue;
                }
                match self.primary.claim(request).await {
                    Ok(claim) => {
                        if let Claim::Granted(grant) = &claim {
                            // Full or not, the primary has granted: the mirror is best effort.
                            let _ = self.mirror.put_grant(request, grant);
                        }
                        return Ok(Claimed { claim, degraded: false });
                    }
                    Err(error) if error.is_outage() => self.degrade(&error).await,
                    Err(error) => return Err(error),
                }
                drop(asked);
            }
            let Some(_mode) = self.local_turn(&[index]).await else { continue };
            if let Some(claim) = self.mirror.peek_claim(request) {
                return Ok(Claimed { claim, degraded: true });
            }
            let claim = self.local.claim(request).await?;
            if matches!(claim, Claim::Granted(_)) {
                self.owed().add_claim(&request.key);
            }
            return Ok(Claimed { claim, degraded: true });
        }
    }

    /// A claim on a key that was granted here, and of which the primary knows nothing yet.
    async fn claim_owed(&self, request: &ClaimRequest) -> Result<Option<Claim>> {
        if !self.owed().has_claim(request.key.index()) {
            return Ok(None);
        }
        let _turn = self.owed_turn.lock().await;
        if !self.owed().has_claim(request.key.index()) {
            return Ok(None);
        }
        self.local.claim(request).await.map(Some)
    }

    pub(crate) async fn settle(self: &Arc<Self>, key: &Key, token: Token, word: &Settle) -> Result<Settled> {
        if let Some(settled) = self.settle_owed(key, token, word).await? {
            return Ok(settled);
        }
        let settled = self.primary.settle(key, token, word).await?;
        if settled == Settled::Applied {
            let _ = self.mirror.settle(key, token, word).await;
        }
        Ok(settled)
    }

    async fn settle_owed(
        self: &Arc<Self>,
        key: &Key,
        token: Token,
        word: &Settle,
    ) -> Result<Option<Settled>> {
        if !self.owed().has_claim(key.index()) {
            return Ok(None);
        }
        let turn = self.owed_turn.lock().await;
        if !self.owed().has_claim(key.index()) {
            return Ok(None);
        }
        let settled = self.local.settle(key, token, word).await?;
        if settled == Settled::Applied && *word == Settle::Release {
            self.owed().remove_claim(key.index());
        }
        drop(turn);
        if settled == Settled::Applied && matches!(word, Settle::Complete(_)) {
            self.tell_if_healthy().await;
        }
        Ok(Some(settled))
    }

    /// In healthy times: leave to ask the primary, known to all others until it is dropped.
    async fn ask_primary(self: &Arc<Self>, keys: &[Index]) -> Option<asking::Asked<'_>> {
        let mode = self.mode.read().await;
        match *mode {
            Mode::Healthy => Some(self.asking.begin(keys)),
            Mode::Degraded { until, probing } => {
                drop(mode);
                if !probing && self.now() >= until {
                    self.probe();
                }
                None
            }
        }
    }

    /// Waits until nobody asks the primary for these keys, then keeps the mode from changing. None if the primary is
    /// back: what is answered here from then on, it would never be told.
    async fn local_turn(&self, keys: &[Index]) -> Option<tokio::sync::RwLockReadGuard<'_, Mode>> {
        loop {
            let answered = self.asking.answered();
            let mode = self.mode.read().await;
            if *mode == Mode::Healthy {
                return None;
            }
            if !self.asking.any(keys) {
                return Some(mode);
            }
            drop(mode);
            answered.await;
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
        let mark = mark.ok_or_else(|| Error::new(crate::Kind::Closed, "marking locally"))?;
        if mark == Mark::New {
            self.owed().add_mark(request, self.primary.settings.clock.now());
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

    async fn degrade(&self, error: &Error) {
        let mut mode = self.mode.write().await;
        if *mode == Mode::Healthy {
            tracing::error!(%error, pause_seconds = self.pause.as_secs(), "the ledger is out; answering from the local one");
            self.meters.outages.increment(1);
            self.meters.degraded.set(1.0);
            *mode = Mode::Degraded { until: self.now() + self.pause, probing: false };
        }
    }

    fn now(&self) -> Duration {
        self.primary.settings.clock.steady()
    }

    fn owed(&self) -> MutexGuard<'_, Owed> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Meters {
    fn new() -> Self {
        Self {
            degraded: gauge!("ichido_ledger_degraded"),
            outages: counter!("ichido_ledger_outages_total"),
            written_back: counter!("ichido_ledger_written_back_total"),
            conflicts: counter!("ichido_ledger_conflicts_total"),
        }
    }
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meters")
    }
}
