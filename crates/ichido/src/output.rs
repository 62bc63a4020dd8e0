//! What people and scripts read: tables, JSON, times, and the log on standard error.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{ContentArrangement, Table};
use ichido_core::Timestamp;
use serde::Serialize;
use tracing_subscriber::EnvFilter;

use crate::exit::Failure;

/// The target of what operators did: always written, unless `LOG_LEVEL` names it.
pub(crate) const AUDIT: &str = "ichido::audit";

/// Logs go to standard error; `LOG_LEVEL` says how much.
pub(crate) fn start_logging() -> Result<(), Failure> {
    let level = std::env::var("LOG_LEVEL").unwrap_or_else(|_| "warn".to_owned());
    let audit = if level.contains(AUDIT) { String::new() } else { format!(",{AUDIT}=info") };
    let filter = EnvFilter::try_new(format!("{level}{audit}"))
        .map_err(|_| Failure::usage("LOG_LEVEL must be error, warn, info, debug or trace"))?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).init();
    Ok(())
}

pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header.iter().copied());
    table
}

pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::internal(format!("writing JSON: {error}")))?;
    println!("{text}");
    Ok(())
}

/// A moment in UTC, to the second.
pub(crate) fn time(at: Timestamp) -> String {
    let at = i64::try_from(at.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| "?".to_owned(), |at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}
