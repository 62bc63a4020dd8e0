//! The files of a directory, one for each process. A process locks its file as long as it uses it.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Processes that can use one directory at the same time.
const FILES_MAX: u32 = 64;

/// The first file of the directory that no other process has locked.
pub(crate) fn take(dir: &Path) -> std::io::Result<(PathBuf, File)> {
    for (path, lock_path) in all(dir) {
        if let Some(lock) = lock(&lock_path)? {
            return Ok((path, lock));
        }
    }
    Err(std::io::Error::other(format!("{FILES_MAX} processes are using it already")))
}

/// Each file that a process may use, and its lock. They need not exist.
pub(crate) fn all(dir: &Path) -> impl Iterator<Item = (PathBuf, PathBuf)> {
    (1..=FILES_MAX).map(|number| {
        (dir.join(format!("history-{number}.sqlite")), dir.join(format!("history-{number}.lock")))
    })
}

/// Locks a file, unless another process has done so.
pub(crate) fn lock(path: &Path) -> std::io::Result<Option<File>> {
    let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
