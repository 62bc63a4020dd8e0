//! Opens the ledger of a process, or reaches the process that holds it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ichido_ledger::file::HeldBy;
use ichido_ledger::{Error, Ledger, Observer, OpenOptions, open_backend, open_or_defer};

use crate::settings::Settings as ProcessSettings;
use ichido_admin::operator::Remote;
use ichido_core::error_chain;
use ichido_serve::Failure;
use ichido_serve::ledger::Settings;

/// Work on many records may take the holder 12 times the timeout of the ledger. We wait longer than that.
const HOLDER_TIMEOUT_FACTOR: u32 = 14;

/// Opens the ledger of a server. A file ledger names the admin port for other processes that want to use it.
///
/// A ledger that cannot be reached or is not ready is reported now, not on the first request. Only a process whose
/// fallback survives restarts may start without its ledger: any other one would run events again.
pub(crate) async fn open(
    settings: &Settings,
    admin: Option<String>,
    has_fallback: bool,
    observer: Option<Arc<dyn Observer>>,
) -> Result<Ledger, Failure> {
    let handle = ichido_ledger::Settings { observer, ..settings.handle() };
    let options = OpenOptions { clock: handle.clock.clone(), admin };
    let may_start_without = has_fallback && settings.has_durable_fallback();
    let opened = match may_start_without {
        true => open_or_defer(&settings.url, &options).await,
        false => open_backend(&settings.url, &options).await,
    };
    let ledger = Ledger::new(opened.map_err(|error| settings.failure(error))?, handle);
    match ledger.check().await {
        Ok(warnings) => warnings.iter().for_each(|warning| tracing::warn!("{warning}")),
        Err(error) if may_start_without && error.is_outage() => {
            tracing::warn!(%error, "cannot reach the ledger; starting with the fallback");
        }
        Err(error) => return Err(settings.failure(error)),
    }
    Ok(ledger)
}

/// The admin port of the process that holds the file ledger in `dir`, which is why opening it failed with `error`.
pub(crate) fn holder(process: &ProcessSettings, dir: &Path, error: &Error) -> Result<Remote, Failure> {
    Remote::new(
        error_chain(error),
        HeldBy::of(dir),
        &process.admin_client()?,
        holder_timeout(&process.ledger),
    )
}

/// The process whose admin port has this address.
pub(crate) fn remote(process: &ProcessSettings, address: &str) -> Result<Remote, Failure> {
    let context = format!("using the admin port {address}");
    let holder = HeldBy { pid: None, admin: Some(address.to_owned()) };
    Remote::new(context, holder, &process.admin_client()?, holder_timeout(&process.ledger))
}

fn holder_timeout(settings: &Settings) -> Duration {
    settings.timeout.saturating_mul(HOLDER_TIMEOUT_FACTOR)
}
