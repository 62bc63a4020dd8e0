//! `ichido claims --lambda-extension`: the claim API inside the sandbox of an AWS Lambda function.
//!
//! Lambda freezes the sandbox whenever the function and its extensions wait for the next event, for milliseconds or for
//! hours. So nothing here runs between two events: no console, no sweeper (the table removes expired records itself, or
//! another process does), no timers. What must happen from time to time happens when an event arrives.
//!
//! - Leases are judged by the ledger. On DynamoDB, a claim counts as silent after two sightings a full lease apart, both
//!   read from the table, on a clock (`CLOCK_MONOTONIC`) that either counts the freeze, which is then true silence, or
//!   stops, which delays doubt but never hastens it.
//! - A connection to the ledger that died during the freeze fails, and the call is retried with the same nonce.
//! - The function's connections are closed after each response, so that none can time out during the freeze.
//!
//! The extension registers before it opens the ledger: Lambda starts the function meanwhile.

mod extensions_api;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use self::extensions_api::{Event, Extension, Phase};
use crate::args::ClaimsArgs;
use crate::components::{ledger, telemetry};
use crate::log::Reader;
use crate::settings::Settings;
use ichido_admin::{Admin, AdminPort, ClaimApi, ConsoleOptions, Histories};
use ichido_ledger::Ledger;
use ichido_serve::ledger::ProcessLedger;
use ichido_serve::{Failure, Readiness, metrics, shutdown};
use ichido_telemetry::Telemetry;

/// Lambda kills the sandbox 2 s after SHUTDOWN.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(1_800);
/// How much of that time requests may take. The rest is for the handover to the ledger.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(1_000);

pub(super) async fn run(args: &ClaimsArgs, log: Reader) -> Result<(), Failure> {
    let extension = Extension::register(&executable_name()).await?;
    let stop = shutdown::on_signals()?;
    let sandbox = match Sandbox::start(args, stop.clone(), log).await {
        Ok(sandbox) => sandbox,
        Err(failure) => return Err(extension.report(Phase::Init, failure).await),
    };
    let followed = sandbox.follow(&extension, &stop).await;
    stop.cancel();
    let closed = match tokio::time::timeout(SHUTDOWN_TIMEOUT, sandbox.close()).await {
        Ok(closed) => closed,
        Err(_) => {
            tracing::warn!("requests or the handover to the ledger did not finish in time");
            Ok(())
        }
    };
    match followed.and(closed) {
        Ok(()) => Ok(()),
        Err(failure) => Err(extension.report(Phase::Exit, failure).await),
    }
}

/// Lambda expects the file name of the executable in `/opt/extensions`.
fn executable_name() -> String {
    let started_as = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&started_as).file_name();
    name.map_or_else(|| "ichido".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The claim API while it is served.
struct Sandbox {
    serving: JoinHandle<()>,
    shared: ProcessLedger,
    settings: Settings,
    metrics: metrics::Handle,
    telemetry: Arc<Telemetry>,
}

impl Sandbox {
    async fn start(args: &ClaimsArgs, stop: CancellationToken, log: Reader) -> Result<Self, Failure> {
        let settings = Settings::load(args.common.config.as_deref(), &args.common.flags())?;
        if settings.ledger.is_local() {
            return Err(Failure::usage(
                "ledger.url: a Lambda extension needs a ledger that all sandboxes share: set ICHIDO_LEDGER_URL, for \
                 example to dynamodb://TABLE",
            ));
        }
        let metrics = metrics::install()?;
        let telemetry = Arc::new(telemetry::prepare(&settings, &metrics)?);
        let bound = AdminPort::bind(args.listen, settings.admin()?).await?;
        let ledger = ledger::open(&settings.ledger, Some(bound.reachable_address()), true, None).await?;
        let shared = ProcessLedger::new(ledger.clone(), &settings.ledger, false, true).await?;
        super::report_start(log, &bound, &settings, &ledger);
        let admin = Admin {
            ledger: shared.for_operators(),
            api: ClaimApi::new(shared.for_api(), settings.claims.clone()).traced(telemetry.spans()),
            readiness: Readiness::for_ledger(&ledger),
            metrics: metrics.clone(),
            // A sandbox records nothing.
            histories: Histories::default(),
            service: None,
            console: ConsoleOptions::default(),
        };
        let serving = tokio::spawn(bound.serve_api(admin, stop, DRAIN_TIMEOUT));
        Ok(Self { serving, shared, settings, metrics, telemetry })
    }

    /// Follows the events of the sandbox until SHUTDOWN, or until the process is asked to stop.
    async fn follow(&self, extension: &Extension, stop: &CancellationToken) -> Result<(), Failure> {
        let mut maintenance = JoinSet::new();
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                event = extension.next_event() => event?,
            };
            match event {
                Event::Invoke => {
                    self.metrics.run_upkeep();
                    while maintenance.try_join_next().is_some() {}
                    if maintenance.is_empty() {
                        maintenance.spawn(maintain(self.shared.for_api(), self.telemetry.clone()));
                    }
                }
                Event::Shutdown { reason } => {
                    tracing::info!(reason, "shutting down");
                    return Ok(());
                }
            }
        }
    }

    async fn close(self) -> Result<(), Failure> {
        let _ = self.serving.await;
        let ((), closed) = tokio::join!(self.telemetry.close(), self.shared.close());
        closed.map_err(|error| self.settings.ledger.failure(error))
    }
}

/// Finds out whether an outage is over, hands over what the fallback granted meanwhile, and exports what the last
/// invocation has counted.
async fn maintain(ledger: Ledger, telemetry: Arc<Telemetry>) {
    tokio::join!(ledger.maintain_fallback(), telemetry.flush());
}
