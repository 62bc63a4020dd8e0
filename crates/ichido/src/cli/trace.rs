//! `ichido trace`: follows one id through everything that is recorded about it.
//!
//! If another process holds the ledger, claims are asked for at the admin port of that process; the files are read here. With
//! `--admin`, that process looks into everything itself.

use std::path::Path;

use ichido_admin::UsageSource;
use ichido_admin::operator::{Local, Operator};
use ichido_admin::trace::{DeliverySource, Event, ID_CHARS_MAX, Sources, Trace, is_id, trace, trace_in};
use ichido_core::{Clock, SystemClock, error_chain};
use ichido_delivery::store::Layout;
use ichido_meter::Options;
use ichido_serve::Failure;

use super::ledger::{Opened, check_exists, local, open};
use crate::args::TraceArgs;
use crate::components::{export_state, ledger};
use crate::output;
use crate::settings::Settings;

/// The characters of a long key in a table.
const KEY_CHARS: usize = 12;

pub(super) async fn run(args: &TraceArgs) -> Result<(), Failure> {
    let id = args.id.trim();
    if !is_id(id) {
        return Err(Failure::usage(format!("the id must have 1 to {ID_CHARS_MAX} characters")));
    }
    let settings = Settings::load(args.common.config.as_deref(), &args.flags())?;
    let trace = match &args.admin {
        Some(address) => {
            let process = ledger::remote(&settings, address)?;
            trace_in(&process, id).await.map_err(|refusal| refusal.into_failure(id))?
        }
        None => trace_here(&settings, id).await?,
    };
    match args.common.json {
        true => output::json(&trace)?,
        false => print(&trace),
    }
    match trace.found {
        true => Ok(()),
        false => {
            let places: Vec<_> = trace.looked_into.iter().map(|looked| looked.place.as_str()).collect();
            let places = if places.is_empty() { "nowhere".to_owned() } else { places.join(", ") };
            Err(Failure::internal(format!("nothing was found about {id:?}; looked into: {places}")))
        }
    }
}

/// Looks into what is on this machine.
async fn trace_here(settings: &Settings, id: &str) -> Result<Trace, Failure> {
    let opened = match ledger_problem(settings) {
        Some(why) => Err(why),
        None => open(settings).await.map_err(|failure| failure.to_string()),
    };
    match opened {
        Err(why) => follow::<Local>(settings, Err(why), id).await,
        Ok(Opened::Elsewhere(holder)) => follow(settings, Ok(&*holder), id).await,
        Ok(Opened::Here(ledger)) => {
            let operator = local(settings, &ledger)?;
            let trace = follow(settings, Ok(&operator), id).await;
            // Nothing was written.
            if let Err(error) = ledger.close().await {
                tracing::warn!(error = error_chain(&error), "cannot close the ledger");
            }
            trace
        }
    }
}

/// Why there is no ledger to look into.
pub(super) fn ledger_problem(settings: &Settings) -> Option<String> {
    if settings.ledger.url == "memory:" {
        return Some("the ledger is in the memory of its process: use --admin ADDRESS".to_owned());
    }
    check_exists(settings).err().map(|failure| failure.to_string())
}

async fn follow<O: Operator>(
    settings: &Settings,
    ledger: Result<&O, String>,
    id: &str,
) -> Result<Trace, Failure> {
    let delivery = delivery(settings);
    let export = match &delivery {
        Ok(delivery) => Ok(export_state::search(delivery.layout.root())),
        Err(why) => Err(why.clone()),
    };
    let meter = meter(settings).await;
    let sources = Sources {
        delivery,
        ledger,
        histories: settings.histories()?,
        audit: settings.audit()?,
        meter: meter.clone(),
        export,
    };
    let found = trace(&sources, id, SystemClock::default().now()).await;
    if let Ok(meter) = meter {
        meter.close().await;
    }
    Ok(found)
}

pub(super) fn delivery(settings: &Settings) -> Result<DeliverySource, String> {
    let text = |failure: Failure| failure.to_string();
    let dir = settings.existing_data_dir().map_err(text)?;
    if !dir.exists() {
        return Err(format!("{} does not exist: nothing was sent from here", dir.display()));
    }
    let receipt_retention = settings.raw_delivery().map_err(text)?.receipt_retention();
    Ok(DeliverySource { layout: Layout::new(&dir), receipt_retention })
}

/// The database of the meter that the settings name. It is not created.
pub(super) async fn meter(settings: &Settings) -> Result<UsageSource, String> {
    let is_configured = settings.has("meter") || settings.is_set("meter.db");
    let meter = settings.meter().map_err(|failure| failure.to_string())?;
    let url = meter.database.url();
    if let Some(file) = url.strip_prefix("sqlite:")
        && !Path::new(file.strip_prefix("//").unwrap_or(file)).exists()
    {
        return Err(match is_configured {
            true => format!("{} does not exist: nothing was counted here", meter.database.location()),
            false => "no meter is configured here (meter.db, METER_DB)".to_owned(),
        });
    }
    let store = ichido_meter::open(url, Options { profile: meter.profile }).await;
    let store = store.map_err(|error| format!("{}: {}", meter.database.location(), error_chain(&error)))?;
    Ok(UsageSource::new(store, meter.access.tenants(), Vec::new()))
}

fn print(trace: &Trace) {
    if trace.found {
        let mut table = output::table(&["when", "where", "what", "key", "details"]);
        for event in &trace.timeline {
            let Event { at, place, event: what, key, .. } = event;
            let key = key.as_deref().map(short).unwrap_or_default();
            table.add_row([at.as_str(), place.as_str(), what, &key, &event.details_line()]);
        }
        table.print();
        if trace.omitted > 0 {
            outln!("{} later events are left out", trace.omitted);
        }
    }
    outln!("looked into:");
    for looked in &trace.looked_into {
        outln!("  {:<10} {} ({} found)", looked.place.as_str(), looked.what, looked.found);
    }
    if !trace.not_looked_into.is_empty() {
        outln!("not looked into, or only in part:");
        for not_looked in &trace.not_looked_into {
            outln!("  {:<10} {}", not_looked.place.as_str(), not_looked.why);
        }
    }
}

/// A batch key is a hash, whose start is enough for people.
fn short(key: &str) -> String {
    let is_hash = key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hash { key[..KEY_CHARS].to_owned() } else { key.to_owned() }
}
