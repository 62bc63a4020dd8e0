//! The export as a part of `ichido run`: at its minutes, with the sender of the daemon.

use ichido_core::Timestamp;
use ichido_delivery::sender::Sender;
use tokio_util::sync::CancellationToken;

use super::calendar::Days;
use super::export::Export;
use ichido_serve::Failure;

const MINUTE_MS: u64 = 60_000;

/// An export that happens by the clock.
#[derive(Debug)]
pub struct Scheduled {
    export: Export,
    batch_size: usize,
    minute: Option<u64>,
}

impl Scheduled {
    /// The part of `ichido run`, if its settings give it a time.
    pub fn new(export: Export, batch_size: usize) -> Option<Self> {
        export.settings.cron.is_some().then_some(Self { export, batch_size, minute: None })
    }

    /// Whether this minute is one of its own. A minute counts once.
    pub fn is_due(&mut self, now: Timestamp) -> bool {
        let minute = now.0 / MINUTE_MS;
        let due = self.minute != Some(minute)
            && self.export.settings.cron.as_ref().is_some_and(|cron| cron.matches(now));
        if due {
            self.minute = Some(minute);
        }
        due
    }

    /// Exports what is new. What went wrong is told in the log; the next time goes on where this one ended.
    pub async fn run(&mut self, sender: &mut Sender, stop: &CancellationToken) -> Result<(), Failure> {
        let days: Option<Days> = None;
        let ended = self.export.run(days, sender, self.batch_size, stop).await;
        match &ended {
            Ok(report) => report.log(),
            Err(failure) => {
                tracing::error!(error = %failure, "export failed; the next one continues where it ended")
            }
        }
        ended.map(drop)
    }
}
