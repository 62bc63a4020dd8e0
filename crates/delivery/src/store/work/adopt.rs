//! A directory of one's own, and those of the dead.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ichido_core::Timestamp;

use super::{LOCK, MOST_COPIES, Store, is_taken};
use crate::store::layout::Place;
use crate::store::name::Name;
use crate::store::{Error, disk};

impl Store {
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
}

/// A directory under its final name is locked already: nobody can take it for one of the dead.
pub(super) fn own_dir(inflight: &Path, now: Timestamp) -> Result<(PathBuf, File), Error> {
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
pub(super) fn refused(dir: &Path, error: io::Error) -> Error {
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
