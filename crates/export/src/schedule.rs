//! The export as part of `ichido run`: on a schedule, with the sender of the process.

use futures_util::future::BoxFuture;
use ichido_core::Timestamp;
use ichido_delivery::schedule::Schedule;
use ichido_delivery::sender::Sender;
use tokio_util::sync::CancellationToken;

use super::calendar::Days;
use super::export::Export;
use ichido_serve::Failure;

/// An export with a schedule.
#[derive(Debug)]
pub struct Scheduled {
    export: Export,
    batch_size: usize,
    schedule: Schedule,
}

impl Scheduled {
    /// An export on the schedule of its settings, if they have one. The minute that has begun counts.
    pub fn new(export: Export, batch_size: usize, now: Timestamp) -> Option<Self> {
        let cron = export.settings.cron.clone()?;
        Some(Self { export, batch_size, schedule: Schedule::from_this_minute(now, Some(cron)) })
    }

    /// When the export is due.
    pub fn schedule(&mut self) -> &mut Schedule {
        &mut self.schedule
    }

    /// Exports what is new, and logs the result. After a failure, the next export continues where this one ended.
    pub fn run<'a>(
        &'a mut self,
        sender: &'a mut Sender,
        stop: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let days: Option<Days> = None;
            let ended = self.export.run(days, sender, self.batch_size, stop).await;
            match &ended {
                Ok(report) => report.log(),
                Err(failure) => {
                    tracing::error!(error = %failure, "export failed; the next one continues where it ended")
                }
            }
            ended.map(drop)
        })
    }
}
