//! `ichido run`: the daemon. Every part that has a section in the settings is started in one process, around one ledger,
//! with one admin port.
//!
//! To add a part: check its settings in [`Plan::of`], and push what [`Part`] asks for in [`Plan::parts`].

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use super::gateway::{self, ADMIN, bind_admin, open};
use crate::args::RunArgs;
use crate::components::delivery;
use crate::settings::{Settings, meter};
use ichido_admin::{Admin, AdminPort, ClaimApi, ConsoleOptions};
use ichido_gateway::settings::Flags;
use ichido_serve::ledger::{ProcessLedger, run_sweeper};
use ichido_serve::{Audience, Component, Failure, Readiness, metrics, shutdown};

/// What is to be started. Checked, and its ports taken, before anything is.
struct Plan {
    gateway: Option<ichido_gateway::Bound>,
    meter: Option<crate::components::meter::Bound>,
    delivery: Option<delivery::Plan>,
}

pub(crate) async fn run(args: &RunArgs) -> Result<(), Failure> {
    let mut settings = Settings::load(&args.common)?;
    let admin_at = Some(args.admin.as_deref().unwrap_or(ADMIN)).filter(|text| *text != "off");
    let plan = Plan::of(&mut settings, args).await?;
    let metrics = admin_at.map(|_| metrics::install()).transpose()?;
    let admin = bind_admin(admin_at).await?;
    let stop = shutdown::on_signals()?;
    // A sender alone needs no ledger.
    let shared = match admin.is_some() || plan.gateway.is_some() {
        true => {
            let is_wanted = plan.gateway.as_ref().is_some_and(ichido_gateway::Bound::needs_fallback);
            let reach = admin.as_ref().map(AdminPort::reachable_address);
            let ledger = open(&settings.ledger, reach, is_wanted || admin.is_some()).await?;
            Some(ProcessLedger::new(ledger, &settings.ledger, is_wanted, admin.is_some()).await?)
        }
        false => None,
    };
    // A gateway sweeps the ledger that it serves.
    let swept = shared.as_ref().filter(|_| plan.gateway.is_none());
    let sweeping = swept.map(|shared| tokio::spawn(run_sweeper(shared.ledger.clone(), stop.child_token())));
    let (parts, console) = plan.parts(shared.as_ref(), &settings, &stop).await?;
    let summaries: Vec<&str> = parts.iter().map(|part| part.summary.as_str()).collect();
    let at = admin
        .as_ref()
        .map_or_else(|| "no admin port".to_owned(), |admin| format!("admin on http://{}", admin.address()));
    errln!("ichido run: {}, {at}", summaries.join("; "));
    let serving = admin.zip(metrics).zip(shared.clone()).map(|((admin, metrics), shared)| {
        let api = ClaimApi::new(shared.for_api(), settings.claims.log_keys);
        let ready = Readiness::for_ledger(&shared.ledger);
        let readiness = parts.iter().fold(ready, |readiness, part| part.add_probes(readiness));
        let ledger = shared.for_operators();
        let admin_stop = CancellationToken::new();
        let served = Admin { ledger, api, readiness, metrics, console };
        (tokio::spawn(admin.serve(served, admin_stop.clone())), admin_stop)
    });
    let ended = join_all(parts.into_iter().map(|part| until_one_ends(part, stop.clone()))).await;
    // The operator's port goes last: it tells of the end.
    if let Some((serving, admin_stop)) = serving {
        admin_stop.cancel();
        let _ = serving.await;
    }
    if let Some(sweeping) = sweeping {
        let _ = sweeping.await;
    }
    if let Some(shared) = shared {
        shared.close().await.map_err(|error| settings.ledger.failure(error))?;
    }
    ended.into_iter().collect()
}

/// A part that ends by itself takes the others with it: a process that does half of its work looks healthy and is not.
async fn until_one_ends(part: Component, stop: CancellationToken) -> Result<(), Failure> {
    let ended = tokio::spawn(part.into_work()).await;
    stop.cancel();
    ended.unwrap_or_else(|error| Err(Failure::internal(format!("a part of the process broke: {error}"))))
}

impl Plan {
    async fn of(settings: &mut Settings, args: &RunArgs) -> Result<Self, Failure> {
        let (has_gateway, has_meter) = (settings.has_gateway(), settings.has_meter());
        let gateway = has_gateway.then(|| settings.gateway(&Flags::from_env()?)).transpose()?;
        let meter = has_meter.then(|| settings.meter(&meter::Flags::default())).transpose()?;
        let values = settings.delivery(&args.delivery);
        let is_told = settings.has_delivery() || settings.has_export() || values.has_endpoint();
        // Without any section it is the sender that was meant, whose settings are in the environment.
        let wants_delivery = is_told || !(has_gateway || has_meter);
        let delivery = wants_delivery.then(|| delivery::Plan::of(settings, values)).transpose()?;
        Ok(Self {
            gateway: match gateway {
                Some(gateway) => Some(ichido_gateway::Bound::bind(gateway).await?),
                None => None,
            },
            meter: match meter {
                Some(meter) => Some(crate::components::meter::Bound::bind(meter).await?),
                None => None,
            },
            delivery,
        })
    }

    async fn parts(
        self,
        shared: Option<&ProcessLedger>,
        settings: &Settings,
        stop: &CancellationToken,
    ) -> Result<(Vec<Component>, ConsoleOptions), Failure> {
        let mut parts = Vec::new();
        let mut console = ConsoleOptions { bodies: settings.bodies, ..ConsoleOptions::default() };
        if let Some((bound, shared)) = self.gateway.zip(shared) {
            parts.push(gateway::part(bound, shared, &settings.ledger, stop.clone()).await?);
        }
        if let Some(bound) = self.meter {
            let summary = format!("meter listening on {}", bound.describe());
            let meter = bound.open().await?;
            console.usage = Some(meter.usage());
            let probes = vec![("meter", Audience::Readyz, meter.probe())];
            let stop = stop.clone();
            let work = Box::pin(async move {
                meter.serve(stop).await;
                Ok(())
            });
            parts.push(Component { summary, probes, work });
        }
        if let Some(plan) = self.delivery {
            let (part, delivery_control) = plan.part(stop)?;
            console.delivery = Some(delivery_control);
            parts.push(part);
        }
        Ok((parts, console))
    }
}
