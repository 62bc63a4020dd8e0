//! The histories that this process reads: its own, and those of other instances that the settings name.

use std::path::PathBuf;
use std::sync::Arc;

use ichido_history::{Error, History};

/// The directories of histories. None if nothing is recorded.
#[derive(Clone, Debug)]
pub struct Histories(Arc<[PathBuf]>);

/// Why a history cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unavailable {
    #[error("history.dir is \"off\", so nothing is recorded")]
    Off,
    #[error(transparent)]
    Failed(#[from] Error),
    #[error("reading the history was interrupted: {0}")]
    Interrupted(#[from] tokio::task::JoinError),
}

impl Histories {
    /// Creates them from their directories.
    pub fn new(dirs: Vec<PathBuf>) -> Self {
        Self(dirs.into())
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads the files, on a thread that may block.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&History) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Unavailable> {
        if self.is_empty() {
            return Err(Unavailable::Off);
        }
        let dirs = self.0.clone();
        Ok(tokio::task::spawn_blocking(move || read(&History::open_if_any(&dirs)?)).await??)
    }
}
