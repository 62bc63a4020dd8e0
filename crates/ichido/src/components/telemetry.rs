//! The metrics of a process, and where they and its traces are sent.

use ichido_serve::{Failure, metrics};
use ichido_telemetry::Telemetry;

use crate::settings::Settings;

/// Prepares the exporters of the settings. They start later.
pub(crate) fn prepare(settings: &Settings, metrics: &metrics::Handle) -> Result<Telemetry, Failure> {
    let Some(exported) = settings.telemetry()? else { return Ok(Telemetry::default()) };
    let clock = settings.ledger.handle().clock;
    Telemetry::new(exported, metrics, &clock).map_err(|invalid| settings.failure(&invalid))
}

/// Installs the metrics recorder, if anything reads it, and starts to export.
///
/// Without an admin port and without an exporter nothing is counted: nobody would fold the histograms, and they would grow
/// without end.
pub(crate) fn start(
    settings: &Settings,
    has_admin: bool,
) -> Result<(Option<metrics::Handle>, Telemetry), Failure> {
    if !has_admin && settings.telemetry()?.is_none() {
        return Ok((None, Telemetry::default()));
    }
    let metrics = metrics::install()?;
    let mut telemetry = prepare(settings, &metrics)?;
    telemetry.run((!has_admin).then(|| metrics.clone()));
    Ok((Some(metrics), telemetry))
}
