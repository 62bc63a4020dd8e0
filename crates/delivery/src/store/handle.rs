//! A process at work on the store.

mod duplicates;
mod recovery;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ichido_core::Timestamp;

use super::error::Error;
use super::file_name::Name;
use super::format::{Corrupt, Stored};
use super::layout::{Layout, Listed, Place, named_time, read_file};
use super::request_log::Requests;
use crate::disk::{self, Disk, is_taken};
use crate::history::Request;
use crate::process_dir::Own;
use crate::receipt::{self, Receipts};
use duplicates::Waiting;
use recovery::refused;

/// Names with suffixes that are tried before giving up.
const MOST_COPIES: u32 = 10_000;

/// How batches are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Packs what is spooled.
    pub gzip: bool,
    /// The most bytes that may wait.
    pub max_bytes: Option<u64>,
    /// How long receipts are kept.
    pub receipt_retention: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { gzip: false, max_bytes: None, receipt_retention: receipt::RETENTION }
    }
}

/// The store, opened to work on it.
#[derive(Debug)]
pub struct Store {
    disk: Disk,
    layout: Layout,
    options: Options,
    own: Own,
    /// Bytes that wait, if there is a bound on them.
    used: AtomicU64,
    /// What waits, by the keys in the names. Read once, when it is first needed.
    waiting: Mutex<Option<Waiting>>,
    requests: Mutex<Requests>,
    receipts: Receipts,
}

/// A file in this process's hands.
#[derive(Debug)]
pub struct Held {
    file: String,
    name: Name,
    bytes: u64,
}

impl Held {
    /// Whether the file is packed.
    pub fn is_packed(&self) -> bool {
        self.name.gzip
    }
}

impl Store {
    /// Creates what is missing, takes a directory of its own, and gives back what dead processes left.
    pub fn open(root: &Path, options: Options, now: Timestamp) -> Result<Self, Error> {
        Self::open_on(Disk::default(), root, options, now)
    }

    /// The same on a disk that may have someone before it.
    pub fn open_on(disk: Disk, root: &Path, options: Options, now: Timestamp) -> Result<Self, Error> {
        let layout = Layout::new(root);
        for dir in [layout.dir(Place::Spool), layout.inflight(), layout.dir(Place::Failed)] {
            disk::private_dir(&dir).map_err(|error| refused(&dir, error))?;
        }
        let inflight = layout.inflight();
        let own = Own::begin(&disk, &inflight, now).map_err(|error| refused(&inflight, error))?;
        let receipts = Receipts::new(disk.clone(), root, own.name(), options.receipt_retention);
        let store = Self {
            disk,
            used: AtomicU64::new(0),
            waiting: Mutex::new(None),
            requests: Mutex::default(),
            receipts,
            layout,
            options,
            own,
        };
        store.adopt()?;
        store.measure()?;
        Ok(store)
    }

    /// The directories.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// How batches ended.
    pub fn receipts(&self) -> &Receipts {
        &self.receipts
    }

    /// Notes what became of a request, for whoever finds the file after this process has died.
    pub(crate) fn note_request(&self, held: &Held, request: Request, at: Timestamp) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = requests.note(&self.disk, self.own.path(), &held.file, request, at) {
            // If this process dies as well, a 409 may become ambiguous, and a person decides.
            tracing::warn!(%error, "cannot note a request");
        }
    }

    /// A file is no longer in this process's hands.
    fn let_go(&self, held: &Held) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).forget(&held.file);
    }

    /// The path of a file in this process's hands.
    pub fn path(&self, held: &Held) -> PathBuf {
        self.own.path().join(&held.file)
    }

    /// Write-ahead: the batch is on disk before anything is sent. Refused where there is no room for new work.
    pub fn accept(&self, stored: &Stored) -> Result<Held, Error> {
        let bytes = stored.encode(false);
        self.make_room(bytes.len() as u64)?;
        self.put(stored, &bytes)
    }

    /// The same for a part of what was accepted before, which is no new work.
    pub fn write(&self, stored: &Stored) -> Result<Held, Error> {
        self.put(stored, &stored.encode(false))
    }

    fn put(&self, stored: &Stored, bytes: &[u8]) -> Result<Held, Error> {
        let mut name = Name::new(stored.first_attempt, stored.batch.key(), false);
        loop {
            let file = name.text(Place::Spool.word());
            match self.disk.create(self.own.path(), &file, bytes) {
                Ok(()) => {
                    self.used.store(self.used.load(Relaxed) + bytes.len() as u64, Relaxed);
                    return Ok(Held { file, name, bytes: bytes.len() as u64 });
                }
                Err(error) if is_taken(&error) && name.copy < MOST_COPIES => name.copy += 1,
                Err(error) => return Err(Error::io("writing", &self.own.path().join(&file), error)),
            }
        }
    }

    /// Takes a file out of the spool or failed. `None`: another was quicker.
    pub fn take(&self, place: Place, listed: &Listed) -> Result<Option<Held>, Error> {
        let from = self.layout.dir(place).join(&listed.file);
        let bytes = fs::symlink_metadata(&from).map_or(0, |metadata| metadata.len());
        // A name of the spool, so that whoever adopts it knows it.
        let mut name = listed.name.clone();
        loop {
            let file = name.text(Place::Spool.word());
            match self.disk.rename_new(&from, &self.own.path().join(&file)) {
                Ok(()) => {
                    self.forget(place, listed);
                    return Ok(Some(Held { file, name, bytes }));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) if is_taken(&error) && name.copy < MOST_COPIES => name.copy += 1,
                Err(error) => return Err(Error::io("taking", &from, error)),
            }
        }
    }

    /// Reads a file in this process's hands.
    pub fn read(&self, held: &Held) -> Result<Result<Stored, Corrupt>, Error> {
        read_file(&self.disk, &self.path(held), &held.name)
    }

    /// The batch has arrived. That the file is gone need not be durable: if it comes back, the receiver knows it.
    pub fn remove(&self, held: &Held) -> Result<(), Error> {
        let path = self.path(held);
        self.disk.remove(&path).map_err(|error| Error::io("removing", &path, error))?;
        self.let_go(held);
        self.used.store(self.used.load(Relaxed).saturating_sub(held.bytes), Relaxed);
        Ok(())
    }

    /// Puts a batch into the spool with its new state. On an error the file is where it was, in its old state.
    pub fn park(&self, held: &mut Held, stored: &Stored) -> Result<PathBuf, Error> {
        self.rewrite(held, stored, self.options.gzip)?;
        self.put_back(held)
    }

    /// Puts a file into the spool as it is.
    pub fn put_back(&self, held: &Held) -> Result<PathBuf, Error> {
        let mut name = held.name.clone();
        name.copy = 1;
        if let Some(there) = self.waits_already(held)? {
            self.remove(held)?;
            return Ok(there);
        }
        let path = self.place(&self.path(held), Place::Spool, name)?;
        self.let_go(held);
        self.remember(&path);
        Ok(path)
    }

    /// Where [`Store::fail`] would put a batch.
    pub fn failed_name(&self, key: &str, now: Timestamp, gzip: bool) -> PathBuf {
        let mut name = Name::new(now, key, gzip);
        let dir = self.layout.dir(Place::Failed);
        while dir.join(name.text(Place::Failed.word())).exists() && name.copy < MOST_COPIES {
            name.copy += 1;
        }
        dir.join(name.text(Place::Failed.word()))
    }

    /// Writes the last state of a batch, before it moves to failed.
    pub fn update(&self, held: &mut Held, stored: &Stored) -> Result<(), Error> {
        self.rewrite(held, stored, held.name.gzip)
    }

    /// Moves a file to failed, as it is.
    pub fn fail(&self, held: &Held, key: &str, now: Timestamp) -> Result<PathBuf, Error> {
        self.used.store(self.used.load(Relaxed).saturating_sub(held.bytes), Relaxed);
        let path = self.place(&self.path(held), Place::Failed, Name::new(now, key, held.name.gzip))?;
        self.let_go(held);
        Ok(path)
    }

    /// The key in a file's name, where its content cannot be read.
    pub fn named_key<'a>(&self, held: &'a Held) -> &'a str {
        &held.name.key
    }

    /// The moment in a file's name.
    pub fn named_time(&self, held: &Held) -> Timestamp {
        named_time(&held.name)
    }

    /// Moves a file to a free name, durably.
    fn place(&self, from: &Path, place: Place, mut name: Name) -> Result<PathBuf, Error> {
        let dir = self.layout.dir(place);
        loop {
            let to = dir.join(name.text(place.word()));
            match self.disk.rename_new(from, &to) {
                Ok(()) => {
                    self.disk.sync_dir(&dir).map_err(|error| Error::io("syncing", &dir, error))?;
                    return Ok(to);
                }
                Err(error) if is_taken(&error) && name.copy < MOST_COPIES => name.copy += 1,
                Err(error) => return Err(Error::io("moving", from, error)),
            }
        }
    }

    fn rewrite(&self, held: &mut Held, stored: &Stored, gzip: bool) -> Result<(), Error> {
        let bytes = stored.encode(gzip);
        let failed = |error| Error::io("writing", &self.own.path().join(&held.file), error);
        if gzip == held.name.gzip {
            self.disk.replace(self.own.path(), &held.file, &bytes).map_err(failed)?;
        } else {
            let name = Name { gzip, ..held.name.clone() };
            let file = name.text(Place::Spool.word());
            self.disk.replace(self.own.path(), &file, &bytes).map_err(failed)?;
            // Both are there for a moment: the same batch twice, which the receiver counts once.
            let _ = self.disk.remove(&self.own.path().join(&held.file));
            (held.file, held.name) = (file, name);
        }
        let grown = bytes.len() as u64;
        self.used.store((self.used.load(Relaxed) + grown).saturating_sub(held.bytes), Relaxed);
        held.bytes = grown;
        Ok(())
    }

    fn make_room(&self, bytes: u64) -> Result<(), Error> {
        let Some(most) = self.options.max_bytes else { return Ok(()) };
        if self.used.load(Relaxed) + bytes > most {
            // Others may have made room.
            self.measure()?;
        }
        let used = self.used.load(Relaxed);
        if used + bytes > most { Err(Error::Quota { used, most }) } else { Ok(()) }
    }

    fn measure(&self) -> Result<(), Error> {
        if self.options.max_bytes.is_some() {
            let own: u64 = fs::read_dir(self.own.path())
                .map(|entries| {
                    entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|file| file.len()).sum()
                })
                .unwrap_or_default();
            self.used.store(self.layout.size(Place::Spool)?.1 + own, Relaxed);
        }
        Ok(())
    }
}
