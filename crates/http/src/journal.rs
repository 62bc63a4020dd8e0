//! The completion journal: words on claims that the ledger did not take when they were said.
//!
//! The effect has happened, the ledger is out, and its record must not be lost with this process. So the word lies in
//! a small file of its own until the ledger takes it:
//!
//! ```text
//! DIR/                0700
//!   lock              locked while a process has the journal open
//!   <index>-<token>   "ichido completion 1\n" (2 with a caller), the SHA-256 of the rest in hex and "\n", one line of
//!                     JSON, the answer
//! ```
//!
//! A file gets its name only after it is whole and synced. Meanwhile repeats of a finished request are answered from
//! here, and its lease is renewed, so that no one else takes the claim for abandoned.

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
/// Of a word on a claim that has a caller. A version that does not know of callers must not give its answer away.
const FIRST_LINE_CALLER: &str = "ichido completion 2\n";
const LOCK: &str = "lock";
const HALF: &str = ".half";
const UNREADABLE: &str = ".unreadable";
/// Words that are worth a place only as long as there is room: see [`Journal::has_room`].
const ROOM: usize = 10_000;
/// After so many words in a row that the ledger did not take, it is left alone for a while.
const FAILURES: usize = 3;
/// The pauses between two tries to hand in what waits.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// Words that wait for the ledger.
#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    entries: Mutex<HashMap<Index, Vec<Entry>>>,
    count: AtomicUsize,
    /// The word that was tried last.
    tried: Mutex<Option<(Index, Token)>>,
    waiting: Gauge,
    wake: Notify,
    _lock: File,
}

#[derive(Debug)]
struct Entry {
    word: Word,
    path: PathBuf,
    _renewal: Option<Renewal>,
}

/// A holder's word on its claim.
#[derive(Clone, Debug)]
pub(crate) struct Word {
    pub(crate) asked: Asked,
    pub(crate) token: Token,
    pub(crate) settle: Settle,
}

/// What was asked, and by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) key: Key,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) caller: Option<Caller>,
}

impl Asked {
    pub(crate) fn of(claim: &ClaimRequest) -> Self {
        Self { key: claim.key.clone(), fingerprint: claim.fingerprint, caller: claim.caller }
    }
}

impl Word {
    fn name(&self) -> (Index, Token) {
        (self.asked.key.index(), self.token)
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    tenant: String,
    route: String,
    key: String,
    token: String,
    fingerprint: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    caller: Option<String>,
    word: Said,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Said {
    Complete,
    Tombstone,
    Release,
    Doubt,
}

impl Journal {
    /// Opens the journal in a directory, and reads what an earlier process left there.
    pub fn open(dir: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let lock =
            OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(dir.join(LOCK))?;
        lock.try_lock().map_err(|_| {
            io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!("{} is held by another process", dir.display()),
            )
        })?;
        let journal = Self {
            dir: dir.to_owned(),
            entries: Mutex::default(),
            count: AtomicUsize::new(0),
            tried: Mutex::default(),
            waiting: gauge!("ichido_journal_waiting"),
            wake: Notify::new(),
            _lock: lock,
        };
        for file in fs::read_dir(dir)? {
            journal.adopt(&file?.path())?;
        }
        let left = journal.lock().values().map(Vec::len).sum();
        journal.count.store(left, Ordering::Release);
        journal.waiting.set(left as f64);
        Ok(journal)
    }

    fn adopt(&self, path: &Path) -> io::Result<()> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.ends_with(HALF) {
            // Its process died before the word was safe; the claim is in doubt, which is the truth.
            return fs::remove_file(path);
        }
        if name == LOCK || name.ends_with(UNREADABLE) {
            return Ok(());
        }
        match decode(&fs::read(path)?) {
            Some(word) => {
                let entry = Entry { word, path: path.to_owned(), _renewal: None };
                self.lock().entry(entry.word.asked.key.index()).or_default().push(entry);
                Ok(())
            }
            None => {
                let aside = path.with_file_name(format!("{name}{UNREADABLE}"));
                tracing::error!(file = %aside.display(), "a word in the completion journal cannot be read; it was set aside, and its claim will be in doubt");
                fs::rename(path, aside)
            }
        }
    }

    /// How many words wait.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where it lies.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether there is room for a word without which nothing is lost but time. Completions always find room: there
    /// are no more of them than work was under way.
    pub(crate) fn has_room(&self) -> bool {
        self.len() < ROOM
    }

    /// Keeps a word until the ledger takes it. When this returns, the word is on disk.
    pub(crate) async fn keep(&self, ledger: &Ledger, word: Word, grant: Option<&Grant>) -> io::Result<()> {
        let name = format!("{}-{}", word.asked.key.index(), word.token);
        let (dir, bytes) = (self.dir.clone(), encode(&word)?);
        let path = tokio::task::spawn_blocking(move || write(&dir, &name, &bytes))
            .await
            .map_err(io::Error::other)??;
        let renewal = grant.map(|grant| ledger.start_renewal(&word.asked.key, grant));
        let entry = Entry { word, path, _renewal: renewal };
        let mut entries = self.lock();
        entries.entry(entry.word.asked.key.index()).or_default().push(entry);
        self.recount(&entries, |count| count + 1);
        drop(entries);
        self.wake.notify_one();
        Ok(())
    }

    /// The outcome of a finished request that the ledger does not know yet.
    pub(crate) fn outcome(&self, key: &Key) -> Option<(Asked, Outcome)> {
        if self.is_empty() {
            return None;
        }
        self.lock().get(&key.index())?.iter().find_map(|entry| match &entry.word.settle {
            Settle::Complete(outcome) => Some((entry.word.asked.clone(), outcome.clone())),
            Settle::Release | Settle::Doubt(_) | Settle::Renew { .. } => None,
        })
    }

    /// Hands in what waits, once. Returns how many still wait.
    pub async fn drain(&self, ledger: &Ledger) -> usize {
        let mut failures = 0;
        for word in self.in_turn() {
            *self.tried.lock().unwrap_or_else(PoisonError::into_inner) = Some(word.name());
            match ledger.settle(&word.asked.key, word.token, &word.settle).await {
                Ok(Settled::Applied) => {
                    failures = 0;
                    self.forget(&word);
                }
                Ok(Settled::Stale(now)) => {
                    tracing::warn!(index = %word.asked.key.index(), state = now.name(), "claim already settled differently; discarding journal entry");
                    failures = 0;
                    self.forget(&word);
                }
                Err(error) if error.is_transient() => {
                    tracing::debug!(%error, "the ledger does not take what waits in the completion journal yet");
                    failures += 1;
                    if failures == FAILURES {
                        break;
                    }
                }
                Err(error) => {
                    tracing::error!(index = %word.asked.key.index(), %error, "the ledger refuses a word of the completion journal; it stays there");
                    failures = 0;
                }
            }
        }
        self.len()
    }

    /// Hands in what waits, again and again, until it is stopped.
    pub async fn work(self: Arc<Self>, ledger: Ledger, stop: CancellationToken) {
        let mut pause = PAUSE.0;
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
            pause = if self.drain(&ledger).await == 0 { PAUSE.0 } else { (pause * 2).min(PAUSE.1) };
        }
    }

    /// What waits, beginning behind the word that was tried last: some that never succeed must not keep the others waiting.
    fn in_turn(&self) -> Vec<Word> {
        let mut words: Vec<Word> = self.lock().values().flatten().map(|entry| entry.word.clone()).collect();
        words.sort_unstable_by_key(Word::name);
        let tried = *self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        let first = words.partition_point(|word| Some(word.name()) <= tried);
        words.rotate_left(first);
        words
    }

    fn forget(&self, word: &Word) {
        let entry = {
            let mut entries = self.lock();
            let Some(of_key) = entries.get_mut(&word.asked.key.index()) else { return };
            let Some(at) = of_key.iter().position(|entry| entry.word.token == word.token) else { return };
            let entry = of_key.remove(at);
            if of_key.is_empty() {
                entries.remove(&word.asked.key.index());
            }
            self.recount(&entries, |count| count - 1);
            entry
        };
        if let Err(error) = fs::remove_file(&entry.path) {
            // Handed in again after a restart, it changes nothing.
            tracing::warn!(file = %entry.path.display(), %error, "a word that the ledger has taken could not be removed from the completion journal");
        }
    }

    /// Counts under the lock, so that one who adds and one who takes away agree on the number.
    fn recount(&self, _entries: &MutexGuard<'_, HashMap<Index, Vec<Entry>>>, next: impl Fn(usize) -> usize) {
        let count = next(self.len());
        self.count.store(count, Ordering::Release);
        self.waiting.set(count as f64);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Index, Vec<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    let (half, path) = (dir.join(format!("{name}{HALF}")), dir.join(name));
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&half)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&half, &path)?;
    File::open(dir)?.sync_all()?;
    Ok(path)
}

fn encode(word: &Word) -> io::Result<Vec<u8>> {
    let none = Bytes::new();
    let (said, reason, answer) = match &word.settle {
        Settle::Complete(Outcome::Kept(bytes)) => (Said::Complete, None, bytes),
        Settle::Complete(Outcome::Tombstone(reason)) => (Said::Tombstone, Some(reason.clone()), &none),
        Settle::Release => (Said::Release, None, &none),
        Settle::Doubt(reason) => (Said::Doubt, Some(reason.clone()), &none),
        Settle::Renew { .. } => return Err(io::Error::other("a renewal is not a last word")),
    };
    let line = Line {
        tenant: word.asked.key.scope().tenant.clone(),
        route: word.asked.key.scope().route.clone(),
        key: word.asked.key.text().to_owned(),
        token: word.token.to_string(),
        fingerprint: word.asked.fingerprint.to_string(),
        caller: word.asked.caller.map(|caller| caller.to_string()),
        word: said,
        reason,
    };
    let mut rest = serde_json::to_vec(&line)?;
    rest.push(b'\n');
    rest.extend_from_slice(answer);
    let first = if word.asked.caller.is_some() { FIRST_LINE_CALLER } else { FIRST_LINE };
    let mut bytes = format!("{first}{}\n", hex::encode(Sha256::digest(&rest))).into_bytes();
    bytes.append(&mut rest);
    Ok(bytes)
}

fn decode(bytes: &[u8]) -> Option<Word> {
    let known = [FIRST_LINE, FIRST_LINE_CALLER];
    let rest = known.iter().find_map(|first| bytes.strip_prefix(first.as_bytes()))?;
    let (sum, rest) = rest.split_at_checked(64)?;
    let rest = rest.strip_prefix(b"\n")?;
    if hex::encode(Sha256::digest(rest)).as_bytes() != sum {
        return None;
    }
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let line: Line = serde_json::from_slice(&rest[..end]).ok()?;
    let answer = Bytes::copy_from_slice(&rest[end + 1..]);
    let settle = match (line.word, line.reason) {
        (Said::Complete, _) => Settle::Complete(Outcome::Kept(answer)),
        (Said::Tombstone, reason) => Settle::Complete(Outcome::Tombstone(reason?)),
        (Said::Release, _) => Settle::Release,
        (Said::Doubt, reason) => Settle::Doubt(reason?),
    };
    let key = Key::new(Scope::new(line.tenant, line.route), line.key).ok()?;
    let caller = line.caller.map(|caller| caller.parse()).transpose().ok()?;
    let asked = Asked { key, fingerprint: line.fingerprint.parse().ok()?, caller };
    Some(Word { asked, token: line.token.parse().ok()?, settle })
}

#[cfg(test)]
mod tests;
