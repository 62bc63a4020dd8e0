//! The directory that a process works in, locked until the process ends.
//!
//! A process takes a file by renaming it into its directory: of two processes that try, one succeeds. The directory
//! gets its final name only after it is locked, so that a starting process is never mistaken for a crashed one. If a
//! process crashes, its lock is released, and the next process that looks recovers its files.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ichido_core::Timestamp;

use crate::disk::{
    Disk, TEMP_PREFIX, already_exists, create_private_dir, file_names, is_irregular, open_lock, open_regular,
};

const LOCK: &str = "lock";
/// The log of requests that the process keeps. It is removed with the directory.
pub(crate) const REQUESTS: &str = "requests";
const NAME_ATTEMPTS_MAX: u32 = 1_000;

/// The locked directory of this process. Dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct ProcessDir {
    path: PathBuf,
    _lock: File,
}

impl ProcessDir {
    /// Creates and locks a directory below `inflight`.
    pub(crate) fn create(disk: &Disk, inflight: &Path, now: Timestamp) -> io::Result<Self> {
        let pid = std::process::id();
        for number in 0..NAME_ATTEMPTS_MAX {
            let name = format!("{pid}-{}", now.0 + u64::from(number));
            match Self::named(disk, inflight, &name) {
                Ok(dir) => return Ok(dir),
                // The name exists, or another process removed the directory as abandoned before it was locked.
                Err(error) if already_exists(&error) || error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other(format!("no free directory name in {}", inflight.display())))
    }

    fn named(disk: &Disk, inflight: &Path, name: &str) -> io::Result<Self> {
        let (temp, path) = (inflight.join(format!("{TEMP_PREFIX}{name}")), inflight.join(name));
        create_private_dir(&temp)?;
        let lock = open_lock(&temp.join(LOCK))?;
        lock.set_permissions(Permissions::from_mode(0o600))?;
        lock.try_lock().map_err(|_| io::Error::from(io::ErrorKind::AlreadyExists))?;
        disk.rename_new(&temp, &path)?;
        // A process that mistook the unfinished directory for an abandoned one has removed the lock file.
        path.join(LOCK).metadata()?;
        disk.sync_dir(inflight)?;
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the directory, which identifies the process: `<pid>-<start>`.
    pub(crate) fn name(&self) -> String {
        name(&self.path)
    }
}

impl Drop for ProcessDir {
    fn drop(&mut self) {
        // The next process recovers whatever is still here.
        remove_if_empty(&self.path);
    }
}

/// The directory of a crashed process. Holding its lock keeps other processes from recovering it too.
#[derive(Debug)]
pub(crate) struct AbandonedDir {
    path: PathBuf,
    _lock: File,
}

/// The directories of crashed processes below `inflight`. `own_dir` is skipped.
pub(crate) fn abandoned(inflight: &Path, own_dir: &Path) -> io::Result<impl Iterator<Item = AbandonedDir>> {
    let dirs: Vec<PathBuf> = file_names(inflight)?.into_iter().map(|name| inflight.join(name)).collect();
    let own_dir = own_dir.to_owned();
    let is_dir = |path: &Path| path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
    Ok(dirs.into_iter().filter(move |path| *path != own_dir && is_dir(path)).filter_map(AbandonedDir::find))
}

impl AbandonedDir {
    fn find(path: PathBuf) -> Option<Self> {
        match open_regular(OpenOptions::new().write(true), &path.join(LOCK)) {
            Ok(lock) => lock.try_lock().ok().map(|()| Self { path, _lock: lock }),
            Err(error) if is_irregular(&error) => {
                // None of our processes created this lock, so it is unknown whether one is working here.
                tracing::error!(dir = %path.display(), "lock is not a regular file; leaving the directory alone");
                None
            }
            // The directory is empty, is being created or removed, or is not ours.
            Err(_) => {
                let _ = fs::remove_dir(&path);
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the directory, which identifies the process.
    pub(crate) fn name(&self) -> String {
        name(&self.path)
    }

    /// The files that the process had taken.
    pub(crate) fn files(&self) -> io::Result<Vec<String>> {
        let mut files = file_names(&self.path)?;
        files.retain(|file| !is_internal(file) && !file.starts_with(TEMP_PREFIX));
        Ok(files)
    }

    /// Removes the directory and its temporary files. If anything else is left in it, the directory stays.
    pub(crate) fn remove(self) -> io::Result<()> {
        for temp in file_names(&self.path)?.into_iter().filter(|file| file.starts_with(TEMP_PREFIX)) {
            // Its content was never acknowledged.
            let _ = fs::remove_file(self.path.join(temp));
        }
        remove_if_empty(&self.path);
        Ok(())
    }
}

/// Whether a file belongs to the directory itself and is removed with it.
fn is_internal(file: &str) -> bool {
    file == LOCK || file == REQUESTS
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn remove_if_empty(dir: &Path) {
    if file_names(dir).is_ok_and(|files| files.iter().all(|file| is_internal(file))) {
        let _ = fs::remove_file(dir.join(REQUESTS));
        let _ = fs::remove_file(dir.join(LOCK));
        let _ = fs::remove_dir(dir);
    }
}
