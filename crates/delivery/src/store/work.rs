//! A process at work on the store.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ichido_core::Timestamp;

use super::format::{Corrupt, Stored};
use super::layout::{Layout, Listed, Place, named_time, read_file};
use super::name::Name;
use super::{Error, disk};

const LOCK: &str = "lock";
/// Names with suffixes that are tried before giving up.
const MOST_COPIES: u32 = 10_000;

/// How batches are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Packs what is spooled.
    pub gzip: bool,
    /// The most bytes that may wait.
    pub max_bytes: Option<u64>,
}

/// The store, opened to work on it.
#[derive(Debug)]
pub struct Store {
    layout: Layout,
    options: Options,
    own: PathBuf,
    lock: File,
    /// Bytes that wait, if there is a bound on them.
    used: AtomicU64,
    /// Files that wait, by the part of their key that is in their name. Read once, when it is first needed.
    waiting: Mutex<Option<Waiting>>,
}

type Waiting = HashMap<String, Vec<Listed>>;

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
        let layout = Layout::new(root);
        for dir in [layout.dir(Place::Spool), layout.inflight(), layout.dir(Place::Failed)] {
            disk::private_dir(&dir).map_err(|error| refused(&dir, error))?;
        }
        let (own, lock) = own_dir(&layout.inflight(), now)?;
        let store = Self { used: AtomicU64::new(0), waiting: Mutex::new(None), layout, options, own, lock };
        store.adopt()?;
        store.measure()?;
        Ok(store)
    }

    /// The directories.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The path of a file in this process's hands.
    pub fn path(&self, held: &Held) -> PathBuf {
        self.own.join(&held.file)
    }

    /// Write-ahead: the batch is on disk before anything is sent.
    pub fn accept(&self, stored: &Stored) -> Result<Held, Error> {
        let bytes = stored.encode(false);
        self.make_room(bytes.len() as u64)?;
        let mut name = Name::new(stored.first_attempt, stored.batch.key(), false);
        loop {
            let file = name.text(Place::Spool.word());
            match disk::create(&self.own, &file, &bytes) {
                Ok(()) => {
                    self.used.store(self.used.load(Relaxed) + bytes.len() as u64, Relaxed);
                    return Ok(Held { file, name, bytes: bytes.len() as u64 });
                }
                Err(error) if is_taken(&error) && name.copy < MOST_COPIES => name.copy += 1,
                Err(error) => return Err(Error::io("writing", &self.own.join(&file), error)),
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
            match disk::rename_new(&from, &self.own.join(&file)) {
                Ok(()) => {
                    self.forget(listed);
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
        read_file(&self.path(held), &held.name)
    }

    /// The batch has arrived. That the file is gone need not be durable: if it comes back, the receiver knows it.
    pub fn remove(&self, held: &Held) -> Result<(), Error> {
        let path = self.path(held);
        self.used.store(self.used.load(Relaxed).saturating_sub(held.bytes), Relaxed);
        fs::remove_file(&path).map_err(|error| Error::io("removing", &path, error))
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
        self.place(&self.path(held), Place::Failed, Name::new(now, key, held.name.gzip))
    }

    /// The key in a file's name, where its content cannot be read.
    pub fn named_key<'a>(&self, held: &'a Held) -> &'a str {
        &held.name.key
    }

    /// The moment in a file's name.
    pub fn named_time(&self, held: &Held) -> Timestamp {
        named_time(&held.name)
    }

    /// Gives back to the spool what dead processes held. Says how many batches.
    pub fn adopt(&self) -> Result<usize, Error> {
        let dir = self.layout.inflight();
        let mut adopted = 0;
        for entry in fs::read_dir(&dir).map_err(|error| Error::io("reading", &dir, error))?.flatten() {
            let left = entry.path();
            if left == self.own || !left.is_dir() {
                continue;
            }
            // Whoever lives holds its lock. A directory without one is empty, or not ours.
            let Ok(lock) = OpenOptions::new().write(true).open(left.join(LOCK)) else {
                let _ = fs::remove_dir(&left);
                continue;
            };
            if lock.try_lock().is_ok() {
                // What was never finished holds no batch; it goes the same way.
                adopted += self.adopt_dir(&left)?;
            }
        }
        Ok(adopted)
    }

    fn adopt_dir(&self, left: &Path) -> Result<usize, Error> {
        let mut adopted = 0;
        let entries = match fs::read_dir(left) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            other => other.map_err(|error| Error::io("reading", left, error))?,
        };
        for entry in entries.flatten() {
            let path = entry.path();
            let file = entry.file_name().to_string_lossy().into_owned();
            if let Some(mut name) = Name::parse(Place::Spool.word(), &file) {
                name.copy = 1;
                self.place(&path, Place::Spool, name)?;
                adopted += 1;
            } else if file.starts_with(disk::HALF) {
                // Nobody was told that it was accepted.
                let _ = fs::remove_file(&path);
            }
        }
        let _ = fs::remove_file(left.join(LOCK));
        let _ = fs::remove_dir(left);
        Ok(adopted)
    }

    /// Moves a file to a free name, durably.
    fn place(&self, from: &Path, place: Place, mut name: Name) -> Result<PathBuf, Error> {
        let dir = self.layout.dir(place);
        loop {
            let to = dir.join(name.text(place.word()));
            match disk::rename_new(from, &to) {
                Ok(()) => {
                    disk::sync_dir(&dir).map_err(|error| Error::io("syncing", &dir, error))?;
                    return Ok(to);
                }
                Err(error) if is_taken(&error) && name.copy < MOST_COPIES => name.copy += 1,
                Err(error) => return Err(Error::io("moving", from, error)),
            }
        }
    }

    fn rewrite(&self, held: &mut Held, stored: &Stored, gzip: bool) -> Result<(), Error> {
        let bytes = stored.encode(gzip);
        let failed = |error| Error::io("writing", &self.own.join(&held.file), error);
        if gzip == held.name.gzip {
            disk::replace(&self.own, &held.file, &bytes).map_err(failed)?;
        } else {
            let name = Name { gzip, ..held.name.clone() };
            let file = name.text(Place::Spool.word());
            disk::replace(&self.own, &file, &bytes).map_err(failed)?;
            // Both are there for a moment: the same batch twice, which the receiver counts once.
            let _ = fs::remove_file(self.own.join(&held.file));
            (held.file, held.name) = (file, name);
        }
        let grown = bytes.len() as u64;
        self.used.store((self.used.load(Relaxed) + grown).saturating_sub(held.bytes), Relaxed);
        held.bytes = grown;
        Ok(())
    }

    /// Where the very same batch lies in the spool already.
    fn waits_already(&self, held: &Held) -> Result<Option<PathBuf>, Error> {
        let mut waiting = self.waiting();
        if waiting.is_none() {
            let mut found = Waiting::new();
            for listed in self.layout.oldest(Place::Spool, None, usize::MAX)? {
                found.entry(listed.name.key.clone()).or_default().push(listed);
            }
            *waiting = Some(found);
        }
        let alike = waiting.as_ref().and_then(|waiting| waiting.get(&held.name.key)).cloned();
        drop(waiting);
        let Some(alike) = alike else { return Ok(None) };
        let Ok(ours) = self.read(held)? else { return Ok(None) };
        for listed in alike {
            // What is gone meanwhile is in the hands of another process, or has arrived.
            if let Ok(Ok(theirs)) = self.layout.read(Place::Spool, &listed)
                && theirs.batch.key() == ours.batch.key()
                && same_records(&theirs, &ours)
            {
                return Ok(Some(self.layout.dir(Place::Spool).join(&listed.file)));
            }
        }
        Ok(None)
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, path: &Path) {
        let file = path.file_name().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
        if let Some(waiting) = self.waiting().as_mut()
            && let Some(name) = Name::parse(Place::Spool.word(), &file)
        {
            waiting.entry(name.key.clone()).or_default().push(Listed { name, file });
        }
    }

    fn forget(&self, listed: &Listed) {
        if let Some(waiting) = self.waiting().as_mut()
            && let Some(alike) = waiting.get_mut(&listed.name.key)
        {
            alike.retain(|other| other.file != listed.file);
            if alike.is_empty() {
                waiting.remove(&listed.name.key);
            }
        }
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
            let own: u64 = fs::read_dir(&self.own)
                .map(|entries| {
                    entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|file| file.len()).sum()
                })
                .unwrap_or_default();
            self.used.store(self.layout.size(Place::Spool)?.1 + own, Relaxed);
        }
        Ok(())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // What is still here is for whoever comes next: only an empty directory goes.
        let is_empty = fs::read_dir(&self.own)
            .is_ok_and(|entries| entries.flatten().all(|entry| entry.file_name() == LOCK));
        if is_empty {
            let _ = fs::remove_file(self.own.join(LOCK));
            let _ = fs::remove_dir(&self.own);
        }
        let _ = self.lock.unlock();
    }
}

fn same_records(one: &Stored, other: &Stored) -> bool {
    let (one, other) = (one.batch.records(), other.batch.records());
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.json() == other.json())
}

fn is_taken(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AlreadyExists
}

/// A directory under its final name is locked already: nobody can take it for one of the dead.
fn own_dir(inflight: &Path, now: Timestamp) -> Result<(PathBuf, File), Error> {
    let pid = std::process::id();
    for copy in 0..MOST_COPIES {
        let stamp = now + u64::from(copy);
        let (fresh, own) =
            (inflight.join(format!(".new-{pid}-{stamp}")), inflight.join(format!("{pid}-{stamp}")));
        let made = (|| {
            disk::private_dir(&fresh)?;
            let lock = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .open(fresh.join(LOCK))?;
            lock.set_permissions(fs::Permissions::from_mode(0o600))?;
            lock.try_lock().map_err(|_| io::Error::from(io::ErrorKind::AlreadyExists))?;
            disk::rename_new(&fresh, &own)?;
            // Whoever took the unfinished directory for one of the dead has removed the lock.
            own.join(LOCK).metadata()?;
            disk::sync_dir(inflight)?;
            Ok(lock)
        })();
        match made {
            Ok(lock) => return Ok((own, lock)),
            Err(error) if is_taken(&error) || error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(refused(&own, error)),
        }
    }
    Err(refused(inflight, io::Error::from(io::ErrorKind::AlreadyExists)))
}

/// A directory that cannot be worked in, with its rights.
fn refused(dir: &Path, error: io::Error) -> Error {
    let there = dir.ancestors().find_map(|dir| fs::metadata(dir).ok().map(|metadata| (dir, metadata)));
    let source = match there {
        Some((there, metadata)) => {
            let mode = metadata.permissions().mode() & 0o7777;
            io::Error::new(error.kind(), format!("{error} ({} has mode {mode:04o})", there.display()))
        }
        None => error,
    };
    Error::io("preparing", dir, source)
}
