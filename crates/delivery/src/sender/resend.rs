//! A pass over the spool, oldest batch first.

use std::io;
use std::time::Duration;

use futures_util::future::BoxFuture;
use ichido_core::Timestamp;

use crate::lane::Gate;
use crate::next_action::Origin;
use crate::store::{self, BatchDir, ListedFile};

use super::{Error, Sender};

/// Number of file names read at once. It bounds memory, however large the spool is.
const NAMES_PER_READ: usize = 10_000;

/// Selects the batches to resend.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The directory to take them from.
    pub batch_dir: BatchDir,
    /// Only batches whose key starts with one of these. Empty means all.
    pub keys: Vec<String>,
    /// Ignore `notBefore` and whether the lane is closed.
    pub force: bool,
    /// The receiver tracks individual records: a 409 splits the batch, whatever `EXTERNAL_API_CONFLICT` says.
    pub by_record: bool,
    /// Only files after this one, where an earlier pass was interrupted.
    pub after: Option<ListedFile>,
    /// Start no further batch after this time.
    pub time_limit: Option<Duration>,
}

/// What a pass did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassSummary {
    /// Number of batches that were tried.
    pub attempted: u64,
    /// The last file before the time limit ended the pass.
    pub interrupted: Option<ListedFile>,
    /// Whether the pass ended early because the lane is closed.
    pub lane_closed: bool,
}

impl Selection {
    /// Everything in the spool that is due.
    pub fn due() -> Self {
        Self::new(BatchDir::Spool, Vec::new(), false)
    }

    /// All batches in a directory, or those with these keys.
    pub fn new(batch_dir: BatchDir, keys: Vec<String>, force: bool) -> Self {
        Self { batch_dir, keys, force, by_record: false, after: None, time_limit: None }
    }

    /// Whether a file may be selected, judging by its name.
    pub fn may_match(&self, listed: &ListedFile) -> bool {
        let name = listed.name.key.as_str();
        self.keys.is_empty()
            || self.keys.iter().any(|key| key.starts_with(name) || name.starts_with(key.as_str()))
    }

    /// Whether the batch with this key is selected.
    pub fn matches(&self, key: &str) -> bool {
        self.keys.is_empty() || self.keys.iter().any(|asked| key.starts_with(asked.as_str()))
    }
}

impl Sender {
    /// Tries every selected batch that is due, once with its retries.
    pub fn resend<'a>(&'a mut self, selection: &'a Selection) -> BoxFuture<'a, Result<PassSummary, Error>> {
        Box::pin(async move {
            let passed = self.pass(selection).await;
            self.act_on_all().await;
            passed
        })
    }

    async fn pass(&mut self, selection: &Selection) -> Result<PassSummary, Error> {
        let recovered = self.deps.store.recover()?;
        if recovered > 0 {
            tracing::warn!(batches = recovered, "recovered the batches of a crashed process");
        }
        let now = self.deps.clock.now();
        if let Some(window) =
            self.rules.window.as_ref().filter(|window| !selection.force && !window.contains(now))
        {
            tracing::info!(window = window.text(), "outside RESEND_WINDOW; not resending");
            return Ok(PassSummary::default());
        }
        let started = self.deps.clock.steady();
        let (mut after, mut summary) = (selection.after.clone(), PassSummary::default());
        loop {
            let files = self.layout().oldest(selection.batch_dir, after.as_ref(), NAMES_PER_READ)?;
            let Some(last) = files.last().cloned() else { return Ok(summary) };
            for listed in files.iter().filter(|listed| selection.may_match(listed)) {
                self.make_room().await;
                // What cannot be sent yet stays in the spool, where operators and other processes find it.
                self.wait_for_slot().await;
                if self.deps.stop.is_cancelled() {
                    return Err(Error::Stopped);
                }
                self.notice_new_token();
                if selection.force {
                    self.lane.probe_now();
                }
                // The lane is closed: batches stay in the spool, unless they have exceeded their retention.
                let is_closed = self.lane.gate(self.deps.clock.steady()) == Gate::Closed;
                if is_closed && !self.has_expired(selection.batch_dir, listed) {
                    self.log_closed();
                    summary.lane_closed = true;
                    return Ok(summary);
                }
                let spent = self.deps.clock.steady().saturating_sub(started);
                if selection.time_limit.is_some_and(|time_limit| spent > time_limit) {
                    summary.interrupted = after;
                    return Ok(summary);
                }
                summary.attempted += u64::from(self.resend_one(selection, listed, is_closed).await?);
                after = Some(listed.clone());
            }
            after = Some(last);
        }
    }

    fn is_selected_in_failed(&self, selection: &Selection, listed: &ListedFile) -> Result<bool, Error> {
        match self.layout().read(BatchDir::Failed, listed) {
            Ok(Ok(stored)) if stored.is_invalid_input => {
                tracing::warn!(file = listed.file, "not resent: the batch is invalid input");
                Ok(false)
            }
            Ok(Ok(stored)) => Ok(selection.matches(stored.batch.key())),
            Ok(Err(corrupt)) => {
                tracing::warn!(file = listed.file, %corrupt, "not resent: the file is corrupt");
                Ok(false)
            }
            // Another process has taken it.
            Err(store::Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a batch exceeds its retention, judging by its file name and header.
    fn has_expired(&self, batch_dir: BatchDir, listed: &ListedFile) -> bool {
        let header = || self.layout().header(batch_dir, listed);
        self.is_past_retention(listed.at())
            && header().is_none_or(|header| self.is_past_retention(header.first_attempt))
    }

    fn log_closed(&self) {
        tracing::warn!(held = self.lane.held(), "the lane is closed; ending the pass over the spool");
    }

    /// Tries a batch if it is due. If the lane is closed, the batch can only expire.
    async fn resend_one(
        &mut self,
        selection: &Selection,
        listed: &ListedFile,
        is_closed: bool,
    ) -> Result<bool, Error> {
        let now = self.deps.clock.now();
        // A time beyond RETRY_AFTER_MAX was written before that limit existed, or under a longer limit.
        let latest = self.rules.policy.latest(now);
        let defers = |until: Option<Timestamp>| {
            !selection.force && (is_closed || until.is_some_and(|until| until > now && until <= latest))
        };
        if defers(self.layout().not_before(listed)) && !self.has_expired(selection.batch_dir, listed) {
            return Ok(false);
        }
        // A file in failed is not moved before it is known to be selected.
        if selection.batch_dir == BatchDir::Failed && !self.is_selected_in_failed(selection, listed)? {
            return Ok(false);
        }
        let Some(mut owned) = self.deps.store.take(selection.batch_dir, listed)? else { return Ok(false) };
        let mut stored = match self.deps.store.read(&owned) {
            Ok(Ok(stored)) => stored,
            Ok(Err(corrupt)) => {
                self.fail_unreadable(&mut owned, &corrupt.to_string());
                return Ok(false);
            }
            // This file cannot be read; continue with the others.
            Err(error) => {
                tracing::error!(%error, "cannot read a batch; leaving it in the spool");
                self.put_back(&mut owned);
                return Ok(false);
            }
        };
        let is_deferred = defers(stored.not_before);
        let has_expired = is_deferred && self.is_past_retention(stored.first_attempt);
        if (is_deferred && !has_expired) || !selection.matches(stored.batch.key()) {
            self.put_back(&mut owned);
            return Ok(false);
        }
        if selection.batch_dir == BatchDir::Failed {
            // An operator asked for it: the batch gets all its passes again, and keeps its history.
            stored.note(now, "taken out of failed to be resent");
            stored.retry_count = 0;
        }
        stored.not_before = None;
        stored.by_record |= selection.by_record;
        let origin = Origin::Spool { retry_count: stored.retry_count };
        let job = self.job(Some(owned), stored, origin);
        if has_expired {
            self.expire(job);
            return Ok(true);
        }
        // A crash after the last count but before the move to failed leaves a batch here; so does one with invalid
        // input.
        let had_all_passes = job.stored.retry_count >= self.rules.policy.max_spool_retries;
        if job.stored.is_invalid_input
            || (selection.batch_dir == BatchDir::Spool && !selection.force && had_all_passes)
        {
            self.fail(job);
            return Ok(true);
        }
        self.start(job).await;
        Ok(true)
    }
}
