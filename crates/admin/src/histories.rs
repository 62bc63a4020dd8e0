//! The histories that this process reads: its own, and those of other instances that the settings name.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use ichido_core::Timestamp;
use ichido_history::anomalies::{AnomalySettings, Found};
use ichido_history::{Error, History};

/// How far back anomalies are looked for.
pub(crate) const ANOMALY_DAYS: u32 = 7;

/// The directories of histories, and what was found in them. No directories if nothing is recorded.
#[derive(Clone, Debug, Default)]
pub struct Histories(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    dirs: Arc<[PathBuf]>,
    anomalies: Option<AnomalySettings>,
    found: Mutex<LastLook>,
    /// Only one task looks at a time: it reads a month of counts.
    looking: tokio::sync::Mutex<()>,
}

/// What was found when anomalies were looked for last.
#[derive(Clone, Debug, Default)]
pub(crate) enum LastLook {
    /// It has not ended yet. It takes a second for a large history.
    #[default]
    Never,
    Found(Arc<Found>),
    Failed(String),
}

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
    pub fn new(dirs: Vec<PathBuf>, anomalies: AnomalySettings) -> Self {
        let anomalies = Some(anomalies).filter(|anomalies| anomalies.is_enabled);
        Self(Arc::new(Shared { dirs: dirs.into(), anomalies, ..Shared::default() }))
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.dirs.is_empty()
    }

    /// Reads the files, on a thread that may block.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&History) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Unavailable> {
        if self.is_empty() {
            return Err(Unavailable::Off);
        }
        let dirs = self.0.dirs.clone();
        Ok(tokio::task::spawn_blocking(move || read(&History::open_if_any(&dirs)?)).await??)
    }

    /// What was unusual in the last [`ANOMALY_DAYS`] days, when it was looked for last. Never waits. `None` if nothing is
    /// recorded, or anomalies are off.
    pub(crate) fn last_look(&self) -> Option<LastLook> {
        self.anomaly_settings().map(|_| self.0.found.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// The same, looked for now unless it is known.
    pub(crate) async fn anomalies(&self, now: Timestamp) -> Result<Option<Arc<Found>>, Unavailable> {
        match self.last_look() {
            Some(LastLook::Found(found)) => Ok(Some(found)),
            Some(LastLook::Never | LastLook::Failed(_)) => self.look_for_anomalies(now).await,
            None => Ok(None),
        }
    }

    /// Looks for what was unusual, unless that is known for all hours that are complete.
    pub(crate) async fn look_for_anomalies(&self, now: Timestamp) -> Result<Option<Arc<Found>>, Unavailable> {
        let Some(settings) = self.anomaly_settings() else { return Ok(None) };
        let _looking = self.0.looking.lock().await;
        if let Some(LastLook::Found(found)) = self.last_look()
            && found.is_current(now)
        {
            return Ok(Some(found));
        }
        let looked = self.read(move |history| history.anomalies(ANOMALY_DAYS, now, &settings)).await;
        let looked = looked.map(Arc::new);
        *self.0.found.lock().unwrap_or_else(PoisonError::into_inner) = match &looked {
            Ok(found) => LastLook::Found(found.clone()),
            Err(error) => LastLook::Failed(error.to_string()),
        };
        looked.map(Some)
    }

    fn anomaly_settings(&self) -> Option<AnomalySettings> {
        self.0.anomalies.filter(|_| !self.is_empty())
    }
}
