//! A pass over what waits: oldest first.

use std::io;
use std::time::Duration;

use ichido_core::Timestamp;

use crate::lane::Gate;
use crate::next_action::Origin;
use crate::store::{self, Listed, Place};

use super::{Error, Sender};

/// Names that are looked at in one reading of the directory. Memory is bounded by it, not by the spool.
const AT_ONCE: usize = 10_000;

/// Which batches are tried.
#[derive(Clone, Debug)]
pub struct Pick {
    /// Where they lie.
    pub place: Place,
    /// Only batches whose key begins so.
    pub keys: Vec<String>,
    /// Whatever `notBefore` or the lane says.
    pub force: bool,
    /// The receiver knows single records: a 409 is narrowed down by record, whatever `EXTERNAL_API_CONFLICT` says.
    pub by_record: bool,
    /// Only what lies after this one: where an earlier pass was interrupted.
    pub after: Option<Listed>,
    /// After so long no other batch is begun.
    pub patience: Option<Duration>,
}

/// What a pass did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Batches that were tried.
    pub taken: u64,
    /// Where it ended for want of patience.
    pub interrupted: Option<Listed>,
    /// It ended before everything was tried, because nothing may be sent for now.
    pub shut: bool,
}

impl Pick {
    /// Everything in the spool that is due.
    pub fn due() -> Self {
        Self::of(Place::Spool, Vec::new(), false)
    }

    /// Everything, or what has these keys, in one place.
    pub fn of(place: Place, keys: Vec<String>, force: bool) -> Self {
        Self { place, keys, force, by_record: false, after: None, patience: None }
    }

    /// Whether a file may be meant, by its name.
    pub fn may_mean(&self, listed: &Listed) -> bool {
        let name = listed.name.key.as_str();
        self.keys.is_empty()
            || self.keys.iter().any(|key| key.starts_with(name) || name.starts_with(key.as_str()))
    }

    /// Whether a batch is meant, by its key.
    pub fn means(&self, key: &str) -> bool {
        self.keys.is_empty() || self.keys.iter().any(|asked| key.starts_with(asked.as_str()))
    }
}

impl Sender {
    /// Tries every batch that is meant and due, once with its retries.
    pub async fn resend(&mut self, pick: &Pick) -> Result<Passed, Error> {
        let adopted = self.parts.store.adopt()?;
        if adopted > 0 {
            tracing::warn!(adopted, "batches of a process that ended were taken back into the spool");
        }
        let now = self.parts.clock.now();
        if let Some(window) = self.rules.window.as_ref().filter(|window| !pick.force && !window.contains(now))
        {
            tracing::info!(window = window.text(), "outside the hours for sending again: what waits stays");
            return Ok(Passed::default());
        }
        let started = self.parts.clock.steady();
        let (mut after, mut passed) = (pick.after.clone(), Passed::default());
        loop {
            let some = self.layout().oldest(pick.place, after.as_ref(), AT_ONCE)?;
            let Some(last) = some.last().cloned() else { return Ok(passed) };
            for listed in some.iter().filter(|listed| pick.may_mean(listed)) {
                self.make_way().await;
                if self.parts.stop.is_cancelled() {
                    return Err(Error::Stopped);
                }
                self.notice_new_token();
                if pick.force {
                    self.lane.look_again();
                }
                // The lane is closed: batches stay in the spool, unless they have exceeded their retention.
                let is_shut = self.lane.gate(self.parts.clock.steady()) == Gate::Shut;
                if is_shut && !self.has_expired(pick.place, listed) {
                    self.notice_shut();
                    passed.shut = true;
                    return Ok(passed);
                }
                let spent = self.parts.clock.steady().saturating_sub(started);
                if pick.patience.is_some_and(|patience| spent > patience) {
                    passed.interrupted = after;
                    return Ok(passed);
                }
                passed.taken += u64::from(self.resend_one(pick, listed, is_shut).await?);
                after = Some(listed.clone());
            }
            after = Some(last);
        }
    }

    fn is_meant_in_failed(&self, pick: &Pick, listed: &Listed) -> Result<bool, Error> {
        match self.layout().read(Place::Failed, listed) {
            Ok(Ok(stored)) if stored.is_broken => {
                tracing::warn!(file = listed.file, "left in failed: it is no record");
                Ok(false)
            }
            Ok(Ok(stored)) => Ok(pick.means(stored.batch.key())),
            Ok(Err(corrupt)) => {
                tracing::warn!(file = listed.file, %corrupt, "left in failed");
                Ok(false)
            }
            // Another was quicker.
            Err(store::Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a file has waited longer than it may, as far as that is quick to see.
    fn has_expired(&self, place: Place, listed: &Listed) -> bool {
        let head = || self.layout().head(place, listed);
        self.is_past_retention(listed.at())
            && head().is_none_or(|head| self.is_past_retention(head.first_attempt))
    }

    fn notice_shut(&self) {
        tracing::warn!(held = self.lane.held(), "the pass over the spool ends here: nothing goes for now");
    }

    /// Tries a batch if it is due. If nothing may go, it only expires.
    async fn resend_one(&mut self, pick: &Pick, listed: &Listed, is_shut: bool) -> Result<bool, Error> {
        let now = self.parts.clock.now();
        // A moment beyond RETRY_AFTER_MAX was written before there was such a bound, or under a longer one.
        let latest = self.rules.policy.latest(now);
        let early = |until: Option<Timestamp>| {
            !pick.force && (is_shut || until.is_some_and(|until| until > now && until <= latest))
        };
        if early(self.layout().not_before(listed)) && !self.has_expired(pick.place, listed) {
            return Ok(false);
        }
        // What lies in failed is not moved before it is known to be meant.
        if pick.place == Place::Failed && !self.is_meant_in_failed(pick, listed)? {
            return Ok(false);
        }
        let Some(held) = self.parts.store.take(pick.place, listed)? else { return Ok(false) };
        let mut stored = match self.parts.store.read(&held) {
            Ok(Ok(stored)) => stored,
            Ok(Err(corrupt)) => {
                self.fail_unreadable(&held, &corrupt.to_string());
                return Ok(false);
            }
            // The disk refuses this one file: the others proceed.
            Err(error) => {
                tracing::error!(%error, "a batch cannot be read now; it stays in the spool");
                self.give_back(&held);
                return Ok(false);
            }
        };
        let is_early = early(stored.not_before);
        let is_over = is_early && self.is_past_retention(stored.first_attempt);
        if (is_early && !is_over) || !pick.means(stored.batch.key()) {
            self.give_back(&held);
            return Ok(false);
        }
        if pick.place == Place::Failed {
            // An operator's word: it gets all its passes again, and keeps its history.
            stored.note(now, "taken out of failed to be sent again");
            stored.retry_count = 0;
        }
        stored.not_before = None;
        stored.by_record |= pick.by_record;
        let origin = Origin::Spool { retry_count: stored.retry_count };
        let job = self.job(Some(held), stored, origin);
        if is_over {
            self.expire(job);
            return Ok(true);
        }
        // A crash between the last count and the move to failed leaves it here; and one before what is no record moved.
        let had_all_passes = job.stored.retry_count >= self.rules.policy.max_spool_retries;
        if job.stored.is_broken || (pick.place == Place::Spool && !pick.force && had_all_passes) {
            self.fail(job);
            return Ok(true);
        }
        self.attempt(job).await;
        Ok(true)
    }
}
