//! Bytes that the ledger writes for a keyed request, relative to its records.
//!
//! The bytes are those passed to `write` (`wchar` of /proc/self/io), and one page for each commit: a disk writes whole pages,
//! and the page that a commit leaves partly filled is written again with the next one. The kernel's own figure, `write_bytes`,
//! is shown as well; kernels with large folios count a whole folio each time that a part of it is written. Neither counts the
//! file system's journal.
//!
//! Zeros that the ledger writes to new segments ahead of use are taken apart. It counts them itself.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ichido_core::{ClaimRequest, Clock, ManualClock, SystemClock};
use ichido_ledger::file::{File, FileSettings, verify};
use ichido_ledger::{Ledger, Settings};

use crate::Options;
use crate::child::{self, Child};
use crate::fixture::{HOUR_MS, Store, scratch};
use crate::load::Until;
use crate::outcomes::Outcomes;
use crate::process::{directory_mb, written};
use crate::records::{CLAIM_BYTES, completion_bytes};
use crate::sweep::{long_leased, sweep_all};
use crate::table::Table;

const OUTCOME_BYTES: usize = 400;
/// The time that passes on the ledger's clock: each retention ends several times.
const HOURS: u64 = 72;
const MB: f64 = 1e6;
const PAGE_BYTES: f64 = 4096.0;

/// The bytes per keyed request of 256 callers, with retentions of 6 and 24 hours.
pub(crate) async fn write_volume(options: &Options, table: &mut Table) {
    let keys: u64 = if options.quick { 600_000 } else { 6_000_000 };
    let dir = scratch();
    let [disk, calls, zeros, commits, removed, left_mb] =
        Child::start("write", dir.path(), keys).figures().await;
    assert!(removed > 0.0, "nothing was removed");
    let records = (keys * (CLAIM_BYTES + completion_bytes(OUTCOME_BYTES)) as u64) as f64;
    table.note(format!("{keys} keyed requests in {HOURS} h: records"), format!("{:.0} MB", records / MB));
    table.note("passed to write", format!("{:.0} MB", calls / MB));
    table.note("of that, zeros written ahead", format!("{:.0} MB", zeros / MB));
    table.note("commits", format!("{commits:.0}"));
    table.note("write_bytes of the kernel", format!("{:.0} MB", disk / MB));
    table.note("keys removed; directory at the end", format!("{removed:.0}; {left_mb:.0} MB"));
    table.note("passed to write / records, zeros apart", format!("{:.2}", (calls - zeros) / records));
    let written = calls - zeros + commits * PAGE_BYTES;
    table.at_most("written / records, zeros apart", written / records, "", 1.4);
}

/// What the child does.
pub(crate) async fn run_child(dir: &Path, keys: u64) {
    let clock = Arc::new(ManualClock::at(SystemClock::default().now()));
    let before = written();
    let file = Arc::new(File::open(dir, FileSettings::default(), clock.clone()).unwrap());
    let ledger = Ledger::new(file.clone(), Settings::default());
    let done = Arc::new(AtomicBool::new(false));
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
    let zeros = file.zeros_written();
    store.close().await;
    let after = written();
    let (disk, calls) = (after.disk - before.disk, after.calls - before.calls);
    let commits = verify(dir).unwrap().commit;
    let counts = [disk, calls, zeros, commits, removed].map(|count| count as f64);
    let [disk, calls, zeros, commits, removed] = counts;
    child::answer(&[disk, calls, zeros, commits, removed, directory_mb(dir)]);
}
