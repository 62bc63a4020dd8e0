//! One process's handle on the store.

mod duplicates;
mod groups;
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
use super::group_file::is_group;
use super::layout::{BatchDir, Layout, ListedFile, name_time, read_file};
use super::request_log::RequestLog;
use crate::disk::{self, Disk, already_exists};
use crate::history::RequestState;
use crate::process_dir::ProcessDir;
use crate::receipt::{self, Receipts};
use duplicates::WaitingKeys;
use groups::{Durability, Grouped, Groups};
use recovery::unusable_dir;

/// How many suffixes are tried before giving up on a name.
const COPIES_MAX: u32 = 10_000;

/// How batches are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether spooled batches are compressed.
    pub gzip: bool,
    /// The most bytes that the spool may hold.
    pub max_bytes: Option<u64>,
    /// How long receipts are kept.
    pub receipt_retention: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { gzip: false, max_bytes: None, receipt_retention: receipt::RETENTION }
    }
}

/// The store, opened by a process to work on it.
#[derive(Debug)]
pub struct Store {
    disk: Disk,
    layout: Layout,
    options: Options,
    process_dir: ProcessDir,
    /// Bytes in the spool, if they are limited.
    used: AtomicU64,
    /// The spooled batches by the keys in their names. Read when it is first needed.
    waiting: Mutex<Option<WaitingKeys>>,
    requests: Mutex<RequestLog>,
    groups: Mutex<Groups>,
    receipts: Receipts,
}

/// A batch that this process has: a file, or an entry of a group that has the name of a file.
#[derive(Debug)]
pub struct OwnedFile {
    file: String,
    name: FileName,
    bytes: u64,
    /// `None`: it has a file of its own.
    grouped: Option<Grouped>,
}

impl OwnedFile {
    /// Whether the file is compressed.
    pub fn is_compressed(&self) -> bool {
        self.name.gzip
    }
}

impl Store {
    /// Opens the store: creates missing directories, and recovers the batches of crashed processes.
    pub fn open(root: &Path, options: Options, now: Timestamp) -> Result<Self, Error> {
        Self::open_with_disk(Disk::default(), root, options, now)
    }

    /// Opens the store on a disk that may inject faults.
    pub fn open_with_disk(disk: Disk, root: &Path, options: Options, now: Timestamp) -> Result<Self, Error> {
        let layout = Layout::new(root);
        for dir in [layout.dir(BatchDir::Spool), layout.inflight(), layout.dir(BatchDir::Failed)] {
            disk::create_private_dir(&dir).map_err(|error| unusable_dir(&dir, error))?;
        }
        let inflight = layout.inflight();
        let process_dir =
            ProcessDir::create(&disk, &inflight, now).map_err(|error| unusable_dir(&inflight, error))?;
        let receipts = Receipts::new(disk.clone(), root, process_dir.name(), options.receipt_retention);
        let store = Self {
            disk,
            used: AtomicU64::new(0),
            waiting: Mutex::new(None),
            requests: Mutex::default(),
            groups: Mutex::default(),
            receipts,
            layout,
            options,
            process_dir,
        };
        store.recover()?;
        store.measure()?;
        Ok(store)
    }

    /// The directories.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The receipts.
    pub fn receipts(&self) -> &Receipts {
        &self.receipts
    }

    /// Logs the state of a request, for the process that recovers the file if this one crashes.
    pub(crate) fn note_request(&self, owned: &OwnedFile, request: RequestState, at: Timestamp) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = requests.note(&self.disk, self.process_dir.path(), &owned.file, request, at) {
            // If this process crashes now, a 409 may be ambiguous, and an operator decides.
            tracing::warn!(%error, "cannot log a request");
        }
    }

    /// Forgets a file that this process no longer owns.
    fn release(&self, owned: &OwnedFile) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).forget(&owned.file);
    }

    /// The path of a file that this process has taken.
    pub fn path(&self, owned: &OwnedFile) -> PathBuf {
        self.process_dir.path().join(&owned.file)
    }

    /// Writes a new batch to disk before anything is sent. Fails if the spool is full.
    pub fn accept(&self, stored: &StoredBatch) -> Result<OwnedFile, Error> {
        let bytes = stored.encode(false);
        self.check_quota(bytes.len() as u64)?;
        self.put(stored, &bytes)
    }

    /// Writes a part of an accepted batch. The quota does not apply, because it is not new.
    pub fn write(&self, stored: &StoredBatch) -> Result<OwnedFile, Error> {
        self.put(stored, &stored.encode(false))
    }

    fn put(&self, stored: &StoredBatch, bytes: &[u8]) -> Result<OwnedFile, Error> {
        let mut name = FileName::new(stored.first_attempt, stored.batch.key(), false);
        loop {
            let file = self.reserve_name(&mut name);
            let created = self.disk.create(self.process_dir.path(), &file, bytes);
            self.release_name(&file);
            match created {
                Ok(()) => {
                    self.add_used(bytes.len() as u64);
                    return Ok(OwnedFile { file, name, bytes: bytes.len() as u64, grouped: None });
                }
                Err(error) if already_exists(&error) && name.copy < COPIES_MAX => name.copy += 1,
                Err(error) => return Err(Error::io("write", &self.process_dir.path().join(&file), error)),
            }
        }
    }

    /// Takes a file from the spool or from failed. `None`: another process has taken it.
    pub fn take(&self, batch_dir: BatchDir, listed: &ListedFile) -> Result<Option<OwnedFile>, Error> {
        let from = self.layout.dir(batch_dir).join(&listed.file);
        let bytes = fs::symlink_metadata(&from).map_or(0, |metadata| metadata.len());
        // Use a spool name, so that a process that recovers it recognises it.
        let mut name = listed.name.clone();
        loop {
            let file = self.reserve_name(&mut name);
            let renamed = self.disk.rename_new(&from, &self.process_dir.path().join(&file));
            self.release_name(&file);
            match renamed {
                Ok(()) => {
                    self.remove_waiting(batch_dir, listed);
                    return Ok(Some(OwnedFile { file, name, bytes, grouped: None }));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) if already_exists(&error) && name.copy < COPIES_MAX => name.copy += 1,
                Err(error) => return Err(Error::io("take", &from, error)),
            }
        }
    }

    /// Reads a file that this process has taken.
    pub fn read(&self, owned: &OwnedFile) -> Result<Result<StoredBatch, Corrupt>, Error> {
        read_file(&self.disk, &self.path(owned), &owned.name)
    }

    /// Removes a delivered batch. No sync is needed: if the file comes back after a crash, the receiver has the batch.
    pub fn remove(&self, owned: &OwnedFile) -> Result<(), Error> {
        match &owned.grouped {
            Some(grouped) => self.leave_group(grouped, &owned.file, Durability::Process)?,
            None => {
                let path = self.path(owned);
                self.disk.remove(&path).map_err(|error| Error::io("remove", &path, error))?;
            }
        }
        self.release(owned);
        self.subtract_used(owned.bytes);
        Ok(())
    }

    /// Puts a batch into the spool with its new state. On an error the file stays in place, with its old state.
    pub fn spool(&self, owned: &mut OwnedFile, stored: &StoredBatch) -> Result<PathBuf, Error> {
        self.rewrite(owned, stored, self.options.gzip)?;
        self.put_back(owned)
    }

    /// Puts a batch into the spool unchanged.
    pub fn put_back(&self, owned: &mut OwnedFile) -> Result<PathBuf, Error> {
        self.extract(owned)?;
        let mut name = owned.name.clone();
        name.copy = 1;
        if let Some(there) = self.find_duplicate(owned)? {
            self.remove(owned)?;
            return Ok(there);
        }
        let path = self.move_to(&self.path(owned), BatchDir::Spool, name)?;
        self.release(owned);
        self.add_waiting(&path);
        Ok(path)
    }

    /// The path that [`Store::fail`] would move a batch to.
    pub fn failed_path(&self, key: &str, now: Timestamp, gzip: bool) -> PathBuf {
        let mut name = FileName::new(now, key, gzip);
        let dir = self.layout.dir(BatchDir::Failed);
        while dir.join(name.text(BatchDir::Failed.as_str())).exists() && name.copy < COPIES_MAX {
            name.copy += 1;
        }
        dir.join(name.text(BatchDir::Failed.as_str()))
    }

    /// Writes the final state of a batch before it moves to failed.
    pub fn update(&self, owned: &mut OwnedFile, stored: &StoredBatch) -> Result<(), Error> {
        self.rewrite(owned, stored, owned.name.gzip)
    }

    /// Moves a batch to failed unchanged.
    pub fn fail(&self, owned: &mut OwnedFile, key: &str, now: Timestamp) -> Result<PathBuf, Error> {
        self.extract(owned)?;
        self.subtract_used(owned.bytes);
        let path =
            self.move_to(&self.path(owned), BatchDir::Failed, FileName::new(now, key, owned.name.gzip))?;
        self.release(owned);
        Ok(path)
    }

    /// The key in the file name, for a file whose content cannot be read.
    pub fn name_key<'a>(&self, owned: &'a OwnedFile) -> &'a str {
        &owned.name.key
    }

    /// The timestamp in the file name.
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
                    self.disk.sync_dir(&dir).map_err(|error| Error::io("sync", &dir, error))?;
                    return Ok(to);
                }
                Err(error) if already_exists(&error) && name.copy < COPIES_MAX => name.copy += 1,
                Err(error) => return Err(Error::io("move", from, error)),
            }
        }
    }

    fn rewrite(&self, owned: &mut OwnedFile, stored: &StoredBatch, gzip: bool) -> Result<(), Error> {
        let bytes = stored.encode(gzip);
        let failed = |error| Error::io("write", &self.process_dir.path().join(&owned.file), error);
        if gzip == owned.name.gzip {
            self.disk.replace(self.process_dir.path(), &owned.file, &bytes).map_err(failed)?;
        } else {
            let name = FileName { gzip, ..owned.name.clone() };
            let file = name.text(BatchDir::Spool.as_str());
            self.disk.replace(self.process_dir.path(), &file, &bytes).map_err(failed)?;
            // For a moment both exist: the same batch twice, which the receiver counts once.
            self.leave_own_group(owned)?;
            let _ = self.disk.remove(&self.process_dir.path().join(&owned.file));
            (owned.file, owned.name) = (file, name);
        }
        self.leave_own_group(owned)?;
        let grown = bytes.len() as u64;
        self.add_used(grown);
        self.subtract_used(owned.bytes);
        owned.bytes = grown;
        Ok(())
    }

    fn add_used(&self, bytes: u64) {
        self.used.fetch_add(bytes, Relaxed);
    }

    fn subtract_used(&self, bytes: u64) {
        // Never fails, because the closure always returns a value.
        let _ = self.used.fetch_update(Relaxed, Relaxed, |used| Some(used.saturating_sub(bytes)));
    }

    fn check_quota(&self, bytes: u64) -> Result<(), Error> {
        let Some(most) = self.options.max_bytes else { return Ok(()) };
        if self.used.load(Relaxed) + bytes > most {
            // Other processes may have freed space.
            self.measure()?;
        }
        let used = self.used.load(Relaxed);
        if used + bytes > most { Err(Error::Quota { used, most }) } else { Ok(()) }
    }

    fn measure(&self) -> Result<(), Error> {
        if self.options.max_bytes.is_some() {
            let is_batches = |entry: &fs::DirEntry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                is_group(&name) || FileName::parse(BatchDir::Spool.as_str(), &name).is_some()
            };
            let size = |entry: fs::DirEntry| entry.metadata().map_or(0, |metadata| metadata.len());
            let own: u64 = fs::read_dir(self.process_dir.path())
                .map(|entries| entries.flatten().filter(is_batches).map(size).sum())
                .unwrap_or_default();
            self.used.store(self.layout.size(BatchDir::Spool)?.1 + own, Relaxed);
        }
        Ok(())
    }
}
