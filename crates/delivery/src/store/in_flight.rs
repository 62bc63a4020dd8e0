//! Reads what processes are sending, without taking it from them.

use std::io;
use std::path::Path;

use ichido_core::Timestamp;

use super::file_name::FileName;
use super::format::{FILE_BYTES_MAX, StoredBatch};
use super::group_file::{is_group, read_group};
use super::layout::BatchDir;
use crate::disk;

/// The batches in a file of a process. `None`: it is not a batch, or is gone, because the batch was delivered or moved.
pub fn read_in_flight(dir: &Path, file: &str) -> Option<Result<Vec<StoredBatch>, String>> {
    let (name, path) = (FileName::parse(BatchDir::Spool.as_str(), file), dir.join(file));
    if name.is_none() && !is_group(file) {
        return None;
    }
    let unreadable = |error: &dyn std::fmt::Display| format!("cannot read {}: {error}", path.display());
    let bytes = match disk::read_regular(&path, FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => return Some(Err(unreadable(&error))),
    };
    let stored = match name {
        Some(name) => StoredBatch::decode(&bytes, name.gzip, Timestamp(0)).map(|stored| vec![stored]),
        None => read_group(&bytes),
    };
    Some(stored.map_err(|error| unreadable(&error)))
}
