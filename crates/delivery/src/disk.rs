//! Files that are whole or not there.
//!
//! A file is written under a temporary name, synced, and only then gets its own; its directory is synced after that.
//! Nothing that has a name of ours is ever overwritten by something else.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

/// How names of unfinished files begin. Such files are never read.
pub(crate) const HALF: &str = ".half-";

/// Creates a directory for the owner alone, or makes an existing one so.
pub(crate) fn private_dir(dir: &Path) -> io::Result<()> {
    if !dir.is_dir() {
        if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other?,
        }
    }
    if fs::metadata(dir)?.permissions().mode() & 0o777 != 0o700 {
        fs::set_permissions(dir, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Makes names in a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Writes a new file, synced, under a name that must be free.
pub(crate) fn create(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let half = write_half(dir, name, bytes)?;
    let named = rename_new(&half, &dir.join(name));
    if named.is_err() {
        let _ = fs::remove_file(&half);
    }
    named?;
    sync_dir(dir)
}

/// Replaces a file in one step: whoever reads sees the old one or the new one.
pub(crate) fn replace(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let half = write_half(dir, name, bytes)?;
    fs::rename(half, dir.join(name))?;
    sync_dir(dir)
}

/// Writes a file for the owner alone under an unfinished name, synced.
pub(crate) fn write_half(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
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
    if let Err(error) = written {
        let _ = fs::remove_file(&half);
        return Err(error);
    }
    Ok(half)
}

/// Renames, unless the new name is taken ([`is_taken`]).
pub(crate) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems cannot. A directory has no second name, but it is not renamed over one that has files.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) if from.is_dir() => fs::rename(from, to),
        // For a file a second name and the end of the first come to the same.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            fs::hard_link(from, to)?;
            fs::remove_file(from)
        }
        other => other.map_err(io::Error::from),
    }
}

/// Reads a regular file of at most so many bytes; a link is not followed.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let nofollow = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(nofollow).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    if metadata.len() > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {most} bytes")));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The names in a directory; none if it is gone.
pub(crate) fn names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

pub(crate) fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty)
}

pub(crate) fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
