//! A directory of a process's own, locked while it lives.
//!
//! A file is *taken* by renaming it into that directory: of two takers one succeeds. The directory gets its name only
//! after it is locked, so that nobody takes a process that begins for one that died. What the dead held, whose lock can
//! be had, is given back by the next one that looks.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ichido_core::Timestamp;

use crate::disk::{
    Disk, TEMP_PREFIX, already_exists, create_private_dir, file_names, is_irregular, open_lock, open_regular,
};

const LOCK: &str = "lock";
/// What the process notes of its requests. It goes with the directory.
pub(crate) const REQUESTS: &str = "requests";
const NAME_ATTEMPTS_MAX: u32 = 1_000;

/// The directory, until this is dropped.
#[derive(Debug)]
pub(crate) struct ProcessDir {
    path: PathBuf,
    _lock: File,
}

impl ProcessDir {
    /// Makes one below `inflight`.
    pub(crate) fn create(disk: &Disk, inflight: &Path, now: Timestamp) -> io::Result<Self> {
        let pid = std::process::id();
        for number in 0..NAME_ATTEMPTS_MAX {
            let name = format!("{pid}-{}", now.0 + u64::from(number));
            match Self::named(disk, inflight, &name) {
                Ok(dir) => return Ok(dir),
                // The name is taken, or another process took what is not locked yet for something left behind.
                Err(error) if already_exists(&error) || error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other(format!("no free name in {}", inflight.display())))
    }

    fn named(disk: &Disk, inflight: &Path, name: &str) -> io::Result<Self> {
        let (half, path) = (inflight.join(format!("{TEMP_PREFIX}{name}")), inflight.join(name));
        create_private_dir(&half)?;
        let lock = open_lock(&half.join(LOCK))?;
        lock.set_permissions(Permissions::from_mode(0o600))?;
        lock.try_lock().map_err(|_| io::Error::from(io::ErrorKind::AlreadyExists))?;
        disk.rename_new(&half, &path)?;
        // Whoever took the unfinished directory for one of the dead has removed the lock.
        path.join(LOCK).metadata()?;
        disk.sync_dir(inflight)?;
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the directory, which is the process's: `<pid>-<start>`.
    pub(crate) fn name(&self) -> String {
        name(&self.path)
    }
}

impl Drop for ProcessDir {
    fn drop(&mut self) {
        // What is still here is for whoever comes next.
        remove_if_empty(&self.path);
    }
}

/// What a process left that is gone, until this is dropped: nobody else gives it back meanwhile.
#[derive(Debug)]
pub(crate) struct AbandonedDir {
    path: PathBuf,
    _lock: File,
}

/// The dead below `inflight`. `own` is ours.
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
                // No process of ours made it, so nobody knows whether one is at work here.
                tracing::error!(dir = %path.display(), "lock is not a regular file; leaving the directory alone");
                None
            }
            // It is empty, being made or going, or it is not ours.
            Err(_) => {
                let _ = fs::remove_dir(&path);
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The name of its directory, which is the process's.
    pub(crate) fn name(&self) -> String {
        name(&self.path)
    }

    /// The files that it held.
    pub(crate) fn files(&self) -> io::Result<Vec<String>> {
        let mut files = file_names(&self.path)?;
        files.retain(|file| !is_internal(file) && !file.starts_with(TEMP_PREFIX));
        Ok(files)
    }

    /// Removes the directory and what was never finished. Anything else in it stays, and the directory with it.
    pub(crate) fn remove(self) -> io::Result<()> {
        for half in file_names(&self.path)?.into_iter().filter(|file| file.starts_with(TEMP_PREFIX)) {
            // Nobody was told that it was accepted.
            let _ = fs::remove_file(self.path.join(half));
        }
        remove_if_empty(&self.path);
        Ok(())
    }
}

/// Whether a file is the directory's own, and goes with it.
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
