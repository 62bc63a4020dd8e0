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
use super::file_name::FileName;
use super::format::{Corrupt, StoredBatch};
use super::layout::{BatchDir, Layout, ListedFile, name_time, read_file};
use super::request_log::RequestLog;
use crate::disk::{self, Disk, already_exists};
use crate::history::RequestState;
use crate::process_dir::ProcessDir;
use crate::receipt::{self, Receipts};
use duplicates::Waiting;
use recovery::refused;

/// Names with suffixes that are tried before giving up.
const COPIES_MAX: u32 = 10_000;

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
    process_dir: ProcessDir,
    /// Bytes that wait, if there is a bound on them.
    used: AtomicU64,
    /// What waits, by the keys in the names. Read once, when it is first needed.
    waiting: Mutex<Option<Waiting>>,
    requests: Mutex<RequestLog>,
    receipts: Receipts,
}

/// A file in this process's hands.
#[derive(Debug)]
pub struct OwnedFile {
    file: String,
    name: FileName,
    bytes: u64,
}

impl OwnedFile {
    /// Whether the file is packed.
    pub fn is_packed(&self) -> bool {
        self.name.gzip
    }
}

impl Store {
    /// Creates what is missing, takes a directory of its own, and gives back what dead processes left.
    pub fn open(root: &Path, options: Options, now: Timestamp) -> Result<Self, Error> {
        Self::open_with_disk(Disk::default(), root, options, now)
    }

    /// The same on a disk that may have someone before it.
    pub fn open_with_disk(disk: Disk, root: &Path, options: Options, now: Timestamp) -> Result<Self, Error> {
        let layout = Layout::new(root);
        for dir in [layout.dir(BatchDir::Spool), layout.inflight(), layout.dir(BatchDir::Failed)] {
            disk::create_private_dir(&dir).map_err(|error| refused(&dir, error))?;
        }
        let inflight = layout.inflight();
        let process_dir =
            ProcessDir::create(&disk, &inflight, now).map_err(|error| refused(&inflight, error))?;
        let receipts = Receipts::new(disk.clone(), root, process_dir.name(), options.receipt_retention);
        let store = Self {
            disk,
            used: AtomicU64::new(0),
            waiting: Mutex::new(None),
            requests: Mutex::default(),
            receipts,
            layout,
            options,
            process_dir,
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
    pub(crate) fn note_request(&self, owned: &OwnedFile, request: RequestState, at: Timestamp) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = requests.note(&self.disk, self.process_dir.path(), &owned.file, request, at) {
            // If this process dies as well, a 409 may become ambiguous, and a person decides.
            tracing::warn!(%error, "cannot note a request");
        }
    }

    /// A file is no longer in this process's hands.
    fn let_go(&self, owned: &OwnedFile) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).forget(&owned.file);
    }

    /// The path of a file in this process's hands.
    pub fn path(&self, owned: &OwnedFile) -> PathBuf {
        self.process_dir.path().join(&owned.file)
    }

    /// Write-ahead: the batch is on disk before anything is sent. Refused where there is no room for new work.
    pub fn accept(&self, stored: &StoredBatch) -> Result<OwnedFile, Error> {
        let bytes = stored.encode(false);
        self.make_room(bytes.len() as u64)?;
        self.put(stored, &bytes)
    }

    /// The same for a part of what was accepted before, which is no new work.
    pub fn write(&self, stored: &StoredBatch) -> Result<OwnedFile, Error> {
        self.put(stored, &stored.encode(false))
    }

    fn put(&self, stored: &StoredBatch, bytes: &[u8]) -> Result<OwnedFile, Error> {
        let mut name = FileName::new(stored.first_attempt, stored.batch.key(), false);
        loop {
            let file = name.text(BatchDir::Spool.as_str());
            match self.disk.create(self.process_dir.path(), &file, bytes) {
                Ok(()) => {
                    self.used.store(self.used.load(Relaxed) + bytes.len() as u64, Relaxed);
                    return Ok(OwnedFile { file, name, bytes: bytes.len() as u64 });
                }
                Err(error) if already_exists(&error) && name.copy < COPIES_MAX => name.copy += 1,
                Err(error) => return Err(Error::io("writing", &self.process_dir.path().join(&file), error)),
            }
        }
    }

    /// Takes a file out of the spool or failed. `None`: another was quicker.
    pub fn take(&self, batch_dir: BatchDir, listed: &ListedFile) -> Result<Option<OwnedFile>, Error> {
        let from = self.layout.dir(batch_dir).join(&listed.file);
        let bytes = fs::symlink_metadata(&from).map_or(0, |metadata| metadata.len());
        // A name of the spool, so that whoever adopts it knows it.
        let mut name = listed.name.clone();
        loop {
            let file = name.text(BatchDir::Spool.as_str());
            match self.disk.rename_new(&from, &self.process_dir.path().join(&file)) {
                Ok(()) => {
                    self.forget(batch_dir, listed);
                    return Ok(Some(OwnedFile { file, name, bytes }));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) if already_exists(&error) && name.copy < COPIES_MAX => name.copy += 1,
                Err(error) => return Err(Error::io("taking", &from, error)),
            }
        }
    }

    /// Reads a file in this process's hands.
    pub fn read(&self, owned: &OwnedFile) -> Result<Result<StoredBatch, Corrupt>, Error> {
        read_file(&self.disk, &self.path(owned), &owned.name)
    }

    /// The batch has arrived. That the file is gone need not be durable: if it comes back, the receiver knows it.
    pub fn remove(&self, owned: &OwnedFile) -> Result<(), Error> {
        let path = self.path(owned);
        self.disk.remove(&path).map_err(|error| Error::io("removing", &path, error))?;
        self.let_go(owned);
        self.used.store(self.used.load(Relaxed).saturating_sub(owned.bytes), Relaxed);
        Ok(())
    }

    /// Puts a batch into the spool with its new state. On an error the file is where it was, in its old state.
    pub fn park(&self, owned: &mut OwnedFile, stored: &StoredBatch) -> Result<PathBuf, Error> {
        self.rewrite(owned, stored, self.options.gzip)?;
        self.put_back(owned)
    }

    /// Puts a file into the spool as it is.
    pub fn put_back(&self, owned: &OwnedFile) -> Result<PathBuf, Error> {
        let mut name = owned.name.clone();
        name.copy = 1;
        if let Some(there) = self.waits_already(owned)? {
            self.remove(owned)?;
            return Ok(there);
        }
        let path = self.move_to(&self.path(owned), BatchDir::Spool, name)?;
        self.let_go(owned);
        self.remember(&path);
        Ok(path)
    }

    /// Where [`Store::fail`] would put a batch.
    pub fn failed_name(&self, key: &str, now: Timestamp, gzip: bool) -> PathBuf {
        let mut name = FileName::new(now, key, gzip);
        let dir = self.layout.dir(BatchDir::Failed);
        while dir.join(name.text(BatchDir::Failed.as_str())).exists() && name.copy < COPIES_MAX {
            name.copy += 1;
        }
        dir.join(name.text(BatchDir::Failed.as_str()))
    }

    /// Writes the last state of a batch, before it moves to failed.
    pub fn update(&self, owned: &mut OwnedFile, stored: &StoredBatch) -> Result<(), Error> {
        self.rewrite(owned, stored, owned.name.gzip)
    }

    /// Moves a file to failed, as it is.
    pub fn fail(&self, owned: &OwnedFile, key: &str, now: Timestamp) -> Result<PathBuf, Error> {
        self.used.store(self.used.load(Relaxed).saturating_sub(owned.bytes), Relaxed);
        let path =
            self.move_to(&self.path(owned), BatchDir::Failed, FileName::new(now, key, owned.name.gzip))?;
        self.let_go(owned);
        Ok(path)
    }

    /// The key in a file's name, where its content cannot be read.
    pub fn name_key<'a>(&self, owned: &'a OwnedFile) -> &'a str {
        &owned.name.key
    }

    /// The moment in a file's name.
    pub fn name_time(&self, owned: &OwnedFile) -> Timestamp {
        name_time(&owned.name)
    }

    /// Moves a file to a free name, durably.
    fn move_to(&self, from: &Path, batch_dir: BatchDir, mut name: FileName) -> Result<PathBuf, Error> {
        let dir = self.layout.dir(batch_dir);
        loop {
            let to = dir.join(name.text(batch_dir.as_str()));
            match self.disk.rename_new(from, &to) {
                Ok(()) => {
                    self.disk.sync_dir(&dir).map_err(|error| Error::io("syncing", &dir, error))?;
                    return Ok(to);
                }
                Err(error) if already_exists(&error) && name.copy < COPIES_MAX => name.copy += 1,
                Err(error) => return Err(Error::io("moving", from, error)),
            }
        }
    }

    fn rewrite(&self, owned: &mut OwnedFile, stored: &StoredBatch, gzip: bool) -> Result<(), Error> {
        let bytes = stored.encode(gzip);
        let failed = |error| Error::io("writing", &self.process_dir.path().join(&owned.file), error);
        if gzip == owned.name.gzip {
            self.disk.replace(self.process_dir.path(), &owned.file, &bytes).map_err(failed)?;
        } else {
            let name = FileName { gzip, ..owned.name.clone() };
            let file = name.text(BatchDir::Spool.as_str());
            self.disk.replace(self.process_dir.path(), &file, &bytes).map_err(failed)?;
            // Both are there for a moment: the same batch twice, which the receiver counts once.
            let _ = self.disk.remove(&self.process_dir.path().join(&owned.file));
            (owned.file, owned.name) = (file, name);
        }
        let grown = bytes.len() as u64;
        self.used.store((self.used.load(Relaxed) + grown).saturating_sub(owned.bytes), Relaxed);
        owned.bytes = grown;
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
            let own: u64 = fs::read_dir(self.process_dir.path())
                .map(|entries| {
                    entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|file| file.len()).sum()
                })
                .unwrap_or_default();
            self.used.store(self.layout.size(BatchDir::Spool)?.1 + own, Relaxed);
        }
        Ok(())
    }
}
