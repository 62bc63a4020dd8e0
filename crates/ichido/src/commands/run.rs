//! `ichido run`: sends again what waits, on schedule, until it is asked to end; an admin port beside it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ichido_core::{Clock, SystemClock, Timestamp};
use ichido_delivery::cron::Cron;
use ichido_delivery::sender::{Error, Pick, Sender};
use ichido_delivery::store::Place;
use tokio_util::sync::CancellationToken;

use super::gateway::{ADMIN, bind_admin, open};
use crate::admin::{Admin, Api, Probe, Readiness, install_meters};
use crate::args::RunArgs;
use crate::console::desk::{self, By, Inbox, Order, Run};
use crate::exit::{Failure, one_line};
use crate::export::{self, Export, Scheduled};
use crate::settings::Settings;
use crate::settings::export::Flags;
use crate::{console, delivery, shutdown};

const MINUTE_MS: u64 = 60_000;
/// A pass that was missed longer ago is not made up for: the clock was set, or the machine slept.
const HOUR_MINUTES: u64 = 60;
/// How often the clock and the token are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What is wrong with the delivery, for `/readyz`.
type Health = Arc<Mutex<Option<String>>>;

pub(crate) async fn run(args: &RunArgs) -> Result<(), Failure> {
    let mut settings = Settings::load(&args.common)?;
    let of_delivery = delivery::settings()?;
    let mut export = scheduled(&mut settings, &of_delivery)?;
    let admin_at = Some(args.admin.as_deref().unwrap_or(ADMIN)).filter(|text| *text != "off");
    let meters = admin_at.map(|_| install_meters()).transpose()?;
    let admin = bind_admin(admin_at).await?;
    let stop = shutdown::on_signals()?;
    let mut sender = delivery::sender(&of_delivery, stop.clone())?;
    if settings.has_gateway() {
        tracing::warn!("[gateway] is not started by ichido run: use ichido gateway");
    }
    let place = of_delivery.transport.endpoint.place();
    let health = Health::default();
    let (desk, mut inbox) = desk::open(sender.layout().clone());
    let Some((admin, meters)) = admin.zip(meters) else {
        eprintln!("ichido run: delivering to {place}, no admin port");
        return deliver(&mut sender, of_delivery.cron.as_ref(), &mut export, &health, &mut inbox, stop).await;
    };
    let ledger = open(&settings.ledger, Some(admin.reach())).await?;
    eprintln!("ichido run: delivering to {place}, admin on http://{}", admin.address());
    let api = Api::new(ledger.clone(), settings.claims.log_keys);
    let readiness = Readiness::of(&ledger).and("delivery", probe(&health));
    // The operator's port goes last: it tells of the end.
    let admin_stop = CancellationToken::new();
    let console = console::Parts { bodies: settings.bodies, desk: Some(desk), usage: None };
    let parts = Admin { ledger: ledger.clone(), api, readiness, meters, console };
    let serving = tokio::spawn(admin.serve(parts, admin_stop.clone()));
    let delivered =
        deliver(&mut sender, of_delivery.cron.as_ref(), &mut export, &health, &mut inbox, stop).await;
    admin_stop.cancel();
    let _ = serving.await;
    ledger.close().await.map_err(|error| settings.ledger.failed(error))?;
    delivered
}

/// Passes over the spool until the process is asked to end; the first one at once, others as operators order them.
async fn deliver(
    sender: &mut Sender,
    cron: Option<&Cron>,
    export: &mut Option<Scheduled>,
    health: &Health,
    inbox: &mut Inbox,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let clock = SystemClock::default();
    let alarm = sender.alarm();
    let telling = {
        let stop = stop.clone();
        tokio::spawn(async move { alarm.work(stop).await })
    };
    let mut minute = clock.now().0 / MINUTE_MS;
    pass(sender, health, &Pick::due(), By::Schedule, inbox).await;
    loop {
        let next = tokio::select! {
            next = wait_for(sender, &clock, cron, export, &mut minute, &stop) => next,
            order = inbox.next() => Next::Order(order),
        };
        match next {
            Next::Pass => {
                pass(sender, health, &Pick::due(), By::Schedule, inbox).await;
            }
            Next::Order(order) => {
                let run = pass(sender, health, &order.pick, By::Operator, inbox).await;
                order.over(run);
            }
            Next::Export => {
                if let Some(export) = export {
                    // What went wrong is in the log, and the next time goes on where this one ended.
                    let _ = export.run(sender, &stop).await;
                    sender.finish().await;
                }
            }
            Next::End => break,
        }
    }
    let _ = telling.await;
    let counters = delivery::finish(sender).await;
    delivery::report(&counters, true)
}

async fn pass(sender: &mut Sender, health: &Health, pick: &Pick, by: By, inbox: &Inbox) -> Run {
    let clock = SystemClock::default();
    let before = (clock.now(), sender.counters());
    let wrong = match sender.resend(pick).await {
        Ok(_) | Err(Error::Stopped) => None,
        Err(error) => {
            tracing::error!(error = one_line(&error), "the spool could not be worked on");
            Some("the spool cannot be worked on".to_owned())
        }
    };
    sender.finish().await;
    let after = (clock.now(), sender.counters());
    let run = Run { trouble: wrong.clone(), ..Run::between(by, before, after) };
    inbox.record(run.clone(), sender.held());
    let held = sender.held().map(|_| "the lane is held: someone must act".to_owned());
    *health.lock().unwrap_or_else(PoisonError::into_inner) = wrong.or(held);
    for (gauge, place) in
        [("ichido_delivery_spool_files", Place::Spool), ("ichido_delivery_failed_files", Place::Failed)]
    {
        if let Ok(files) = sender.layout().count(place) {
            #[allow(clippy::cast_precision_loss, reason = "a gauge")]
            metrics::gauge!(gauge).set(files as f64);
        }
    }
    run
}

/// The part that exports, if the settings give it a time.
fn scheduled(
    settings: &mut Settings,
    of_delivery: &ichido_delivery::settings::Settings,
) -> Result<Option<Scheduled>, Failure> {
    if !settings.has_export() {
        return Ok(None);
    }
    let dify = settings.export(&Flags::default())?;
    if dify.cron.is_none() {
        tracing::warn!("[export.dify] has no cron: ichido run does not export");
        return Ok(None);
    }
    export::check_delivery(of_delivery, &dify)?;
    let export = Export::new(dify, &of_delivery.data_dir)?;
    Ok(Scheduled::new(export, of_delivery.batch_size))
}

/// What the daemon does next.
enum Next {
    Pass,
    Export,
    Order(Order),
    End,
}

/// Waits for the next minute that is meant, or for another token. Minutes that went by while something was sent count as
/// well.
async fn wait_for(
    sender: &Sender,
    clock: &dyn Clock,
    cron: Option<&Cron>,
    export: &mut Option<Scheduled>,
    minute: &mut u64,
    stop: &CancellationToken,
) -> Next {
    loop {
        let now = clock.now();
        if export.as_mut().is_some_and(|export| export.is_due(now)) {
            return Next::Export;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = stop.cancelled() => return Next::End,
        }
        if sender.has_new_token() {
            return Next::Pass;
        }
        let now = clock.now().0 / MINUTE_MS;
        let mut gone_by = (*minute + 1).max(now.saturating_sub(HOUR_MINUTES))..=now;
        *minute = now;
        if gone_by.any(|minute| cron.is_none_or(|cron| cron.matches(Timestamp(minute * MINUTE_MS)))) {
            return Next::Pass;
        }
    }
}

fn probe(health: &Health) -> Probe {
    let health = health.clone();
    Arc::new(move || {
        let wrong = health.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(std::future::ready(wrong.map_or(Ok(()), Err)))
    })
}
