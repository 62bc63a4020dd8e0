//! What the disk refuses.

use std::io;
use std::path::{Path, PathBuf};

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
    pub(super) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
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
