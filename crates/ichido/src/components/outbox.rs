//! The outbox of notices, for components that seldom have any.
//!
//! It is opened for the first notice: a process without notices leaves no directory behind.

use std::path::PathBuf;
use std::sync::Arc;

use ichido_core::Clock;
use ichido_delivery::notice::{self, Event, Notices};
use ichido_delivery::tls_roots::TlsRoots;
use ichido_serve::Failure;
use ichido_settings::Invalid;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::settings::Settings;

/// Where notices are that were queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queued {
    /// They survive this process.
    OnDisk,
    /// This process sends them, if it does not end before.
    InMemory,
    /// The outbox cannot be opened. They are lost.
    Nowhere,
}

/// The outbox of notices.
pub(crate) struct Outbox {
    dir: PathBuf,
    ca_file: Option<PathBuf>,
    channels: notice::Settings,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
    opened: Option<(Arc<Notices>, JoinHandle<()>)>,
}

impl Outbox {
    /// Checks the settings of the channels. Opens nothing.
    pub(crate) fn new(
        settings: &Settings,
        clock: Arc<dyn Clock>,
        stop: CancellationToken,
    ) -> Result<Self, Failure> {
        let delivery = settings.raw_delivery()?;
        Ok(Self {
            dir: delivery.data_dir().join("notices"),
            ca_file: delivery.ca_file.filter(|file| !file.is_empty()).map(PathBuf::from),
            channels: settings.notices()?,
            clock,
            stop,
            opened: None,
        })
    }

    /// Sends what an earlier process could not send.
    pub(crate) fn send_what_waits(&mut self) {
        if notice::waiting(&self.dir, 0).is_ok_and(|(count, _)| count > 0) {
            self.open();
        }
    }

    /// Queues notices.
    pub(crate) async fn announce(&mut self, events: Vec<Event>) -> Queued {
        let Some(notices) = self.open() else { return Queued::Nowhere };
        // A failure is logged there.
        let announcing = move || {
            let written = events.into_iter().map(|event| notices.announce(event).is_ok());
            if written.fold(true, |all, one| all & one) { Queued::OnDisk } else { Queued::InMemory }
        };
        tokio::task::spawn_blocking(announcing).await.unwrap_or(Queued::Nowhere)
    }

    fn open(&mut self) -> Option<Arc<Notices>> {
        if self.opened.is_none() {
            match self.try_open() {
                Ok(notices) => {
                    let (working, stop) = (notices.clone(), self.stop.clone());
                    self.opened = Some((notices, tokio::spawn(async move { working.work(stop).await })));
                }
                Err(error) => tracing::error!(error, "cannot send notices"),
            }
        }
        self.opened.as_ref().map(|(notices, _)| notices.clone())
    }

    fn try_open(&self) -> Result<Arc<Notices>, String> {
        let channels = || -> Result<_, Invalid> {
            notice::channels(&self.channels, &TlsRoots::read(self.ca_file.as_deref())?, &self.clock)
        };
        let channels = channels().map_err(|invalid| invalid.to_string())?;
        let notices = Notices::open(&self.dir, channels, self.clock.clone());
        notices.map(Arc::new).map_err(|error| format!("{}: {error}", self.dir.display()))
    }

    /// Waits for what is being sent.
    pub(crate) async fn close(self) {
        if let Some((_, working)) = self.opened {
            let _ = working.await;
        }
    }
}
