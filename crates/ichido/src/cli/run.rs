//! `ichido run`: every component that has a section in the settings, in one process with one ledger and one admin port.
//!
//! To add a component, check its settings in [`Plan::of`] and add it in [`Plan::components`].

use std::sync::Arc;

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::args::RunArgs;
use crate::components::admin_port::{self, Serving};
use crate::components::reload::{self, Reloadable, Started};
use crate::components::{anomalies, delivery, doubt, export_state, gateway, history, ledger, telemetry};
use crate::log::Reader;
use crate::settings::Settings;
use ichido_admin::{Admin, AdminPort, ClaimApi, ConsoleOptions};
use ichido_http::AskService;
use ichido_ledger::Observer;
use ichido_serve::ledger::{ProcessLedger, run_sweeper};
use ichido_serve::reload::Triggers;
use ichido_serve::{Component, Failure, Readiness, shutdown};
use ichido_telemetry::Telemetry;

/// The sections of components.
const COMPONENTS: [&str; 4] = ["gateway", "meter", "delivery", "export.dify"];

/// The components to start. All settings are checked, and all ports bound, before the first one starts.
struct Plan {
    gateway: Option<ichido_gateway::Bound>,
    meter: Option<crate::components::meter::Bound>,
    delivery: Option<delivery::Plan>,
}

pub(super) async fn run(args: &RunArgs, log: Reader) -> Result<(), Failure> {
    let settings = Arc::new(Settings::load(args.common.config.as_deref(), &args.flags())?);
    let admin_at = settings.admin_listen(admin_port::DEFAULT)?;
    let plan = Plan::of(&settings).await?;
    let (metrics, telemetry) = telemetry::start(&settings, admin_at.is_some())?;
    let admin = admin_port::bind(&settings, admin_at).await?;
    let stop = shutdown::on_signals()?;
    let triggers = Triggers::new()?;
    // A sender without an admin port needs no ledger.
    let (observer, hints) =
        ichido_admin::hints(history::start(match admin.is_some() || plan.gateway.is_some() {
            true => settings.history()?,
            false => None,
        }));
    let shared = match admin.is_some() || plan.gateway.is_some() {
        true => {
            let routes_want_it = plan.gateway.as_ref().is_some_and(ichido_gateway::Bound::needs_fallback);
            let reach = admin.as_ref().map(AdminPort::reachable_address);
            let has_fallback = routes_want_it || admin.is_some();
            let observer = Some(Arc::new(observer) as Arc<dyn Observer>);
            let ledger = ledger::open(&settings.ledger, reach, has_fallback, observer).await?;
            Some(ProcessLedger::new(ledger, &settings.ledger, routes_want_it, admin.is_some()).await?)
        }
        false => None,
    };
    let watching = match shared.is_some() {
        true => anomalies::start(&settings, stop.clone())?,
        false => None,
    };
    // A gateway sweeps its ledger itself.
    let swept = shared.as_ref().filter(|_| plan.gateway.is_none());
    let sweeping = swept.map(|shared| tokio::spawn(run_sweeper(shared.ledger.clone(), stop.child_token())));
    let (components, console, parts) = plan.components(shared.as_ref(), &settings, &telemetry, &stop).await?;
    let histories = settings.histories()?;
    let gateway = parts.gateway.as_ref();
    let service = gateway.map(|gateway| Arc::new(gateway.questions()) as Arc<dyn AskService>);
    let settling = match service.clone().zip(shared.as_ref()) {
        Some((service, shared)) => {
            Some(doubt::start(&settings, shared.for_operators(), service, hints, stop.clone())?)
        }
        None => None,
    };
    let started = Started { settings: settings.clone(), flags: args.flags(), components: &COMPONENTS };
    let reloading = reload::start(triggers, started, parts, stop.clone())?;
    let says: Vec<&str> = components.iter().map(|component| component.summary.as_str()).collect();
    let admin_port = admin_port::describe(admin.as_ref());
    log.report_start(&format!("ichido run: {}, {admin_port}", says.join("; ")));
    let serving = admin.zip(metrics).zip(shared.clone()).map(|((admin, metrics), shared)| {
        let api = ClaimApi::new(shared.for_api(), settings.claims.clone()).traced(telemetry.spans());
        let ready = Readiness::for_ledger(&shared.ledger);
        let readiness = components.iter().fold(ready, |readiness, component| component.add_probes(readiness));
        let ledger = shared.for_operators();
        let served = Admin { ledger, api, readiness, metrics, histories, service, console };
        Serving::start(|stop| admin.serve(served, stop))
    });
    let ended =
        join_all(components.into_iter().map(|component| run_component(component, stop.clone()))).await;
    let _ = reloading.await;
    if let Some(serving) = serving {
        serving.stop().await;
    }
    telemetry.close().await;
    for task in [sweeping, watching, settling].into_iter().flatten() {
        let _ = task.await;
    }
    if let Some(shared) = shared {
        shared.close().await.map_err(|error| settings.ledger.failure(error))?;
    }
    ended.into_iter().collect()
}

/// Runs a component, and stops the others when it ends: a process that does half of its work looks healthy, but is not.
async fn run_component(component: Component, stop: CancellationToken) -> Result<(), Failure> {
    let ended = tokio::spawn(component.into_work()).await;
    stop.cancel();
    ended.unwrap_or_else(|error| Err(Failure::internal(format!("a component panicked: {error}"))))
}

impl Plan {
    async fn of(settings: &Settings) -> Result<Self, Failure> {
        let (has_gateway, has_meter) = (settings.has("gateway"), settings.has("meter"));
        let gateway = has_gateway.then(|| settings.gateway(false)).transpose()?;
        let meter = has_meter.then(|| settings.meter()).transpose()?;
        let is_configured =
            settings.has("delivery") || settings.has("export.dify") || settings.is_set("delivery.endpoint");
        // Without any section, the sender is meant: its settings are in the environment.
        let wants_delivery = is_configured || !(has_gateway || has_meter);
        let delivery = wants_delivery.then(|| delivery::Plan::of(settings)).transpose()?;
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

    async fn components(
        self,
        shared: Option<&ProcessLedger>,
        settings: &Settings,
        telemetry: &Telemetry,
        stop: &CancellationToken,
    ) -> Result<(Vec<Component>, ConsoleOptions, Reloadable), Failure> {
        let mut components = Vec::new();
        let mut parts = Reloadable::default();
        let mut console = ConsoleOptions { bodies: settings.console.bodies, ..ConsoleOptions::default() };
        if let Some((bound, shared)) = self.gateway.zip(shared) {
            let (component, reloader) =
                gateway::component(bound, shared, &settings.ledger, telemetry.spans(), stop.clone()).await?;
            parts.gateway = Some(reloader);
            components.push(component);
        }
        if let Some(bound) = self.meter {
            let (component, usage, certificate) = bound.component(settings, stop.clone()).await?;
            parts.meter = certificate;
            console.usage = Some(usage);
            components.push(component);
        }
        if let Some(plan) = self.delivery {
            let (component, delivery_control) = plan.component(settings, stop)?;
            console.export = Some(export_state::search(&settings.raw_delivery()?.data_dir()));
            console.delivery = Some(delivery_control);
            components.push(component);
        }
        Ok((components, console, parts))
    }
}
