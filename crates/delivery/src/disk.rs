//! Durable file operations: a file is either complete or absent.
//!
//! A file is written under a temporary name, synced, and then renamed; after that its directory is synced. A file of
//! ours is never overwritten by something else.
//!
//! Tests inject errors and crashes through [`Faults`].

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

/// Prefix of temporary files, which are never read.
pub(crate) const TEMP_PREFIX: &str = ".half-";

/// An operation that is about to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Open a new file under its temporary name.
    Create,
    /// Write its bytes. If a fault is injected here, half of them are written.
    Write,
    /// Sync its bytes.
    Sync,
    /// Rename a file.
    Rename,
    /// Sync the names in a directory.
    SyncDir,
    /// Remove a file.
    Remove,
    /// Read a file.
    Read,
}

/// Injects disk errors and crashes in tests.
pub trait Faults: std::fmt::Debug + Send + Sync {
    /// Called before each operation. An error is returned instead of performing the operation.
    fn before(&self, op: Op, path: &Path) -> io::Result<()>;
}

/// File operations of one process, with optional fault injection.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    faults: Option<Arc<dyn Faults>>,
}

impl Disk {
    /// The real disk, with faults injected before its operations.
    pub fn with_faults(faults: Arc<dyn Faults>) -> Self {
        Self { faults: Some(faults) }
    }

    fn before(&self, op: Op, path: &Path) -> io::Result<()> {
        self.faults.as_ref().map_or(Ok(()), |faults| faults.before(op, path))
    }

    /// Syncs the names in a directory.
    pub(crate) fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.before(Op::SyncDir, dir)?;
        File::open(dir)?.sync_all()
    }

    /// Writes and syncs a new file. The name must not exist yet.
    pub(crate) fn create(&self, dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
        let temp = self.write_temp(dir, name, bytes)?;
        let path = dir.join(name);
        if let Err(error) = self.rename_new(&temp, &path) {
            let _ = fs::remove_file(&temp);
            return Err(error);
        }
        // If the name may not survive a power failure, the caller must be able to rely on the file being absent.
        self.sync_dir(dir).inspect_err(|_| drop(fs::remove_file(&path)))
    }

    /// Replaces a file atomically, synced and with mode 0600: a reader sees the old content or the new.
    pub fn replace(&self, dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
        let temp = self.write_temp(dir, name, bytes)?;
        if let Err(error) = self.rename(&temp, &dir.join(name)) {
            let _ = fs::remove_file(&temp);
            return Err(error);
        }
        self.sync_dir(dir)
    }

    /// Writes and syncs a file with mode 0600 under its temporary name.
    pub(crate) fn write_temp(&self, dir: &Path, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
        let temp = dir.join(format!("{TEMP_PREFIX}{name}"));
        let written = self.before(Op::Create, &temp).and_then(|()| {
            let mut file =
                open_regular(OpenOptions::new().write(true).create(true).truncate(true).mode(0o600), &temp)?;
            // The umask may have removed even the owner's permissions.
            file.set_permissions(Permissions::from_mode(0o600))?;
            if let Err(error) = self.before(Op::Write, &temp) {
                let _ = file.write_all(&bytes[..bytes.len() / 2]);
                return Err(error);
            }
            file.write_all(bytes)?;
            self.before(Op::Sync, &temp)?;
            file.sync_all()
        });
        if let Err(error) = written {
            let _ = fs::remove_file(&temp);
            return Err(error);
        }
        Ok(temp)
    }

    /// Replaces a file atomically without a sync: it survives the process, not the machine. Returns it for appending.
    pub(crate) fn replace_unsynced(&self, dir: &Path, name: &str, bytes: &[u8]) -> io::Result<File> {
        let temp = dir.join(format!("{TEMP_PREFIX}{name}"));
        let written = self.open_append(&temp).and_then(|mut file| {
            self.append(&mut file, &temp, bytes)?;
            self.rename(&temp, &dir.join(name))?;
            Ok(file)
        });
        written.inspect_err(|_| drop(fs::remove_file(&temp)))
    }

    /// Opens a file for appending, and creates it with mode 0600 if it does not exist.
    pub(crate) fn open_append(&self, path: &Path) -> io::Result<File> {
        self.before(Op::Create, path)?;
        let file = open_regular(OpenOptions::new().append(true).create(true).mode(0o600), path)?;
        // The umask may have removed even the owner's permissions.
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

    /// Opens an existing file to read and overwrite parts of it.
    pub(crate) fn open_update(&self, path: &Path) -> io::Result<File> {
        self.before(Op::Read, path)?;
        open_regular(OpenOptions::new().read(true).write(true), path)
    }

    /// Overwrites a part of a file, without a sync.
    pub(crate) fn overwrite(&self, file: &File, path: &Path, bytes: &[u8], at: u64) -> io::Result<()> {
        self.before(Op::Write, path)?;
        file.write_all_at(bytes, at)
    }

    /// Reads a part of a file.
    pub(crate) fn read_part(&self, file: &File, path: &Path, part: &Range<u64>) -> io::Result<Vec<u8>> {
        self.before(Op::Read, path)?;
        let mut bytes = vec![0; usize::try_from(part.end - part.start).unwrap_or_default()];
        file.read_exact_at(&mut bytes, part.start)?;
        Ok(bytes)
    }

    /// Syncs what was appended or overwritten.
    pub(crate) fn sync_data(&self, file: &File, path: &Path) -> io::Result<()> {
        self.before(Op::Sync, path)?;
        file.sync_data()
    }

    /// Renames a file, replacing an existing one.
    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.before(Op::Rename, to)?;
        fs::rename(from, to)
    }

    /// Renames a file, or fails with [`already_exists`] if the new name exists.
    pub(crate) fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.before(Op::Rename, to)?;
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // Some file systems lack RENAME_NOREPLACE. Renaming a directory never replaces one that contains files.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) if from.is_dir() => fs::rename(from, to),
            // For a file, a hard link followed by a removal has the same effect.
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

    /// Reads a regular file of at most `limit` bytes, like [`read_regular`].
    pub(crate) fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        self.before(Op::Read, path)?;
        read_regular(path, limit)
    }
}

/// Reads a regular file of at most `limit` bytes. Symbolic links are not followed.
pub fn read_regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(OpenOptions::new().read(true), path)?;
    let length = file.metadata()?.len();
    if length > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {limit} bytes")));
    }
    read_exactly(file, length)
}

/// Reads at most `limit` bytes from the start of a regular file.
pub(crate) fn read_head(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(OpenOptions::new().read(true), path)?;
    let length = file.metadata()?.len();
    read_exactly(file, length.min(limit))
}

/// Reads the known length only: a read that just finds the end would cost one more system call per file.
fn read_exactly(file: File, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens one of our files, and fails with [`is_irregular`] if it is not a regular file.
///
/// Anyone who can write to the directory can create a FIFO, a socket, a link or a directory under one of our names.
/// Opening must not block on a FIFO, and must not follow a link.
pub(crate) fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or_default();
    let irregular = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
    let file = options.custom_flags(flags).open(path).map_err(|error| {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            // A link; a socket, or a FIFO without a reader; a directory opened for writing.
            Some(Errno::LOOP | Errno::NXIO | Errno::ISDIR) => irregular(),
            Some(_) | None => error,
        }
    })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(irregular()) }
}

/// Opens a lock file, and creates it with mode 0600 if it does not exist. Symbolic links are not followed.
pub fn open_lock(path: &Path) -> io::Result<File> {
    open_regular(OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600), path)
}

/// Whether opening failed because the file is not a regular file.
pub(crate) fn is_irregular(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput
}

/// Creates a directory and its missing parents with mode 0700. An existing directory gets that mode too.
pub fn create_private_dir(dir: &Path) -> io::Result<()> {
    let parents = dir.ancestors().skip(1).take_while(|parent| !parent.as_os_str().is_empty());
    let missing: Vec<&Path> = parents.take_while(|parent| !parent.exists()).collect();
    for dir in missing.into_iter().rev().chain([dir]) {
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
            other => other?,
        }
        // The umask may have removed even the owner's permissions.
        if fs::metadata(dir)?.permissions().mode() & 0o777 != 0o700 {
            fs::set_permissions(dir, Permissions::from_mode(0o700))?;
        }
    }
    Ok(())
}

/// The names of the files in a directory; none if the directory does not exist.
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
