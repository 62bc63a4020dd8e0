//! Where batches lie, for whoever only looks.
//!
//! ```text
//! data/spool/spool_….json             waits
//! data/spool/.inflight/<pid>-<start>/ is being sent by that process, which holds the file `lock` in it
//! data/failed/failed_….json           needs a person
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ichido_core::Timestamp;

use super::error::Error;
use super::file_name::Name;
use super::format::{Corrupt, Head, MOST_BYTES, Stored, peek_head, peek_not_before};
use crate::disk::{Disk, is_irregular, read_head};
use crate::time::parse_iso;

/// The key, the first attempt, the count and `notBefore` are within this.
const HEAD_BYTES: u64 = 512;
/// And the last error is within this, unless it is very long.
const ERROR_BYTES: u64 = 16 << 10;
/// Threads that read at once, and the number of files from which on they are worth it.
const MOST_WORKERS: usize = 4;
const WORTH_A_THREAD: usize = 64;

/// Which place a batch lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It waits for the next pass.
    Spool,
    /// It needs a person.
    Failed,
}

impl Place {
    /// The first word of the files' names.
    pub fn word(self) -> &'static str {
        match self {
            Place::Spool => "spool",
            Place::Failed => "failed",
        }
    }
}

/// The directories below `DATA_DIR`.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
}

/// A file of ours, by its name alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// What its name says; files are ordered by it, oldest first.
    pub name: Name,
    /// Its name.
    pub file: String,
}

impl Listed {
    /// The moment in its name: the first attempt, or the move to failed.
    pub fn at(&self) -> Timestamp {
        named_time(&self.name)
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
    pub fn dir(&self, place: Place) -> PathBuf {
        self.root.join(place.word())
    }

    /// `data/spool/.inflight`
    pub fn inflight(&self) -> PathBuf {
        self.dir(Place::Spool).join(".inflight")
    }

    /// The oldest files after `after`, at most so many, oldest first. Memory is bounded by `most`, not by the directory.
    pub fn oldest(&self, place: Place, after: Option<&Listed>, most: usize) -> Result<Vec<Listed>, Error> {
        self.survey(place, after, most).map(|(_, oldest)| oldest)
    }

    /// The same, and how many files of ours there are in all, in one reading of the directory.
    pub fn survey(
        &self,
        place: Place,
        after: Option<&Listed>,
        most: usize,
    ) -> Result<(u64, Vec<Listed>), Error> {
        let mut files = 0;
        let mut found: Vec<Listed> = Vec::new();
        self.each_listed(place, |listed| {
            files += 1;
            if after.is_some_and(|after| listed <= *after) {
                return;
            }
            found.push(listed);
            // The newer half goes, each time as many have come as may stay.
            if found.len() > most.saturating_mul(2) {
                found.select_nth_unstable(most);
                found.truncate(most);
            }
        })?;
        found.sort_unstable();
        found.truncate(most);
        Ok((files, found))
    }

    /// Shows every file of ours, in no order.
    pub(super) fn each_listed(&self, place: Place, mut see: impl FnMut(Listed)) -> Result<(), Error> {
        self.each(place, |file| {
            if let Some(name) = Name::parse(place.word(), &file) {
                see(Listed { name, file });
            }
        })
    }

    /// How many files of ours there are, and how many bytes they have. Foreign files do not count.
    pub fn size(&self, place: Place) -> Result<(u64, u64), Error> {
        let (mut files, mut bytes) = (0, 0);
        let dir = self.dir(place);
        self.each(place, |file| {
            if Name::parse(place.word(), &file).is_some() {
                files += 1;
                bytes += fs::symlink_metadata(dir.join(&file)).map_or(0, |metadata| metadata.size());
            }
        })?;
        Ok((files, bytes))
    }

    /// How many files of ours there are.
    pub fn count(&self, place: Place) -> Result<u64, Error> {
        let mut files = 0;
        self.each_listed(place, |_| files += 1)?;
        Ok(files)
    }

    /// Files that are not ours.
    pub fn foreign(&self, place: Place) -> Result<Vec<String>, Error> {
        let mut foreign = Vec::new();
        self.each(place, |file| {
            if file != ".inflight" && Name::parse(place.word(), &file).is_none() {
                foreign.push(file);
            }
        })?;
        foreign.sort();
        Ok(foreign)
    }

    fn each(&self, place: Place, mut see: impl FnMut(String)) -> Result<(), Error> {
        let dir = self.dir(place);
        let entries = match fs::read_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(|error| Error::io("reading", &dir, error))?,
        };
        for entry in entries {
            let entry = entry.map_err(|error| Error::io("reading", &dir, error))?;
            see(entry.file_name().to_string_lossy().into_owned());
        }
        Ok(())
    }

    /// How long a batch in the spool waits, if its file says so where it is quick to see.
    pub fn not_before(&self, listed: &Listed) -> Option<Timestamp> {
        let head = read_head(&self.dir(Place::Spool).join(&listed.file), HEAD_BYTES).ok()?;
        peek_not_before(&head)
    }

    /// What a file says of its batch where it is quick to see. `None` for packed files, and for those of others.
    pub fn head(&self, place: Place, listed: &Listed) -> Option<Head> {
        if listed.name.gzip {
            return None;
        }
        let head = read_head(&self.dir(place).join(&listed.file), ERROR_BYTES).ok()?;
        peek_head(&head)
    }

    /// Looks at files, several at once; what was seen of them comes in their order.
    pub fn look<T: Send>(
        &self,
        place: Place,
        listed: &[Listed],
        see: impl Fn(&Listed, Result<Result<Stored, Corrupt>, Error>) -> T + Sync,
    ) -> Vec<T> {
        let (disk, dir) = (Disk::default(), self.dir(place));
        let look = |some: &[Listed]| -> Vec<T> {
            let read = |listed: &Listed| read_file(&disk, &dir.join(&listed.file), &listed.name);
            some.iter().map(|listed| see(listed, read(listed))).collect()
        };
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_WORKERS);
        if workers == 1 || listed.len() < WORTH_A_THREAD {
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
                // A thread that was lost has seen nothing: once more, here.
                seen.extend(other.join().unwrap_or_else(|_| look(some)));
            }
            seen
        })
    }

    /// Reads a file.
    pub fn read(&self, place: Place, listed: &Listed) -> Result<Result<Stored, Corrupt>, Error> {
        read_file(&Disk::default(), &self.dir(place).join(&listed.file), &listed.name)
    }
}

/// Reads the file of a batch. What is wrong with its content is `Corrupt`; what is wrong with the disk is an error.
pub(super) fn read_file(disk: &Disk, path: &Path, name: &Name) -> Result<Result<Stored, Corrupt>, Error> {
    match disk.read(path, MOST_BYTES) {
        Ok(bytes) => Ok(Stored::decode_or(&bytes, name.gzip, || named_time(name))),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge || is_irregular(&error) => {
            Ok(Err(Corrupt(error.to_string())))
        }
        Err(error) => Err(Error::io("reading", path, error)),
    }
}

/// The moment in a file's name.
pub(super) fn named_time(name: &Name) -> Timestamp {
    let at = &name.at;
    let cut = |range: std::ops::Range<usize>| at.get(range).unwrap_or_default();
    let iso =
        format!("{}-{}-{}T{}:{}:{}Z", cut(0..4), cut(4..6), cut(6..8), cut(9..11), cut(11..13), cut(13..15));
    parse_iso(&iso).unwrap_or_default()
}
