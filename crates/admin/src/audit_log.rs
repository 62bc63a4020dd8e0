//! The audit log: who did what, in files that show whether they were changed afterwards.
//!
//! ```text
//!   audit/
//!     audit.jsonl                the entries, one JSON object per line; only ever appended to
//!     audit-000000000812.jsonl   an older file, which ends with entry 812
//!     head                       number and hash of the last entry, replaced after every append
//!     lock                       held while a process appends
//! ```
//!
//! Each line ends with `,"hash":"…"}`: the SHA-256 of everything in front of it, including `prev`, the hash of the line
//! before. So an edited, removed or moved line breaks the chain. A chain alone does not show that its end was cut off;
//! the head does. Whoever can write to the directory can compute a new chain and a new head. The log lines of the process
//! therefore repeat number and hash of the entry, and `ichido audit verify --contains HASH` looks for one of them.
//!
//! An action that changes something has two entries: an *intent*, synced before it acts, and a *result*, synced before it
//! is reported. If the intent cannot be written, nothing is done. An intent without a result means that the process
//! stopped in between, and that the action may or may not have been carried out.
//!
//! Several processes may append: each append takes the lock, reads the head, and continues from there. A crash between
//! the line and the head leaves one entry behind the head, which the next append adopts. A crash in the middle of a line
//! leaves bytes that are no entry; they stay, and the next entry records their number and hash.

mod entry;
mod files;
mod scan;
mod verify;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ichido_core::{Clock, SystemClock};

pub(crate) use self::entry::is_name;
pub use self::entry::{Action, Actor, Entry, Outcome, Step, Via};
use self::files::{Draft, Files, Written};
pub use self::verify::{Break, Snapshot, Summary};

/// The log target of operator actions.
pub const AUDIT: &str = "ichido::audit";

/// The audit log of a directory, or none.
#[derive(Clone, Debug)]
pub struct AuditLog(Option<Arc<Files>>);

/// When a new file is started.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// The file has this many bytes.
    pub max_bytes: u64,
    /// Its first entry is this old.
    pub max_age: Option<Duration>,
}

/// Why an entry cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be used.
    #[error("cannot use the audit log {dir} (admin.audit_dir): {source}")]
    Io {
        /// The directory.
        dir: String,
        /// Why.
        source: std::io::Error,
    },
    /// The lock is not released.
    #[error("cannot use the audit log {dir}: another process has locked it for {seconds} s")]
    Locked {
        /// The directory.
        dir: String,
        /// How long we waited.
        seconds: u64,
    },
    /// The end of the log is not what was written. Continuing it would hide that.
    #[error(
        "the audit log {dir} is damaged: {what} (`ichido audit verify` shows where). Move the directory away and keep it; \
         the next action starts a new log"
    )]
    Damaged {
        /// The directory.
        dir: String,
        /// What is wrong.
        what: String,
    },
}

/// An action whose intent is recorded.
#[derive(Debug)]
#[must_use = "an action without a result counts as interrupted"]
pub struct Pending {
    log: AuditLog,
    actor: Actor,
    action: Action,
    intent: Option<u64>,
}

impl AuditLog {
    /// The log in a directory. It is created by the first entry.
    pub fn new(dir: PathBuf, rotation: Rotation) -> Self {
        Self::with_clock(dir, rotation, Arc::new(SystemClock::default()))
    }

    /// No files: actions appear in the log of the process only.
    pub fn off() -> Self {
        Self(None)
    }

    fn with_clock(dir: PathBuf, rotation: Rotation, clock: Arc<dyn Clock>) -> Self {
        Self(Some(Arc::new(Files::new(dir, rotation, clock))))
    }

    /// The directory of its files.
    pub fn dir(&self) -> Option<&Path> {
        self.0.as_ref().map(|files| files.dir())
    }

    /// Records the intent of an action. Blocks while another process appends.
    pub fn begin(&self, actor: Actor, action: Action) -> Result<Pending, Error> {
        let draft = Draft { step: Step::Intent, intent: None, outcome: Outcome::default() };
        let written = self.append(&actor, &action, draft)?;
        Ok(Pending { log: self.clone(), actor, action, intent: written.map(|written| written.seq) })
    }

    /// Records something that is done or refused already, in one entry. Blocks while another process appends.
    pub fn record(&self, actor: &Actor, action: &Action, outcome: Outcome) -> Result<(), Error> {
        self.write_result(actor, action, Draft { step: Step::Event, intent: None, outcome })
    }

    /// Checks that the log can be continued, if it exists. Changes nothing.
    pub fn check(&self) -> Result<(), Error> {
        self.0.as_ref().map_or(Ok(()), |files| files.check())
    }

    /// The files as they are now, to read or verify them.
    pub fn snapshot(&self) -> Result<Option<Snapshot>, Error> {
        self.0.as_ref().map_or(Ok(None), |files| files.snapshot())
    }

    fn append(&self, actor: &Actor, action: &Action, draft: Draft) -> Result<Option<Written>, Error> {
        self.0.as_ref().map(|files| files.append(actor, action, draft)).transpose()
    }

    fn write_result(&self, actor: &Actor, action: &Action, draft: Draft) -> Result<(), Error> {
        let outcome = draft.outcome.clone();
        let written = self.append(actor, action, draft);
        log_line(actor, action, &outcome, written.as_ref().ok().and_then(Option::as_ref));
        written.map(drop)
    }
}

impl Pending {
    /// Records the result. Blocks while another process appends.
    pub fn finish(self, outcome: Outcome) -> Result<(), Error> {
        let Self { log, actor, action, intent } = self;
        log.write_result(&actor, &action, Draft { step: Step::Result, intent, outcome })
    }
}

/// Appends from asynchronous code, on a thread that may block.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let interrupted = |error| Error::Io { dir: String::new(), source: std::io::Error::other(error) };
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(interrupted(error)))
}

/// One line in the log of the process for each action. A command prints its result instead.
fn log_line(actor: &Actor, action: &Action, outcome: &Outcome, written: Option<&Written>) {
    if actor.via == Via::Cli {
        return;
    }
    let Action { action, index, place, batches, before: _, reason: _ } = action;
    let Outcome { result, removed, arrived, after: _ } = outcome;
    tracing::info!(
        target: AUDIT,
        who = actor.from,
        user = actor.who,
        action,
        index,
        place,
        key = batches.first(),
        result,
        removed,
        arrived,
        audit_seq = written.map(|written| written.seq),
        audit_hash = written.map(|written| written.hash.as_str()),
        "operator action"
    );
}

#[cfg(test)]
mod tests;
