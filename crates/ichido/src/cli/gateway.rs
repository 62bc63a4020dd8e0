//! `ichido gateway`: start, serve, stop in good order.

use std::sync::Arc;

use ichido_ledger::{Ledger, OpenOptions, open_backend, open_or_defer};
use tokio_util::sync::CancellationToken;

use crate::args::{ADMIN_VARIABLE, GatewayArgs};
use crate::settings::Settings;
use ichido_admin::{Admin, AdminPort, AdminToken, ClaimApi, ConsoleOptions};
use ichido_gateway::Bound;
use ichido_gateway::settings::Flags;
use ichido_serve::ledger::ProcessLedger;
use ichido_serve::ledger::Settings as LedgerSettings;
use ichido_serve::shutdown;
use ichido_serve::{Audience, Component, Failure, Probe, Readiness, metrics, try_connect};
use ichido_settings::address;

pub(super) const ADMIN: &str = "127.0.0.1:9090";

pub(crate) async fn run(args: &GatewayArgs) -> Result<(), Failure> {
    let mut settings = Settings::load(&args.common)?;
    let flags = Flags {
        upstream: args.upstream.clone(),
        listen: args.listen.clone(),
        optional_key: args.optional_key,
    };
    let gateway = settings.gateway(&flags)?;
    let admin_at = Some(args.admin.as_deref().unwrap_or(ADMIN)).filter(|text| *text != "off");
    // Where nobody can ask, nothing is counted: histograms that nobody folds would grow without end.
    let metrics = admin_at.map(|_| metrics::install()).transpose()?;
    let bound = Bound::bind(gateway).await?;
    let admin = bind_admin(admin_at).await?;
    let stop = shutdown::on_signals()?;
    let has_fallback = bound.needs_fallback() || admin.is_some();
    let ledger =
        open(&settings.ledger, admin.as_ref().map(AdminPort::reachable_address), has_fallback).await?;
    let shared =
        ProcessLedger::new(ledger.clone(), &settings.ledger, bound.needs_fallback(), admin.is_some()).await?;
    let start_line = format!(
        "ichido gateway: listening on {}, admin on {}, {} → {}, ledger {} ({})",
        bound.url(),
        admin.as_ref().map_or_else(|| "no port".to_owned(), |admin| format!("http://{}", admin.address())),
        bound.describe_routes(),
        bound.upstream_url(),
        settings.ledger.location(),
        ledger.capabilities(),
    );
    let part = part(bound, &shared, &settings.ledger, stop).await?;
    errln!("{start_line}");
    let readiness = part.add_probes(Readiness::for_ledger(&ledger));
    let serving_admin = admin.zip(metrics).map(|(admin, metrics)| {
        let admin_stop = CancellationToken::new();
        let api = ClaimApi::new(shared.for_api(), settings.claims.log_keys);
        let console = ConsoleOptions { bodies: settings.bodies, ..ConsoleOptions::default() };
        let parts = Admin { ledger: shared.for_operators(), api, readiness, metrics, console };
        (tokio::spawn(admin.serve(parts, admin_stop.clone())), admin_stop)
    });
    part.into_work().await?;
    // The operator's port goes last: it tells of the end.
    if let Some((serving, admin_stop)) = serving_admin {
        admin_stop.cancel();
        let _ = serving.await;
    }
    shared.close().await.map_err(|error| settings.ledger.failure(error))
}

pub(super) async fn bind_admin(text: Option<&str>) -> Result<Option<AdminPort>, Failure> {
    let Some(text) = text else { return Ok(None) };
    let is_of_environment = std::env::var(ADMIN_VARIABLE).is_ok_and(|set| set == text);
    let name = if is_of_environment { ADMIN_VARIABLE } else { "--admin" };
    Ok(Some(AdminPort::bind(address(name, text)?, AdminToken::from_env()?).await?))
}

/// Opens the ledger of a process that serves, under the address of its admin port.
///
/// A ledger that cannot be reached or is not ready is found now, not at the first request. Only a process whose fallback
/// remembers what it answered before its last end may start without its ledger: any other would run events again.
pub(super) async fn open(
    settings: &LedgerSettings,
    admin: Option<String>,
    has_fallback: bool,
) -> Result<Ledger, Failure> {
    let handle = settings.handle();
    let options = OpenOptions { clock: handle.clock.clone(), admin };
    let may_wait = has_fallback && settings.has_durable_fallback();
    let opened = match may_wait {
        true => open_or_defer(&settings.url, &options).await,
        false => open_backend(&settings.url, &options).await,
    };
    let ledger = Ledger::new(opened.map_err(|error| settings.failure(error))?, handle);
    match ledger.check().await {
        Ok(warnings) => warnings.iter().for_each(|warning| tracing::warn!("{warning}")),
        Err(error) if may_wait && error.is_outage() => {
            tracing::warn!(%error, "the ledger cannot be reached; starting with the fallback");
        }
        Err(error) => return Err(settings.failure(error)),
    }
    Ok(ledger)
}

/// The gateway as a part of a process. Ready: what an outage left behind has been handed in.
pub(super) async fn part(
    bound: Bound,
    shared: &ProcessLedger,
    of: &LedgerSettings,
    stop: CancellationToken,
) -> Result<Component, Failure> {
    let summary = format!(
        "gateway listening on {}, {} → {}",
        bound.url(),
        bound.describe_routes(),
        bound.upstream_url()
    );
    let (upstream, is_needed) = (bound.upstream().clone(), bound.ready_needs_upstream());
    let gateway = bound.build(shared.ledger.clone(), shared.for_routes(), of).await?;
    let mut probes = Vec::new();
    if let Some(journal) = gateway.journal() {
        let probe: Probe = Arc::new(move || {
            let waiting = journal.len();
            let verdict = match waiting {
                0 => Ok(()),
                1 => Err("1 completion is waiting for the ledger".to_owned()),
                _ => Err(format!("{waiting} completions are waiting for the ledger")),
            };
            Box::pin(std::future::ready(verdict))
        });
        probes.push(("completion journal", Audience::Readyz, probe));
    }
    let probe: Probe = Arc::new(move || {
        let upstream = upstream.clone();
        Box::pin(async move {
            try_connect(upstream.authority.as_str(), upstream.authority.host(), upstream.port()).await
        })
    });
    probes.push(("upstream", if is_needed { Audience::Readyz } else { Audience::Operators }, probe));
    let work = Box::pin(async move {
        gateway.serve(stop).await;
        Ok(())
    });
    Ok(Component { summary, probes, work })
}
