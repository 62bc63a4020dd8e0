//! `ichido run`: sends again what waits, on schedule, until it is asked to end; an admin port beside it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ichido_core::{Clock, SystemClock};
use ichido_delivery::cron::Cron;
use ichido_delivery::sender::{Error, Pick, Sender};
use ichido_delivery::store::Place;
use tokio_util::sync::CancellationToken;

use super::gateway::{ADMIN, bind_admin, open};
use crate::admin::{Admin, Api, Probe, Readiness, install_meters};
use crate::args::RunArgs;
use crate::exit::{Failure, one_line};
use crate::settings::Settings;
use crate::{delivery, shutdown};

const MINUTE_MS: u64 = 60_000;
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
    let Some((admin, meters)) = admin.zip(meters) else {
        eprintln!("ichido run: delivering to {place}, no admin port");
        return deliver(&mut sender, of_delivery.cron.as_ref(), &health, stop).await;
    };
    let ledger = open(&settings.ledger, Some(admin.reach())).await?;
    eprintln!("ichido run: delivering to {place}, admin on http://{}", admin.address());
    let api = Api::new(ledger.clone(), settings.claims.log_keys);
    let readiness = Readiness::of(&ledger).and("delivery", probe(&health));
    // The operator's port goes last: it tells of the end.
    let admin_stop = CancellationToken::new();
    let parts = Admin { ledger: ledger.clone(), api, readiness, meters };
    let serving = tokio::spawn(admin.serve(parts, admin_stop.clone()));
    let delivered = deliver(&mut sender, of_delivery.cron.as_ref(), &health, stop).await;
    admin_stop.cancel();
    let _ = serving.await;
    ledger.close().await.map_err(|error| settings.ledger.failed(error))?;
    delivered
}

/// Passes over the spool until the process is asked to end; the first one at once.
async fn deliver(
    sender: &mut Sender,
    cron: Option<&Cron>,
    health: &Health,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let clock = SystemClock::default();
    let alarm = sender.alarm();
    let telling = {
        let stop = stop.clone();
        tokio::spawn(async move { alarm.work(stop).await })
    };
    pass(sender, health).await;
    while wait_for(sender, &clock, cron, &stop).await {
        pass(sender, health).await;
    }
    let _ = telling.await;
    let counters = delivery::finish(sender).await;
    delivery::report(&counters, true)
}

async fn pass(sender: &mut Sender, health: &Health) {
    let wrong = match sender.resend(&Pick::due()).await {
        Ok(_) | Err(Error::Stopped) => None,
        Err(error) => {
            tracing::error!(error = one_line(&error), "the spool could not be worked on");
            Some("the spool cannot be worked on".to_owned())
        }
    };
    sender.finish().await;
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
}

/// Waits for the next minute that is meant, or for another token. `false`: the process is asked to end.
async fn wait_for(sender: &Sender, clock: &dyn Clock, cron: Option<&Cron>, stop: &CancellationToken) -> bool {
    let mut minute = clock.now().0 / MINUTE_MS;
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = stop.cancelled() => return false,
        }
        let now = clock.now();
        if sender.has_new_token() {
            return true;
        }
        if now.0 / MINUTE_MS != minute {
            minute = now.0 / MINUTE_MS;
            if cron.is_none_or(|cron| cron.matches(now)) {
                return true;
            }
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
