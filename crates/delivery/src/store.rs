//! The spool and the failed batches, on disk.
//!
//! Guarantees: an accepted batch is in exactly one directory, and survives kill -9 and power loss; several
//! processes may work on the same data directory; a file is either complete or absent; only delivered batches are
//! deleted.
//!
//! Each process works in its own directory below `.inflight`, and holds a lock on the file `lock` in it. It takes a
//! batch by renaming the file into that directory: of two processes that try, one succeeds. If a process crashes,
//! its lock is released, and another process renames its files back. A process locks nothing else, so none waits
//! for another.
//!
//! New batches that arrive together are written as one file, a *group*, and one sync makes all of them durable. A batch
//! leaves its group when it is delivered, or when it gets a file of its own because it goes to the spool or to failed.

mod error;
mod file_name;
mod format;
mod fsck;
mod group_file;
mod handle;
mod in_flight;
mod layout;
mod request_log;

pub use error::Error;
pub use file_name::FileName;
pub use format::{Attempt, BatchHeader, Corrupt, FILE_BYTES_MAX, StoredBatch};
pub use fsck::{Finding, fsck};
pub use group_file::{is_group, read_group};
pub use handle::{Options, OwnedFile, Store};
pub use in_flight::read_in_flight;
pub use layout::{BatchDir, Layout, ListedFile};

#[cfg(test)]
mod tests;
