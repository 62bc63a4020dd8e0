//! Files that are whole or not there.
//!
//! A file is written under a temporary name, synced, and only then gets its own; its directory is synced after that.
//! Nothing that has a name of ours is ever overwritten by something else.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

/// How names of unfinished files begin. Such files are never read.
pub(crate) const TEMP_PREFIX: &str = ".half-";

/// What is about to be done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A new file is opened under its unfinished name.
    Create,
    /// Its bytes are written. Refused, some of them are written all the same.
    Write,
    /// Its bytes are made durable.
    Sync,
    /// A file gets another name.
    Rename,
    /// Names in a directory are made durable.
    SyncDir,
    /// A file is removed.
    Remove,
    /// A file is read.
    Read,
}

/// Stands between a process and its disk, for those who want to see what it does when the disk refuses, or when it dies.
pub trait Faults: std::fmt::Debug + Send + Sync {
    /// Called before each operation. An error is what the disk says instead of doing it.
    fn before(&self, op: Op, path: &Path) -> io::Result<()>;
}

/// The files of a process.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    faults: Option<Arc<dyn Faults>>,
}

impl Disk {
    /// The real disk, behind someone who may refuse.
    pub fn with_faults(faults: Arc<dyn Faults>) -> Self {
        Self { faults: Some(faults) }
    }

    fn before(&self, op: Op, path: &Path) -> io::Result<()> {
        self.faults.as_ref().map_or(Ok(()), |faults| faults.before(op, path))
    }

    /// Makes names in a directory durable.
    pub(crate) fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.before(Op::SyncDir, dir)?;
        File::open(dir)?.sync_all()
    }

    /// Writes a new file, synced, under a name that must be free.
    pub(crate) fn create(&self, dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
        let half = self.write_temp(dir, name, bytes)?;
        let path = dir.join(name);
        if let Err(error) = self.rename_new(&half, &path) {
            let _ = fs::remove_file(&half);
            return Err(error);
        }
        // A name that may not last is not there: whoever asked is told that nothing was written.
        self.sync_dir(dir).inspect_err(|_| drop(fs::remove_file(&path)))
    }

    /// Replaces a file in one step: whoever reads sees the old one or the new one.
    pub fn replace(&self, dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
        let half = self.write_temp(dir, name, bytes)?;
        if let Err(error) = self.rename(&half, &dir.join(name)) {
            let _ = fs::remove_file(&half);
            return Err(error);
        }
        self.sync_dir(dir)
    }

    /// Writes a file for the owner alone under an unfinished name, synced.
    pub(crate) fn write_temp(&self, dir: &Path, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
        let half = dir.join(format!("{TEMP_PREFIX}{name}"));
        let written = self.before(Op::Create, &half).and_then(|()| {
            let mut file =
                open_regular(OpenOptions::new().write(true).create(true).truncate(true).mode(0o600), &half)?;
            // The umask may have taken even the owner's rights.
            file.set_permissions(Permissions::from_mode(0o600))?;
            if let Err(error) = self.before(Op::Write, &half) {
                let _ = file.write_all(&bytes[..bytes.len() / 2]);
                return Err(error);
            }
            file.write_all(bytes)?;
            self.before(Op::Sync, &half)?;
            file.sync_all()
        });
        if let Err(error) = written {
            let _ = fs::remove_file(&half);
            return Err(error);
        }
        Ok(half)
    }

    /// Replaces a file in one step without a sync: it survives the process, not the machine. Gives the file to append to.
    pub(crate) fn replace_unsynced(&self, dir: &Path, name: &str, bytes: &[u8]) -> io::Result<File> {
        let half = dir.join(format!("{TEMP_PREFIX}{name}"));
        let written = self.open_append(&half).and_then(|mut file| {
            self.append(&mut file, &half, bytes)?;
            self.rename(&half, &dir.join(name))?;
            Ok(file)
        });
        written.inspect_err(|_| drop(fs::remove_file(&half)))
    }

    /// Opens a file for the owner alone, to append to it; creates it if it is not there.
    pub(crate) fn open_append(&self, path: &Path) -> io::Result<File> {
        self.before(Op::Create, path)?;
        let file = open_regular(OpenOptions::new().append(true).create(true).mode(0o600), path)?;
        // The umask may have taken even the owner's rights.
        file.set_permissions(Permissions::from_mode(0o600))?;
        Ok(file)
    }

    /// Appends to a file, without a sync.
    pub(crate) fn append(&self, file: &mut File, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.before(Op::Write, path) {
            let _ = file.write_all(&bytes[..bytes.len() / 2]);
            return Err(error);
        }
        file.write_all(bytes)
    }

    /// Makes what was appended durable.
    pub(crate) fn sync_data(&self, file: &File, path: &Path) -> io::Result<()> {
        self.before(Op::Sync, path)?;
        file.sync_data()
    }

    /// Renames over whatever has the new name.
    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.before(Op::Rename, to)?;
        fs::rename(from, to)
    }

    /// Renames, unless the new name is taken ([`already_exists`]).
    pub(crate) fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.before(Op::Rename, to)?;
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

    /// Removes a file.
    pub(crate) fn remove(&self, path: &Path) -> io::Result<()> {
        self.before(Op::Remove, path)?;
        fs::remove_file(path)
    }

    /// Reads a regular file of at most so many bytes, as [`read_regular`] does.
    pub(crate) fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        self.before(Op::Read, path)?;
        read_regular(path, limit)
    }
}

/// Reads a regular file of at most so many bytes.
pub fn read_regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(OpenOptions::new().read(true), path)?;
    let length = file.metadata()?.len();
    if length > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {limit} bytes")));
    }
    take(file, length)
}

/// Reads at most so many bytes from the beginning of a regular file.
pub(crate) fn read_head(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(OpenOptions::new().read(true), path)?;
    let length = file.metadata()?.len();
    take(file, length.min(limit))
}

/// Reads no more than a file is known to have: asking whether there is more would be one more call for each file.
fn take(file: File, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a file of ours; whatever is not a regular file is refused with [`is_irregular`].
///
/// Anyone who can write to the directory can put a FIFO, a socket, a link or a directory under a name of ours. Opening
/// must not wait for the other end of a FIFO, and must not follow a link to a file elsewhere.
pub(crate) fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or_default();
    let irregular = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
    let file = options.custom_flags(flags).open(path).map_err(|error| {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            // A link; a socket, or a FIFO that nobody reads; a directory opened for writing.
            Some(Errno::LOOP | Errno::NXIO | Errno::ISDIR) => irregular(),
            Some(_) | None => error,
        }
    })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(irregular()) }
}

/// Opens a lock file that is created if it is missing, for the owner alone.
pub fn open_lock(path: &Path) -> io::Result<File> {
    open_regular(OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600), path)
}

/// Whether a file was refused because it is not a regular file.
pub(crate) fn is_irregular(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput
}

/// Creates a directory for the owner alone, or makes an existing one so. What is missing above it is made so as well.
pub fn create_private_dir(dir: &Path) -> io::Result<()> {
    let parents = dir.ancestors().skip(1).take_while(|parent| !parent.as_os_str().is_empty());
    let missing: Vec<&Path> = parents.take_while(|parent| !parent.exists()).collect();
    for dir in missing.into_iter().rev().chain([dir]) {
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
            other => other?,
        }
        // The umask may have taken even the owner's rights.
        if fs::metadata(dir)?.permissions().mode() & 0o777 != 0o700 {
            fs::set_permissions(dir, Permissions::from_mode(0o700))?;
        }
    }
    Ok(())
}

/// The names in a directory; none if it is gone.
pub fn file_names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

pub(crate) fn already_exists(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty)
}

pub(crate) fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
