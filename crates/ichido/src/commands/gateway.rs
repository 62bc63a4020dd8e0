//! `ichido gateway`: start, serve, stop in good order.

use std::sync::Arc;

use ichido_ledger::{Ledger, OpenOptions, open_backend};
use tokio_util::sync::CancellationToken;

use super::part::Part;
use crate::admin::{self, Admin, AdminToken, Api, Audience, Probe, Readiness, install_meters};
use crate::args::{ADMIN_VARIABLE, GatewayArgs};
use crate::console::Parts;
use crate::exit::Failure;
use crate::gateway::Bound;
use crate::settings::gateway::{Flags, address};
use crate::settings::{Ledger as LedgerSettings, Settings};
use crate::shutdown;
use crate::upkeep::Shared;

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
    let meters = admin_at.map(|_| install_meters()).transpose()?;
    let bound = Bound::bind(gateway).await?;
    let admin = bind_admin(admin_at).await?;
    let stop = shutdown::on_signals()?;
    let ledger = open(&settings.ledger, admin.as_ref().map(admin::Bound::reach)).await?;
    let shared =
        Shared::new(ledger.clone(), &settings.ledger, bound.wants_fallback(), admin.is_some()).await?;
    let start_line = format!(
        "ichido gateway: listening on {}, admin on {}, {} → {}, ledger {} ({})",
        bound.address_as_url(),
        admin.as_ref().map_or_else(|| "no port".to_owned(), |admin| format!("http://{}", admin.address())),
        bound.routes(),
        bound.upstream(),
        settings.ledger.place(),
        ledger.capabilities(),
    );
    let part = part(bound, &shared, &settings.ledger, stop).await?;
    errln!("{start_line}");
    let readiness = part.asked(Readiness::of(&ledger));
    let serving_admin = admin.zip(meters).map(|(admin, meters)| {
        let admin_stop = CancellationToken::new();
        let api = Api::new(shared.for_api(), settings.claims.log_keys);
        let console = Parts { bodies: settings.bodies, ..Parts::default() };
        let parts = Admin { ledger: ledger.clone(), api, readiness, meters, console };
        (tokio::spawn(admin.serve(parts, admin_stop.clone())), admin_stop)
    });
    part.into_work().await?;
    // The operator's port goes last: it tells of the end.
    if let Some((serving, admin_stop)) = serving_admin {
        admin_stop.cancel();
        let _ = serving.await;
    }
    ledger.close().await.map_err(|error| settings.ledger.failed(error))
}

pub(super) async fn bind_admin(text: Option<&str>) -> Result<Option<admin::Bound>, Failure> {
    let Some(text) = text else { return Ok(None) };
    let is_of_environment = std::env::var(ADMIN_VARIABLE).is_ok_and(|set| set == text);
    let name = if is_of_environment { ADMIN_VARIABLE } else { "--admin" };
    Ok(Some(admin::Bound::bind(address(name, text)?, AdminToken::from_env()?).await?))
}

/// Opens the ledger of a process that serves, under the address of its admin port.
pub(super) async fn open(settings: &LedgerSettings, admin: Option<String>) -> Result<Ledger, Failure> {
    let handle = settings.handle();
    let options = OpenOptions { clock: handle.clock.clone(), admin };
    let backend = open_backend(&settings.url, &options).await.map_err(|error| settings.failed(error))?;
    let ledger = Ledger::new(backend, handle);
    // A ledger that cannot be reached or is not ready is found now, not at the first request.
    let warnings = ledger.check().await.map_err(|error| settings.failed(error))?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(ledger)
}

/// The gateway as a part of a process. Ready: what an outage left behind has been handed in.
pub(super) async fn part(
    bound: Bound,
    shared: &Shared,
    of: &LedgerSettings,
    stop: CancellationToken,
) -> Result<Part, Failure> {
    let says =
        format!("gateway listening on {}, {} → {}", bound.address_as_url(), bound.routes(), bound.upstream());
    let (upstream, is_needed) = bound.asked_upstream();
    let gateway = bound.assemble(shared.ledger.clone(), shared.for_routes(), of).await?;
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
        probes.push(("completion journal", Audience::Ready, probe));
    }
    let probe: Probe = Arc::new(move || {
        let upstream = upstream.clone();
        Box::pin(async move { upstream.reach().await })
    });
    probes.push(("upstream", if is_needed { Audience::Ready } else { Audience::People }, probe));
    let work = Box::pin(async move {
        gateway.serve(stop).await;
        Ok(())
    });
    Ok(Part { says, probes, work })
}
