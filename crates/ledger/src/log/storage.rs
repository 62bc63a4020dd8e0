//! What the log needs of a file system: one directory of files, written in place, synced explicitly.
//!
//! Everything durable goes through this interface, so that a simulated disk can lose, tear and fail every operation.
//! The rules are those of POSIX at their strictest:
//!
//! - A write is durable after a later [`File::sync`] of the same file has succeeded. Until then any part of it may be lost,
//!   in units of a sector.
//! - A name (created, renamed or removed) is durable after a later [`Storage::sync_dir`] has succeeded.
//! - After a failed sync nobody knows what is durable: the data may be lost although a later sync succeeds.

mod disk;

use std::fmt;
use std::io;
use std::sync::Arc;

pub use disk::Disk;

/// A directory.
pub trait Storage: Send + Sync + fmt::Debug + 'static {
    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;

    /// Creates an empty file. An existing file of this name is emptied.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;

    /// Renames a file, replacing any file of the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes the names durable.
    fn sync_dir(&self) -> io::Result<()>;
}

/// An open file.
#[expect(clippy::len_without_is_empty, reason = "nobody asks whether a file is empty")]
pub trait File: Send + Sync + fmt::Debug + 'static {
    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Reads exactly this many bytes. Fewer are an error.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all bytes. The file grows if needed.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes content and length durable.
    fn sync(&self) -> io::Result<()>;
}

/// Reads a whole file. `None` if there is none.
pub(crate) fn read_all(storage: &dyn Storage, name: &str) -> io::Result<Option<Vec<u8>>> {
    let file = match storage.open(name) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let length = usize::try_from(file.len()?).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    let mut bytes = vec![0; length];
    file.read_at(&mut bytes, 0)?;
    Ok(Some(bytes))
}

/// Replaces a file as a whole: after a crash it has either the old or the new content.
pub(crate) fn replace(storage: &dyn Storage, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = format!("{name}.tmp");
    let file = storage.create(&temporary)?;
    file.write_at(bytes, 0)?;
    file.sync()?;
    storage.rename(&temporary, name)?;
    storage.sync_dir()
}
