//! `ichido gateway`: the gateway and an admin port.

use std::sync::Arc;

use crate::args::GatewayArgs;
use crate::components::admin_port::{self, Serving};
use crate::components::reload::{self, Reloadable, Started};
use crate::components::{anomalies, doubt, gateway, history, ledger, telemetry};
use crate::log::Reader;
use crate::settings::Settings;
use ichido_admin::{Admin, AdminPort, ClaimApi, ConsoleOptions};
use ichido_gateway::Bound;
use ichido_http::AskService;
use ichido_serve::ledger::ProcessLedger;
use ichido_serve::reload::Triggers;
use ichido_serve::{Failure, Readiness, shutdown};

pub(super) async fn run(args: &GatewayArgs, log: Reader) -> Result<(), Failure> {
    let settings = Arc::new(Settings::load(args.common.config.as_deref(), &args.flags())?);
    let gateway_settings = settings.gateway(args.optional_key)?;
    let admin_at = settings.admin_listen(admin_port::DEFAULT)?;
    let (metrics, telemetry) = telemetry::start(&settings, admin_at.is_some())?;
    let bound = Bound::bind(gateway_settings).await?;
    let admin = admin_port::bind(&settings, admin_at).await?;
    let stop = shutdown::on_signals()?;
    let triggers = Triggers::new()?;
    let has_fallback = bound.needs_fallback() || admin.is_some();
    let reach = admin.as_ref().map(AdminPort::reachable_address);
    let (observer, hints) = ichido_admin::hints(history::start(settings.history()?));
    let ledger = ledger::open(&settings.ledger, reach, has_fallback, Some(Arc::new(observer))).await?;
    let shared =
        ProcessLedger::new(ledger.clone(), &settings.ledger, bound.needs_fallback(), admin.is_some()).await?;
    let watching = anomalies::start(&settings, stop.clone())?;
    let start_line = format!(
        "ichido gateway: listening on {}, {}, {} → {}, ledger {} ({})",
        bound.url(),
        admin_port::describe(admin.as_ref()),
        bound.describe_routes(),
        bound.upstream_url(),
        settings.ledger.location(),
        ledger.capabilities(),
    );
    let (component, reloader) =
        gateway::component(bound, &shared, &settings.ledger, telemetry.spans(), stop.clone()).await?;
    let service: Arc<dyn AskService> = Arc::new(reloader.questions());
    let settling = doubt::start(&settings, shared.for_operators(), service.clone(), hints, stop.clone())?;
    let readiness = component.add_probes(Readiness::for_ledger(&ledger));
    let histories = settings.histories()?;
    let started = Started { settings: settings.clone(), flags: args.flags(), components: &[] };
    let parts =
        Reloadable { gateway: Some(reloader), optional_key: args.optional_key, ..Reloadable::default() };
    let reloading = reload::start(triggers, started, parts, stop)?;
    log.report_start(&start_line);
    let serving = admin.zip(metrics).map(|(admin, metrics)| {
        let api = ClaimApi::new(shared.for_api(), settings.claims.clone()).traced(telemetry.spans());
        let console = ConsoleOptions { bodies: settings.console.bodies, ..ConsoleOptions::default() };
        let ledger = shared.for_operators();
        let parts = Admin { ledger, api, readiness, metrics, histories, service: Some(service), console };
        Serving::start(|stop| admin.serve(parts, stop))
    });
    component.into_work().await?;
    let _ = reloading.await;
    let _ = settling.await;
    if let Some(watching) = watching {
        let _ = watching.await;
    }
    if let Some(serving) = serving {
        serving.stop().await;
    }
    telemetry.close().await;
    shared.close().await.map_err(|error| settings.ledger.failure(error))
}
