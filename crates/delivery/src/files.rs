//! Files of others who keep a state beside the spool: written like the spool's, whole or not there.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::disk::{self, Disk};

/// Creates a directory for the owner alone, or makes an existing one so.
pub fn private_dir(dir: &Path) -> io::Result<()> {
    disk::private_dir(dir)
}

/// Replaces a file in one step, synced, for the owner alone: whoever reads sees the old one or the new one.
pub fn replace(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    Disk::default().replace(dir, name, bytes)
}

/// Reads a regular file of at most so many bytes; a link is not followed.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    disk::read_regular(path, most)
}

/// Opens a lock file that is created if it is missing, for the owner alone; a link is not followed.
pub fn open_lock(path: &Path) -> io::Result<File> {
    disk::open_lock(path)
}

/// The names in a directory; none if it is gone.
pub fn names(dir: &Path) -> io::Result<Vec<String>> {
    disk::names(dir)
}
