//! The directories of the store, for reading.
//!
//! ```text
//! data/spool/spool_….json             waiting to be sent
//! data/spool/.inflight/<pid>-<start>/ being sent by that process, which locks the file `lock` in it
//! data/failed/failed_….json           waiting for an operator
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ichido_core::Timestamp;

use super::error::Error;
use super::file_name::FileName;
use super::format::{BatchHeader, Corrupt, FILE_BYTES_MAX, StoredBatch, peek_header, peek_not_before};
use crate::disk::{Disk, is_irregular, read_head};
use crate::time::parse_iso;

/// The key, the first attempt, the retry count and `notBefore` are within this many bytes.
const NOT_BEFORE_BYTES: u64 = 512;
/// The last error is within this many bytes, unless it is very long.
const HEADER_BYTES: u64 = 16 << 10;
/// The most threads that read at once, and the number of files that makes them worthwhile.
const WORKERS_MAX: usize = 4;
const FILES_TO_PARALLELIZE: usize = 64;

/// A directory that holds batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchDir {
    /// Batches that wait for the next pass.
    Spool,
    /// Batches that need an operator.
    Failed,
}

impl BatchDir {
    /// The name of the directory, which is also the prefix of its files.
    pub fn as_str(self) -> &'static str {
        match self {
            BatchDir::Spool => "spool",
            BatchDir::Failed => "failed",
        }
    }
}

/// The directories below `DATA_DIR`.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
}

/// A batch file, known by its name only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedFile {
    /// The parts of its name. Files are ordered by them, oldest first.
    pub name: FileName,
    /// Its name.
    pub file: String,
}

impl ListedFile {
    /// The timestamp in its name: the first attempt, or the move to failed.
    pub fn at(&self) -> Timestamp {
        name_time(&self.name)
    }
}

impl Layout {
    /// The layout below a directory. Nothing is created.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// `data`
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `data/spool` or `data/failed`
    pub fn dir(&self, batch_dir: BatchDir) -> PathBuf {
        self.root.join(batch_dir.as_str())
    }

    /// `data/spool/.inflight`
    pub fn inflight(&self) -> PathBuf {
        self.dir(BatchDir::Spool).join(".inflight")
    }

    /// The oldest files after `after`, at most `most`, oldest first. Memory is bounded by `most`, not by the directory.
    pub fn oldest(
        &self,
        batch_dir: BatchDir,
        after: Option<&ListedFile>,
        most: usize,
    ) -> Result<Vec<ListedFile>, Error> {
        self.survey(batch_dir, after, most).map(|(_, oldest)| oldest)
    }

    /// Like [`Layout::oldest`], but also counts all batch files in the same pass over the directory.
    pub fn survey(
        &self,
        batch_dir: BatchDir,
        after: Option<&ListedFile>,
        most: usize,
    ) -> Result<(u64, Vec<ListedFile>), Error> {
        let mut files = 0;
        let mut found: Vec<ListedFile> = Vec::new();
        self.each_listed(batch_dir, |listed| {
            files += 1;
            if after.is_some_and(|after| listed <= *after) {
                return;
            }
            found.push(listed);
            // Drop the newer half whenever twice as many files were found as may be kept.
            if found.len() > most.saturating_mul(2) {
                found.select_nth_unstable(most);
                found.truncate(most);
            }
        })?;
        found.sort_unstable();
        found.truncate(most);
        Ok((files, found))
    }

    /// Calls `see` for every batch file, in no particular order.
    pub(crate) fn each_listed(
        &self,
        batch_dir: BatchDir,
        mut see: impl FnMut(ListedFile),
    ) -> Result<(), Error> {
        self.each(batch_dir, |file| {
            if let Some(name) = FileName::parse(batch_dir.as_str(), &file) {
                see(ListedFile { name, file });
            }
        })
    }

    /// The files that are selected by their names, at most `most`, in no particular order.
    pub fn select(
        &self,
        batch_dir: BatchDir,
        is_selected: impl Fn(&ListedFile) -> bool,
        most: usize,
    ) -> Result<Vec<ListedFile>, Error> {
        let mut found = Vec::new();
        self.each_listed(batch_dir, |listed| {
            if found.len() < most && is_selected(&listed) {
                found.push(listed);
            }
        })?;
        Ok(found)
    }

    /// The number of batch files, and their total size in bytes. Foreign files do not count.
    pub fn size(&self, batch_dir: BatchDir) -> Result<(u64, u64), Error> {
        let (mut files, mut bytes) = (0, 0);
        let dir = self.dir(batch_dir);
        self.each(batch_dir, |file| {
            if FileName::parse(batch_dir.as_str(), &file).is_some() {
                files += 1;
                bytes += fs::symlink_metadata(dir.join(&file)).map_or(0, |metadata| metadata.size());
            }
        })?;
        Ok((files, bytes))
    }

    /// The number of batch files.
    pub fn count(&self, batch_dir: BatchDir) -> Result<u64, Error> {
        let mut files = 0;
        self.each_listed(batch_dir, |_| files += 1)?;
        Ok(files)
    }

    /// The names of foreign files.
    pub fn foreign(&self, batch_dir: BatchDir) -> Result<Vec<String>, Error> {
        let mut foreign = Vec::new();
        self.each(batch_dir, |file| {
            if file != ".inflight" && FileName::parse(batch_dir.as_str(), &file).is_none() {
                foreign.push(file);
            }
        })?;
        foreign.sort();
        Ok(foreign)
    }

    fn each(&self, batch_dir: BatchDir, mut see: impl FnMut(String)) -> Result<(), Error> {
        let dir = self.dir(batch_dir);
        let entries = match fs::read_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(|error| Error::io("read", &dir, error))?,
        };
        for entry in entries {
            let entry = entry.map_err(|error| Error::io("read", &dir, error))?;
            see(entry.file_name().to_string_lossy().into_owned());
        }
        Ok(())
    }

    /// The time until which a spooled batch is deferred, if the start of its file names one.
    pub fn not_before(&self, listed: &ListedFile) -> Option<Timestamp> {
        let head = read_head(&self.dir(BatchDir::Spool).join(&listed.file), NOT_BEFORE_BYTES).ok()?;
        peek_not_before(&head)
    }

    /// The fields at the start of a file. `None` for compressed files, and for files of other programs.
    pub fn header(&self, batch_dir: BatchDir, listed: &ListedFile) -> Option<BatchHeader> {
        if listed.name.gzip {
            return None;
        }
        let head = read_head(&self.dir(batch_dir).join(&listed.file), HEADER_BYTES).ok()?;
        peek_header(&head)
    }

    /// Reads files in parallel, and returns the results of `see` in the order of the files.
    pub fn read_each<T: Send>(
        &self,
        batch_dir: BatchDir,
        listed: &[ListedFile],
        see: impl Fn(&ListedFile, Result<Result<StoredBatch, Corrupt>, Error>) -> T + Sync,
    ) -> Vec<T> {
        let (disk, dir) = (Disk::default(), self.dir(batch_dir));
        let look = |some: &[ListedFile]| -> Vec<T> {
            let read = |listed: &ListedFile| read_file(&disk, &dir.join(&listed.file), &listed.name);
            some.iter().map(|listed| see(listed, read(listed))).collect()
        };
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(WORKERS_MAX);
        if workers == 1 || listed.len() < FILES_TO_PARALLELIZE {
            return look(listed);
        }
        let (first, rest) = listed.split_at(listed.len() / workers);
        std::thread::scope(|scope| {
            let others: Vec<_> = rest
                .chunks(rest.len().div_ceil(workers - 1))
                .map(|some| (some, scope.spawn(|| look(some))))
                .collect();
            let mut seen = look(first);
            for (some, other) in others {
                // If a thread panicked, its files are read again here.
                seen.extend(other.join().unwrap_or_else(|_| look(some)));
            }
            seen
        })
    }

    /// Reads a file.
    pub fn read(
        &self,
        batch_dir: BatchDir,
        listed: &ListedFile,
    ) -> Result<Result<StoredBatch, Corrupt>, Error> {
        read_file(&Disk::default(), &self.dir(batch_dir).join(&listed.file), &listed.name)
    }
}

/// Reads a batch file. Invalid content is `Corrupt`; a problem with the disk is an error.
pub(super) fn read_file(
    disk: &Disk,
    path: &Path,
    name: &FileName,
) -> Result<Result<StoredBatch, Corrupt>, Error> {
    match disk.read(path, FILE_BYTES_MAX) {
        Ok(bytes) => Ok(StoredBatch::decode_or(&bytes, name.gzip, || name_time(name))),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge || is_irregular(&error) => {
            Ok(Err(Corrupt(error.to_string())))
        }
        Err(error) => Err(Error::io("read", path, error)),
    }
}

/// The timestamp in a file name.
pub(super) fn name_time(name: &FileName) -> Timestamp {
    let at = &name.at;
    let cut = |range: std::ops::Range<usize>| at.get(range).unwrap_or_default();
    let iso =
        format!("{}-{}-{}T{}:{}:{}Z", cut(0..4), cut(4..6), cut(6..8), cut(9..11), cut(11..13), cut(13..15));
    parse_iso(&iso).unwrap_or_default()
}
