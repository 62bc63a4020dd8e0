//! The spool and what failed, on disk.
//!
//! Constraints: a batch that was accepted is in exactly one place, and survives kill -9 and power loss there; two
//! processes may work on one directory; a file is whole or not there; nothing is deleted but what has arrived.
//!
//! A process works in a directory of its own below `.inflight`, whose file `lock` it holds while it lives. A batch is
//! *taken* by renaming its file into that directory: of two takers one succeeds. What a dead process left there (its
//! lock can be had) is renamed back. Owners hold no lock but their own, so nobody waits for anybody.

mod format;
mod fsck;
mod history;
mod layout;
mod name;
mod work;

use std::io;
use std::path::{Path, PathBuf};

pub use format::{Attempt, Corrupt, Head, MOST_BYTES, Stored};
pub use fsck::{Finding, fsck};
pub use history::History;
pub use layout::{Layout, Listed, Place};
pub use name::{Name, iso, parse_iso};
pub use work::{Held, Options, Store};

pub(crate) use format::pack;
pub(crate) use history::Request;

/// Something the disk refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operation on a path failed.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// `SPOOL_MAX_BYTES` is reached.
    #[error(
        "the spool has {used} of {most} bytes (SPOOL_MAX_BYTES): new work is refused until some of it has arrived"
    )]
    Quota {
        /// Bytes in the spool.
        used: u64,
        /// Bytes that are allowed.
        most: u64,
    },
}

impl Error {
    pub(crate) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { doing, path: path.to_owned(), source }
    }

    /// Whether the disk is full.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Io { source, .. } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            Self::Quota { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests;
