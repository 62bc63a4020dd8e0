//! Bytes that the ledger writes for a keyed request, relative to its records.
//!
//! The bytes are `write_bytes` of /proc/self/io: what was dirtied for the disk, in whole pages. Unlike `wchar`, this
//! counts the page that each commit leaves partly filled and writes again, and mappings; `wchar` is shown as well.
//! Neither counts the file system's journal.
//!
//! A ledger may fill files with zeros before it writes records to them. These bytes are taken apart: a file that was
//! seen with zeros at its end was filled ahead, as far as it takes up disk space.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ichido_core::{ClaimRequest, Clock, ManualClock, SystemClock};

use crate::Options;
use crate::child::{self, Child};
use crate::fixture::{HOUR_MS, Store, open_at, scratch};
use crate::load::Until;
use crate::outcomes::Outcomes;
use crate::process::{allocated_bytes, directory_mb, files, written};
use crate::records::{CLAIM_BYTES, completion_bytes};
use crate::sweep::{long_leased, sweep_all};
use crate::table::Table;

const OUTCOME_BYTES: usize = 400;
/// The time that passes on the ledger's clock: each retention ends several times.
const HOURS: u64 = 72;
const MB: f64 = 1e6;

/// The bytes per keyed request of 256 callers, with retentions of 6 and 24 hours.
pub(crate) async fn write_volume(options: &Options, table: &mut Table) {
    let keys: u64 = if options.quick { 600_000 } else { 6_000_000 };
    let dir = scratch();
    let [disk, calls, zeros, removed, left_mb] = Child::start("write", dir.path(), keys).figures().await;
    assert!(removed > 0.0, "nothing was removed");
    let records = (keys * (CLAIM_BYTES + completion_bytes(OUTCOME_BYTES)) as u64) as f64;
    table.note(format!("{keys} keyed requests in {HOURS} h: records"), format!("{:.0} MB", records / MB));
    table.note("written, zeros included", format!("{:.0} MB", disk / MB));
    table.note("passed to write, zeros included", format!("{:.0} MB", calls / MB));
    table.note("zeros written ahead", format!("{:.0} MB", zeros / MB));
    table.note("keys removed; directory at the end", format!("{removed:.0}; {left_mb:.0} MB"));
    table.note("passed to write / records, zeros apart", format!("{:.2}", (calls - zeros) / records));
    table.at_most("written / records, zeros apart", (disk - zeros) / records, "", 1.4);
}

/// What the child does.
pub(crate) async fn run_child(dir: &Path, keys: u64) {
    let clock = Arc::new(ManualClock::at(SystemClock::default().now()));
    let before = written();
    let ledger = open_at(dir, clock.clone());
    let done = Arc::new(AtomicBool::new(false));
    let watching = std::thread::spawn({
        let (dir, done) = (dir.to_owned(), done.clone());
        move || zeros_ahead(&dir, &done)
    });
    let sweeping = tokio::spawn({
        let (ledger, done) = (ledger.clone(), done.clone());
        async move {
            let mut removed = 0;
            while !done.load(Ordering::Relaxed) {
                removed += sweep_all(&ledger).await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            removed
        }
    });
    let keyed = move |number: u64| {
        clock.advance(HOURS * HOUR_MS / keys);
        let retention_ms = if number.is_multiple_of(2) { 6 * HOUR_MS } else { 24 * HOUR_MS };
        ClaimRequest { retention_ms, ..long_leased("write", number) }
    };
    let store = Store::Ledger(ledger);
    store.run_keyed(256, Until::Calls(keys), &Outcomes::of(OUTCOME_BYTES), keyed).await;
    done.store(true, Ordering::Relaxed);
    let removed: u64 = sweeping.await.unwrap();
    let zeros = watching.join().unwrap();
    store.close().await;
    let after = written();
    let (disk, calls) = (after.disk - before.disk, after.calls - before.calls);
    child::answer(&[disk as f64, calls as f64, zeros as f64, removed as f64, directory_mb(dir)]);
}

/// Watches a directory until `done`, and returns how many bytes of its files were filled with zeros ahead.
fn zeros_ahead(dir: &Path, done: &AtomicBool) -> u64 {
    let mut filled: HashMap<PathBuf, u64> = HashMap::new();
    while !done.load(Ordering::Relaxed) {
        for (path, metadata) in files(dir) {
            let known = filled.contains_key(&path);
            if known || ends_with_zeros(&path, metadata.len()) {
                let most = filled.entry(path).or_default();
                *most = (*most).max(allocated_bytes(&metadata));
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    filled.values().sum()
}

fn ends_with_zeros(path: &Path, length: u64) -> bool {
    let mut end = [1; 4096];
    let Some(at) = length.checked_sub(end.len() as u64) else { return false };
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut end, at));
    read.is_ok() && end.iter().all(|byte| *byte == 0)
}
