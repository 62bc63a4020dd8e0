//! What people and scripts read: tables, JSON, times.

use std::io::Write;

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{ContentArrangement, Table};
use ichido_core::Timestamp;
use serde::Serialize;

use crate::exit::Failure;

pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header.iter().copied());
    table
}

pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    // Not as one text: a list may be long.
    let mut out = std::io::BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    serde_json::to_writer_pretty(&mut out, value)
        .map_err(std::io::Error::from)
        .and_then(|()| writeln!(out).and_then(|()| out.flush()))
        .map_err(|error| Failure::internal(format!("writing JSON: {error}")))
}

/// A moment in UTC, to the second.
pub(crate) fn time(at: Timestamp) -> String {
    let at = i64::try_from(at.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| "?".to_owned(), |at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}
