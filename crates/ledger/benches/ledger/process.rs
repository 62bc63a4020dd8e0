//! What the kernel counts about this process, and the files of a ledger.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The processor time of this process so far: user and system, all threads, in steps of 10 ms.
pub(crate) fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks: u64 = fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    ticks as f64 / 100.0
}

/// The resident memory of this process.
pub(crate) fn resident_mb() -> f64 {
    status_mb("VmRSS:")
}

/// The largest resident memory that this process had.
pub(crate) fn peak_resident_mb() -> f64 {
    status_mb("VmHWM:")
}

fn status_mb(field: &str) -> f64 {
    let kb = number_after(&fs::read_to_string("/proc/self/status").unwrap(), field);
    kb as f64 / 1024.0
}

/// What this process wrote so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    /// Bytes passed to `write` and its variants.
    pub(crate) calls: u64,
    /// Bytes for the disk, in whole pages: also those that a mapping dirtied, and a page again for each sync that it
    /// was dirty for.
    pub(crate) disk: u64,
}

pub(crate) fn written() -> Written {
    let io = fs::read_to_string("/proc/self/io").unwrap();
    Written { calls: number_after(&io, "wchar:"), disk: number_after(&io, "\nwrite_bytes:") }
}

fn number_after(text: &str, field: &str) -> u64 {
    let (_, rest) = text.split_once(field).unwrap();
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

/// The disk space of a file.
pub(crate) fn allocated_bytes(file: &fs::Metadata) -> u64 {
    file.blocks() * 512
}

/// All files below a directory. Files that disappear meanwhile are left out.
pub(crate) fn files(dir: &Path) -> Vec<(PathBuf, fs::Metadata)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => found.extend(files(&entry.path())),
            Ok(metadata) => found.push((entry.path(), metadata)),
            Err(_) => {}
        }
    }
    found
}

/// The disk space of a directory.
pub(crate) fn directory_mb(dir: &Path) -> f64 {
    let bytes: u64 = files(dir).iter().map(|(_, metadata)| allocated_bytes(metadata)).sum();
    bytes as f64 / 1e6
}
