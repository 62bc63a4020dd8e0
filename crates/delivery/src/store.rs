//! The spool and what failed, on disk.
//!
//! Constraints: a batch that was accepted is in exactly one place, and survives kill -9 and power loss there; two
//! processes may work on one directory; a file is whole or not there; nothing is deleted but what has arrived.
//!
//! A process works in a directory of its own below `.inflight`, whose file `lock` it holds while it lives. A batch is
//! *taken* by renaming its file into that directory: of two takers one succeeds. What a dead process left there (its
//! lock can be had) is renamed back. Owners hold no lock but their own, so nobody waits for anybody.

mod error;
mod file_name;
mod format;
mod fsck;
mod handle;
mod layout;
mod request_log;

pub use error::Error;
pub use file_name::FileName;
pub use format::{Attempt, BatchHeader, Corrupt, FILE_BYTES_MAX, StoredBatch};
pub use fsck::{Finding, fsck};
pub use handle::{Options, OwnedFile, Store};
pub use layout::{BatchDir, Layout, ListedFile};

#[cfg(test)]
mod tests;
