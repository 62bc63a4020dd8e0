//! A directory of a process's own, locked while it lives.
//!
//! A file is *taken* by renaming it into that directory: of two takers one succeeds. The directory gets its name only
//! after it is locked, so that nobody takes a process that begins for one that died.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ichido_core::Timestamp;
use rustix::fs::{CWD, RenameFlags, renameat_with};

const LOCK: &str = "lock";
/// How names of unfinished files and directories begin.
pub(super) const HALF: &str = ".half-";
const NAMES_TRIED: u32 = 1_000;

/// The directory, until this is dropped.
#[derive(Debug)]
pub(super) struct Own {
    path: PathBuf,
    _lock: File,
}

impl Own {
    /// Makes one below `inflight`.
    pub(super) fn begin(inflight: &Path, now: Timestamp) -> io::Result<Self> {
        let pid = std::process::id();
        for number in 0..NAMES_TRIED {
            let name = format!("{pid}-{}", now.0 + u64::from(number));
            match Self::named(inflight, &name) {
                Ok(own) => return Ok(own),
                // The name is taken, or another process took what is not locked yet for something left behind.
                Err(error) if is_taken(&error) || error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other(format!("no free name in {}", inflight.display())))
    }

    fn named(inflight: &Path, name: &str) -> io::Result<Self> {
        let (half, path) = (inflight.join(format!("{HALF}{name}")), inflight.join(name));
        DirBuilder::new().mode(0o700).create(&half)?;
        fs::set_permissions(&half, Permissions::from_mode(0o700))?;
        let lock = OpenOptions::new().create_new(true).write(true).mode(0o600).open(half.join(LOCK))?;
        lock.try_lock().map_err(|_| io::Error::from(io::ErrorKind::NotFound))?;
        if let Err(error) = rename_new(&half, &path) {
            let _ = fs::remove_dir_all(&half);
            return Err(error);
        }
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // What is left in it stays: then the directory does, and another process gives it back.
        let _ = fs::remove_file(self.path.join(LOCK));
        let _ = fs::remove_dir(&self.path);
    }
}

/// Gives each file of dead processes to `give_back`, and removes their directories.
pub(super) fn adopt(
    inflight: &Path,
    own: &Path,
    mut give_back: impl FnMut(&Path, &str) -> io::Result<()>,
) -> io::Result<()> {
    for dir in names(inflight)? {
        let path = inflight.join(&dir);
        if path == own {
            continue;
        }
        let lock = match File::open(path.join(LOCK)) {
            Ok(lock) => lock,
            // Being made, or its owner is leaving. One that was left without a lock holds what nobody is sending.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !dir.starts_with(HALF) => {
                let _ = fs::remove_dir(&path);
                if !path.exists() {
                    continue;
                }
                File::open(&path)?
            }
            Err(_) => continue,
        };
        if lock.try_lock().is_err() {
            continue;
        }
        for file in names(&path)? {
            if file != LOCK && !file.starts_with(HALF) {
                give_back(&path.join(&file), &file)?;
            }
        }
        // Only after everything else has left it.
        fs::remove_dir_all(&path).or_else(ignore_missing)?;
    }
    Ok(())
}

/// Creates a directory for the owner alone, or makes an existing one so.
pub(super) fn private_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    if fs::metadata(dir)?.permissions().mode() & 0o777 != 0o700 {
        fs::set_permissions(dir, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Writes a file for the owner alone under an unfinished name in `dir`, synced.
pub(super) fn write_half(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    let half = dir.join(format!("{HALF}{name}"));
    let written =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&half).and_then(
            |mut file| {
                // The umask may have taken even the owner's rights.
                file.set_permissions(Permissions::from_mode(0o600))?;
                file.write_all(bytes)?;
                file.sync_all()
            },
        );
    match written {
        Ok(()) => Ok(half),
        Err(error) => {
            let _ = fs::remove_file(&half);
            Err(error)
        }
    }
}

/// Renames, unless the new name is taken.
pub(super) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::io::Errno;
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems cannot. A directory cannot have two names, but it is not renamed over one that has files.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) if from.is_dir() => fs::rename(from, to),
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            fs::hard_link(from, to)?;
            fs::remove_file(from)
        }
        other => other.map_err(io::Error::from),
    }
}

/// Makes names in a directory durable.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// The names in a directory; none if it is gone.
pub(super) fn names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

pub(super) fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty)
}

pub(super) fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
