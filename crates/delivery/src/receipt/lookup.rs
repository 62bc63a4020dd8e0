//! Looks up whether a batch was delivered: newest file first.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use memchr::memmem::Finder;
use serde::Deserialize;

use super::{Disposition, lines};
use crate::batch::Batch;

/// The most that one lookup reads. Beyond that the batch counts as unknown, which loses nothing.
const LOOKUP_BYTES_MAX: usize = 1 << 30;

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
    let mut names = lines::names(dir)?;
    names.retain(|name| is_selected(name));
    if names.is_empty() {
        return Ok(false);
    }
    let needle = needle(batch);
    let finder = Finder::new(&needle);
    let (mut left, mut is_delivered) = (LOOKUP_BYTES_MAX, false);
    for name in names.iter().rev() {
        let Some(file) = lines::open(&dir.join(name))? else { continue };
        lines::each_block(file, |block| {
            is_delivered = says_delivered(block, &finder);
            left = left.saturating_sub(block.len());
            if is_delivered || left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if is_delivered {
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

fn says_delivered(block: &[u8], finder: &Finder<'_>) -> bool {
    finder.find_iter(block).any(|at| {
        let (start, end) = lines::line_at(block, at);
        let says = |line| serde_json::from_slice(line).ok().map(|LineHead { disposition }| disposition);
        start == at
            && matches!(says(&block[start..end]), Some(Disposition::Delivered | Disposition::Accepted))
    })
}
