//! Looks up a receipt: newest file first, line by line, so that memory is bounded by the longest line.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;

use super::{Disposition, name_day};
use crate::batch::Batch;
use crate::disk;

/// The longest line that is read. Most of a receipt are the ids of its records.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// The most that one lookup reads. Beyond that the batch counts as unknown, which loses nothing.
const LOOKUP_BYTES_MAX: u64 = 1 << 30;
const BUFFER_BYTES: usize = 256 << 10;

#[derive(Deserialize)]
struct LineHead {
    #[serde(rename = "ending")]
    disposition: Disposition,
}

/// Whether one of the selected files says that the receiver has exactly this batch.
pub(super) fn is_delivered(
    dir: &Path,
    batch: &Batch,
    is_selected: impl Fn(&str) -> bool,
) -> io::Result<bool> {
    let mut names = disk::file_names(dir)?;
    names.retain(|name| name_day(name).is_some() && is_selected(name));
    names.sort_unstable_by(|one, other| other.cmp(one));
    if names.is_empty() {
        return Ok(false);
    }
    let needle = needle(batch);
    let mut left = LOOKUP_BYTES_MAX;
    for name in names {
        let file = match disk::open_regular(OpenOptions::new().read(true), &dir.join(&name)) {
            // It has expired in the meantime, or is not a regular file.
            Err(error) if error.kind() == io::ErrorKind::NotFound || disk::is_irregular(&error) => continue,
            other => other?,
        };
        if scan(file, &needle, &mut left)? {
            return Ok(true);
        }
        if left == 0 {
            tracing::warn!(
                limit_bytes = LOOKUP_BYTES_MAX,
                "too many receipts; the lookup stopped at its limit"
            );
            return Ok(false);
        }
    }
    Ok(false)
}

/// How the line of this batch starts.
fn needle(batch: &Batch) -> String {
    let key = serde_json::Value::from(batch.key());
    format!("{{\"batchIdempotencyKey\":{key},\"digest\":\"{}\",", batch.digest())
}

fn scan(file: File, needle: &str, left: &mut u64) -> io::Result<bool> {
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = reader.by_ref().take(LINE_BYTES_MAX.min(*left)).read_until(b'\n', &mut line)?;
        *left -= read as u64;
        if read == 0 {
            return Ok(false);
        }
        if line.starts_with(needle.as_bytes())
            && let Ok(LineHead { disposition }) = serde_json::from_slice(&line)
            && matches!(disposition, Disposition::Delivered | Disposition::Accepted)
        {
            return Ok(true);
        }
    }
}
