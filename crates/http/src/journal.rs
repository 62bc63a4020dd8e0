//! The completion journal: settlements of claims that the ledger could not accept at the time.
//!
//! If the ledger is unavailable after an effect has happened, the outcome must not be lost with this process. So it is
//! written to a small file of its own until the ledger accepts it:
//!
//! ```text
//! DIR/                0700
//!   lock              locked while a process has the journal open
//!   <index>-<token>   "ichido completion 1\n" (2 with a caller), the SHA-256 of the rest in hex and "\n", one line of
//!                     JSON, the stored response
//! ```
//!
//! A file gets its final name only after it is complete and synced. Until the ledger accepts an entry, retries are
//! replayed from the journal, and the lease is renewed so that nobody takes the claim over.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ichido_core::{
    Caller, ClaimRequest, Fingerprint, Grant, Index, Key, Outcome, Scope, Settle, Settled, Token,
};
use ichido_ledger::{Ledger, Renewal};
use metrics::{Gauge, gauge};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

const FIRST_LINE: &str = "ichido completion 1\n";
/// The first line for a claim that has a caller. Versions that do not know callers must not replay its response.
const FIRST_LINE_CALLER: &str = "ichido completion 2\n";
const LOCK: &str = "lock";
const TEMPORARY: &str = ".half";
const UNREADABLE: &str = ".unreadable";
/// The number of entries beyond which releases are no longer journaled: see [`Journal::has_room`].
const ENTRIES_MAX: usize = 10_000;
/// After this many failures in a row, the ledger is left alone for a while.
const FAILURES_MAX: usize = 3;
/// The shortest and longest pause between two attempts to settle the entries.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// A directory of settlements that wait for the ledger.
#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    entries: Mutex<HashMap<Index, Vec<StoredEntry>>>,
    count: AtomicUsize,
    /// The entry that was tried last.
    last_tried: Mutex<Option<(Index, Token)>>,
    waiting: Gauge,
    wake: Notify,
    _lock: File,
}

/// An entry, its file, and the renewal of its lease.
#[derive(Debug)]
struct StoredEntry {
    entry: Entry,
    path: PathBuf,
    _renewal: Option<Renewal>,
}

/// How the holder of a claim settles it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) request: RequestIdentity,
    pub(crate) token: Token,
    pub(crate) settle: Settle,
}

/// What tells a retry from a different request with the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestIdentity {
    pub(crate) key: Key,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) caller: Option<Caller>,
}

impl RequestIdentity {
    pub(crate) fn of(claim: &ClaimRequest) -> Self {
        Self { key: claim.key.clone(), fingerprint: claim.fingerprint, caller: claim.caller }
    }
}

impl Entry {
    fn id(&self) -> (Index, Token) {
        (self.request.key.index(), self.token)
    }
}

/// The JSON line of an entry's file.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    tenant: String,
    route: String,
    key: String,
    token: String,
    fingerprint: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    caller: Option<String>,
    #[serde(rename = "word")]
    action: Action,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Action {
    Complete,
    Tombstone,
    Release,
    Doubt,
}

impl Journal {
    /// Opens the journal in a directory and reads the entries that an earlier process left there.
    pub fn open(dir: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let lock =
            OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(dir.join(LOCK))?;
        lock.try_lock().map_err(|_| {
            io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!("completion journal {} is in use by another process", dir.display()),
            )
        })?;
        let journal = Self {
            dir: dir.to_owned(),
            entries: Mutex::default(),
            count: AtomicUsize::new(0),
            last_tried: Mutex::default(),
            waiting: gauge!("ichido_journal_waiting"),
            wake: Notify::new(),
            _lock: lock,
        };
        for file in fs::read_dir(dir)? {
            journal.load(&file?.path())?;
        }
        let count = journal.lock().values().map(Vec::len).sum();
        journal.count.store(count, Ordering::Release);
        journal.waiting.set(count as f64);
        Ok(journal)
    }

    fn load(&self, path: &Path) -> io::Result<()> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.ends_with(TEMPORARY) {
            // The process crashed before the entry was safe. The claim becomes in doubt, which is correct.
            return fs::remove_file(path);
        }
        if name == LOCK || name.ends_with(UNREADABLE) {
            return Ok(());
        }
        match decode(&fs::read(path)?) {
            Some(entry) => {
                let index = entry.request.key.index();
                let stored = StoredEntry { entry, path: path.to_owned(), _renewal: None };
                self.lock().entry(index).or_default().push(stored);
                Ok(())
            }
            None => {
                let renamed = path.with_file_name(format!("{name}{UNREADABLE}"));
                tracing::error!(file = %renamed.display(), "cannot read completion journal entry; renamed the file, and the claim will become in doubt");
                fs::rename(path, renamed)
            }
        }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The directory of the journal.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether a release may be journaled; without it, only time is lost. Completions are always journaled, and are bounded
    /// by the number of running requests.
    pub(crate) fn has_room(&self) -> bool {
        self.len() < ENTRIES_MAX
    }

    /// Stores an entry until the ledger accepts it, and renews the lease of its grant. The entry is on disk when this
    /// returns.
    pub(crate) async fn append(
        &self,
        ledger: &Ledger,
        entry: Entry,
        grant: Option<&Grant>,
    ) -> io::Result<()> {
        let name = format!("{}-{}", entry.request.key.index(), entry.token);
        let (dir, bytes) = (self.dir.clone(), encode(&entry)?);
        let path = tokio::task::spawn_blocking(move || write(&dir, &name, &bytes))
            .await
            .map_err(io::Error::other)??;
        let index = entry.request.key.index();
        let renewal = grant.map(|grant| ledger.start_renewal(&entry.request.key, grant));
        let mut entries = self.lock();
        entries.entry(index).or_default().push(StoredEntry { entry, path, _renewal: renewal });
        self.recount(&entries, |count| count + 1);
        drop(entries);
        self.wake.notify_one();
        Ok(())
    }

    /// The outcome of a completed request that the ledger does not have yet.
    pub(crate) fn outcome(&self, key: &Key) -> Option<(RequestIdentity, Outcome)> {
        if self.is_empty() {
            return None;
        }
        self.lock().get(&key.index())?.iter().find_map(|stored| match &stored.entry.settle {
            Settle::Complete(outcome) => Some((stored.entry.request.clone(), outcome.clone())),
            Settle::Release | Settle::Doubt(_) | Settle::Renew { .. } => None,
        })
    }

    /// Tries once to settle every entry. Returns the number of entries that remain.
    pub async fn drain(&self, ledger: &Ledger) -> usize {
        let mut failures = 0;
        for entry in self.in_turn() {
            *self.last_tried.lock().unwrap_or_else(PoisonError::into_inner) = Some(entry.id());
            let index = entry.request.key.index();
            match ledger.settle(&entry.request.key, entry.token, &entry.settle).await {
                Ok(Settled::Applied) => {
                    failures = 0;
                    self.remove(&entry);
                }
                Ok(Settled::Stale(now)) => {
                    tracing::warn!(%index, state = now.name(), "claim already settled differently; discarding journal entry");
                    failures = 0;
                    self.remove(&entry);
                }
                Err(error) if error.is_transient() => {
                    tracing::debug!(%error, "ledger does not accept completion journal entries yet");
                    failures += 1;
                    if failures == FAILURES_MAX {
                        break;
                    }
                }
                Err(error) => {
                    tracing::error!(%index, %error, "ledger refuses a completion journal entry; keeping it");
                    failures = 0;
                }
            }
        }
        self.len()
    }

    /// Settles entries in the background until `stop` is cancelled.
    pub async fn run(self: Arc<Self>, ledger: Ledger, stop: CancellationToken) {
        let mut pause = BACKOFF.0;
        loop {
            let next = async {
                if self.is_empty() {
                    self.wake.notified().await;
                }
                tokio::time::sleep(pause).await;
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = next => {}
            }
            pause = if self.drain(&ledger).await == 0 { BACKOFF.0 } else { (pause * 2).min(BACKOFF.1) };
        }
    }

    /// All entries, starting after the one that was tried last, so that entries that never succeed do not delay the others.
    fn in_turn(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> =
            self.lock().values().flatten().map(|stored| stored.entry.clone()).collect();
        entries.sort_unstable_by_key(Entry::id);
        let last_tried = *self.last_tried.lock().unwrap_or_else(PoisonError::into_inner);
        let first = entries.partition_point(|entry| Some(entry.id()) <= last_tried);
        entries.rotate_left(first);
        entries
    }

    fn remove(&self, entry: &Entry) {
        let (index, token) = entry.id();
        let removed = {
            let mut entries = self.lock();
            let Some(of_key) = entries.get_mut(&index) else { return };
            let Some(at) = of_key.iter().position(|stored| stored.entry.token == token) else { return };
            let removed = of_key.remove(at);
            if of_key.is_empty() {
                entries.remove(&index);
            }
            self.recount(&entries, |count| count - 1);
            removed
        };
        if let Err(error) = fs::remove_file(&removed.path) {
            // After a restart, the entry is settled again, which changes nothing.
            tracing::warn!(file = %removed.path.display(), %error, "cannot remove a settled completion journal entry");
        }
    }

    /// Updates the count under the lock, so that concurrent additions and removals agree on it.
    fn recount(
        &self,
        _entries: &MutexGuard<'_, HashMap<Index, Vec<StoredEntry>>>,
        next: impl Fn(usize) -> usize,
    ) {
        let count = next(self.len());
        self.count.store(count, Ordering::Release);
        self.waiting.set(count as f64);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Index, Vec<StoredEntry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    let (temporary, path) = (dir.join(format!("{name}{TEMPORARY}")), dir.join(name));
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, &path)?;
    File::open(dir)?.sync_all()?;
    Ok(path)
}

fn encode(entry: &Entry) -> io::Result<Vec<u8>> {
    let none = Bytes::new();
    let (action, reason, response) = match &entry.settle {
        Settle::Complete(Outcome::Kept(bytes)) => (Action::Complete, None, bytes),
        Settle::Complete(Outcome::Tombstone(reason)) => (Action::Tombstone, Some(reason.clone()), &none),
        Settle::Release => (Action::Release, None, &none),
        Settle::Doubt(reason) => (Action::Doubt, Some(reason.clone()), &none),
        Settle::Renew { .. } => return Err(io::Error::other("a renewal does not settle a claim")),
    };
    let header = Header {
        tenant: entry.request.key.scope().tenant.clone(),
        route: entry.request.key.scope().route.clone(),
        key: entry.request.key.text().to_owned(),
        token: entry.token.to_string(),
        fingerprint: entry.request.fingerprint.to_string(),
        caller: entry.request.caller.map(|caller| caller.to_string()),
        action,
        reason,
    };
    let mut rest = serde_json::to_vec(&header)?;
    rest.push(b'\n');
    rest.extend_from_slice(response);
    let first = if entry.request.caller.is_some() { FIRST_LINE_CALLER } else { FIRST_LINE };
    let mut bytes = format!("{first}{}\n", hex::encode(Sha256::digest(&rest))).into_bytes();
    bytes.append(&mut rest);
    Ok(bytes)
}

fn decode(bytes: &[u8]) -> Option<Entry> {
    let known = [FIRST_LINE, FIRST_LINE_CALLER];
    let rest = known.iter().find_map(|first| bytes.strip_prefix(first.as_bytes()))?;
    let (checksum, rest) = rest.split_at_checked(64)?;
    let rest = rest.strip_prefix(b"\n")?;
    if hex::encode(Sha256::digest(rest)).as_bytes() != checksum {
        return None;
    }
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let header: Header = serde_json::from_slice(&rest[..end]).ok()?;
    let response = Bytes::copy_from_slice(&rest[end + 1..]);
    let settle = match (header.action, header.reason) {
        (Action::Complete, _) => Settle::Complete(Outcome::Kept(response)),
        (Action::Tombstone, reason) => Settle::Complete(Outcome::Tombstone(reason?)),
        (Action::Release, _) => Settle::Release,
        (Action::Doubt, reason) => Settle::Doubt(reason?),
    };
    let key = Key::new(Scope::new(header.tenant, header.route), header.key).ok()?;
    let caller = header.caller.map(|caller| caller.parse()).transpose().ok()?;
    let request = RequestIdentity { key, fingerprint: header.fingerprint.parse().ok()?, caller };
    Some(Entry { request, token: header.token.parse().ok()?, settle })
}

#[cfg(test)]
mod tests;
