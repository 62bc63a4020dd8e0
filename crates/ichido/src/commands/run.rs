//! `ichido run`: sends again what waits, on schedule, until it is asked to end; an admin port beside it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ichido_core::{Clock, SystemClock, Timestamp};
use ichido_delivery::cron::Cron;
use ichido_delivery::sender::{Error, Pick, Sender};
use tokio_util::sync::CancellationToken;

use super::gateway::{ADMIN, bind_admin, open};
use crate::admin::{Admin, Api, Probe, Readiness, install_meters};
use crate::args::RunArgs;
use crate::console::desk::{self, By, Inbox, Run};
use crate::exit::{Failure, one_line};
use crate::settings::Settings;
use crate::{console, delivery, shutdown};

const MINUTE_MS: u64 = 60_000;
/// A pass that was missed longer ago is not made up for: the clock was set, or the machine slept.
const HOUR_MINUTES: u64 = 60;
/// How often the clock and the token are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What is wrong with the delivery, for `/readyz`.
type Health = Arc<Mutex<Option<String>>>;

pub(crate) async fn run(args: &RunArgs) -> Result<(), Failure> {
    let settings = Settings::load(&args.common)?;
    let of_delivery = delivery::settings()?;
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
        return deliver(&mut sender, of_delivery.cron.as_ref(), &health, &mut inbox, stop).await;
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
    let delivered = deliver(&mut sender, of_delivery.cron.as_ref(), &health, &mut inbox, stop).await;
    admin_stop.cancel();
    let _ = serving.await;
    ledger.close().await.map_err(|error| settings.ledger.failed(error))?;
    delivered
}

/// Passes over the spool until the process is asked to end; the first one at once, others as operators order them.
async fn deliver(
    sender: &mut Sender,
    cron: Option<&Cron>,
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
        let order = tokio::select! {
            go_on = wait_for(sender, &clock, cron, &mut minute, &stop) => if go_on { None } else { break },
            order = inbox.next() => Some(order),
        };
        match order {
            None => {
                pass(sender, health, &Pick::due(), By::Schedule, inbox).await;
            }
            Some(order) => {
                let run = pass(sender, health, &order.pick, By::Operator, inbox).await;
                order.over(run);
            }
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
    #[allow(clippy::cast_precision_loss, reason = "a gauge")]
    metrics::gauge!("ichido_delivery_spool_files").set(after.1.spool_size as f64);
    let run = Run { trouble: wrong.clone(), ..Run::between(by, before, after) };
    inbox.record(run.clone(), sender.held());
    let held = sender.held().map(|_| "the lane is held: someone must act".to_owned());
    *health.lock().unwrap_or_else(PoisonError::into_inner) = wrong.or(held);
    run
}

/// Waits for the next minute that is meant, or for another token. `false`: the process is asked to end. Minutes that went
/// by while something was sent count as well.
async fn wait_for(
    sender: &Sender,
    clock: &dyn Clock,
    cron: Option<&Cron>,
    minute: &mut u64,
    stop: &CancellationToken,
) -> bool {
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = stop.cancelled() => return false,
        }
        if sender.has_new_token() {
            return true;
        }
        let now = clock.now().0 / MINUTE_MS;
        let mut gone_by = (*minute + 1).max(now.saturating_sub(HOUR_MINUTES))..=now;
        *minute = now;
        if gone_by.any(|minute| cron.is_none_or(|cron| cron.matches(Timestamp(minute * MINUTE_MS)))) {
            return true;
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
