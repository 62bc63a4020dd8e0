//! `ichido claims`: the claim API of a ledger, on a port that is also its admin port.

mod lambda_extension;

use crate::args::ClaimsArgs;
use crate::components::{anomalies, history, ledger, telemetry};
use crate::log::Reader;
use crate::settings::Settings;
use ichido_admin::{Admin, AdminPort, ClaimApi, ConsoleOptions};
use ichido_ledger::Ledger;
use ichido_serve::ledger::{ProcessLedger, run_sweeper};
use ichido_serve::{Failure, Readiness, metrics, shutdown};

pub(super) async fn run(args: &ClaimsArgs, log: Reader) -> Result<(), Failure> {
    if args.lambda_extension {
        return lambda_extension::run(args, log).await;
    }
    let settings = Settings::load(args.common.config.as_deref(), &args.common.flags())?;
    let metrics = metrics::install()?;
    let mut telemetry = telemetry::prepare(&settings, &metrics)?;
    telemetry.run(None);
    let bound = AdminPort::bind(args.listen, settings.admin()?).await?;
    let stop = shutdown::on_signals()?;
    let history = history::start(settings.history()?);
    let ledger = ledger::open(&settings.ledger, Some(bound.reachable_address()), true, history).await?;
    let shared = ProcessLedger::new(ledger.clone(), &settings.ledger, false, true).await?;
    report_start(log, &bound, &settings, &ledger);
    let watching = anomalies::start(&settings, stop.clone())?;
    let sweeping = tokio::spawn(run_sweeper(ledger.clone(), stop.child_token()));
    let api = ClaimApi::new(shared.for_api(), settings.claims.clone()).traced(telemetry.spans());
    let readiness = Readiness::for_ledger(&ledger);
    let console = ConsoleOptions { bodies: settings.console.bodies, ..ConsoleOptions::default() };
    let (ledger, histories) = (shared.for_operators(), settings.histories()?);
    let admin = Admin { ledger, api, readiness, metrics, histories, service: None, console };
    bound.serve(admin, stop).await;
    let _ = sweeping.await;
    if let Some(watching) = watching {
        let _ = watching.await;
    }
    telemetry.close().await;
    shared.close().await.map_err(|error| settings.ledger.failure(error))
}

fn report_start(log: Reader, bound: &AdminPort, settings: &Settings, ledger: &Ledger) {
    let (url, location) = (bound.url(), settings.ledger.location());
    let capabilities = ledger.capabilities();
    log.report_start(&format!("ichido claims: listening on {url}, ledger {location} ({capabilities})"));
}
