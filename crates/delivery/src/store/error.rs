//! Errors of the store.

use std::io;
use std::path::{Path, PathBuf};

/// A batch could not be stored, moved or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operation on a path failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What failed, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// `SPOOL_MAX_BYTES` is reached.
    #[error(
        "the spool is full: it holds {used} of {most} bytes (SPOOL_MAX_BYTES); \
         new batches are refused until others are delivered"
    )]
    Quota {
        /// Bytes in the spool.
        used: u64,
        /// Bytes that are allowed.
        most: u64,
    },
}

impl Error {
    pub(super) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
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

    /// Whether there is no space for the batch, on the disk or within `SPOOL_MAX_BYTES`.
    pub fn is_out_of_space(&self) -> bool {
        self.is_full() || matches!(self, Self::Quota { .. })
    }
}
