//! The sender as a component of a process: it sends the spool on a schedule and when an operator asks for it, and runs
//! the scheduled export.

mod timer;

use std::sync::{Arc, Mutex, PoisonError};

use ichido_core::{Clock, SystemClock};
use ichido_delivery::schedule::Schedule;
use ichido_delivery::sender::{Error, Selection, Sender};
use ichido_delivery::settings::Settings as Delivery;
use ichido_delivery::store::BatchDir;
use tokio_util::sync::CancellationToken;

use self::timer::{Due, LaneState, next_due};
use crate::delivery;
use crate::settings::Settings;
use ichido_admin::delivery_control::{self, ControlInbox, DeliveryControl, Pass, Trigger};
use ichido_core::error_chain;
use ichido_export::{self as export, Export, Scheduled};
use ichido_serve::{Audience, Component, Failure, Probe};

/// What is wrong with the delivery, if anything, for `/readyz`.
type Health = Arc<Mutex<Option<String>>>;

/// Checked settings of the sender and of the scheduled export.
pub(crate) struct Plan {
    settings: Delivery,
    export: Option<Scheduled>,
}

impl Plan {
    pub(crate) fn of(settings: &Settings) -> Result<Self, Failure> {
        let of_delivery = settings.delivery()?;
        let export = scheduled(settings, &of_delivery)?;
        Ok(Self { settings: of_delivery, export })
    }

    /// The component, and a handle for operators to request a resend.
    pub(crate) fn component(
        self,
        process: &Settings,
        stop: &CancellationToken,
    ) -> Result<(Component, DeliveryControl), Failure> {
        let Self { settings, mut export } = self;
        let mut sender = delivery::sender(process, &settings, stop.clone())?;
        let (delivery_control, mut inbox) =
            delivery_control::channel(sender.layout().clone(), settings.store.receipt_retention);
        let health = Health::default();
        let probes = vec![("delivery", Audience::Readyz, probe(&health))];
        let summary = format!("delivering to {}", settings.transport.endpoint.origin());
        let stop = stop.clone();
        let work = Box::pin(async move {
            let passes = Schedule::after(SystemClock::default().now(), settings.cron);
            deliver(&mut sender, passes, &mut export, &health, &mut inbox, stop).await
        });
        Ok((Component { summary, probes, work }, delivery_control))
    }
}

/// The export, if it has a schedule.
fn scheduled(
    settings: &Settings,
    of_delivery: &ichido_delivery::settings::Settings,
) -> Result<Option<Scheduled>, Failure> {
    if !settings.has("export.dify") {
        return Ok(None);
    }
    let dify = settings.export()?;
    if dify.cron.is_none() {
        tracing::warn!("[export.dify] has no cron; ichido run does not export");
        return Ok(None);
    }
    export::check_delivery(of_delivery, &dify).map_err(|invalid| settings.failure(&invalid))?;
    let export = Export::new(dify, &of_delivery.data_dir)?;
    Ok(Scheduled::new(export, of_delivery.batch_size, SystemClock::default().now()))
}

/// Sends the spool once at the start, then whenever the schedule or an operator says so, until `stop`.
async fn deliver(
    sender: &mut Sender,
    mut passes: Schedule,
    export: &mut Option<Scheduled>,
    health: &Health,
    inbox: &mut ControlInbox,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let clock = SystemClock::default();
    let notifier = sender.notifier();
    let notifying = {
        let stop = stop.clone();
        tokio::spawn(async move { notifier.work(stop).await })
    };
    pass(sender, health, &Selection::due(), Trigger::Schedule, inbox).await;
    loop {
        let exports = export.as_mut().map(Scheduled::schedule);
        let due = tokio::select! {
            due = next_due(&clock, &mut passes, exports, || lane_state(sender), &stop) => due,
            request = inbox.next() => {
                let run = pass(sender, health, &request.selection, Trigger::Operator, inbox).await;
                request.finish(run);
                continue;
            }
        };
        match due {
            Due::Pass => {
                pass(sender, health, &Selection::due(), Trigger::Schedule, inbox).await;
            }
            Due::Export => {
                if let Some(export) = export {
                    // A failure has been logged. The next export continues where this one stopped.
                    let _ = export.run(sender, &stop).await;
                    sender.finish().await;
                }
            }
            Due::Stop => break,
        }
    }
    let _ = notifying.await;
    let counters = delivery::finish(sender).await;
    delivery::report(&counters, true)
}

async fn pass(
    sender: &mut Sender,
    health: &Health,
    selection: &Selection,
    by: Trigger,
    inbox: &ControlInbox,
) -> Pass {
    let clock = SystemClock::default();
    let before = (clock.now(), sender.counters());
    let (taken, wrong, unfinished) = match sender.resend(selection).await {
        Ok(passed) => (passed.attempted, None, passed.lane_closed.then_some("the lane is closed")),
        Err(Error::Stopped) => (0, None, Some("the process is stopping")),
        Err(error) => {
            tracing::error!(error = error_chain(&error), "cannot send the spool");
            (0, Some("the spool cannot be sent".to_owned()), None)
        }
    };
    sender.finish().await;
    let after = (clock.now(), sender.counters());
    let problem = wrong.clone().or(unfinished.map(ToOwned::to_owned));
    let run = Pass { problem, ..Pass::between(by, taken, before, after) };
    inbox.record(run.clone(), sender.held());
    let held = sender.held().map(|_| "the lane is held: an operator must act".to_owned());
    *health.lock().unwrap_or_else(PoisonError::into_inner) = wrong.or(held);
    for (gauge, dir) in
        [("ichido_delivery_spool_files", BatchDir::Spool), ("ichido_delivery_failed_files", BatchDir::Failed)]
    {
        if let Ok(files) = sender.layout().count(dir) {
            #[allow(clippy::cast_precision_loss, reason = "a gauge")]
            metrics::gauge!(gauge).set(files as f64);
        }
    }
    run
}

fn lane_state(sender: &Sender) -> LaneState {
    match (sender.is_lane_closed(), sender.has_new_token()) {
        (true, true) => LaneState::ClosedWithNewToken,
        (true, false) => LaneState::Closed,
        (false, _) => LaneState::Open,
    }
}

fn probe(health: &Health) -> Probe {
    let health = health.clone();
    Arc::new(move || {
        let wrong = health.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(std::future::ready(wrong.map_or(Ok(()), Err)))
    })
}
