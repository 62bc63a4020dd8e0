//! Room in the journal, taken before it is needed.
//!
//! The engine makes a journal as one long hole and writes into it from its beginning. A sync after a write into a hole
//! must also note on the disk where the new blocks lie, and takes half as long again. So zeros are written into the hole
//! ahead of the engine: what it writes then lies in blocks that are there. A hole reads as zeros, so no byte of the file
//! changes by that, and its length does not change either: a journal without a hole, as the engine leaves one when it
//! opens a store again, is let alone.
//!
//! Only the writer may do this, between two commits: then nobody writes to a journal, and where the hole begins is known.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, fstatfs, seek};

use super::journal;

/// Zeros written at once: the sync after them takes longer.
const STRIDE: u64 = 512 * 1024;
/// More are written when so few are left.
const LOW: u64 = 128 * 1024;
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// File systems that write in place, and for which a hole is what was never written. Elsewhere nothing would be gained.
const IN_PLACE: [u64; 2] = [0xEF53 /* ext4 */, 0x5846_5342 /* XFS */];

/// How much room is left, as far as the writer knows.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    left: u64,
}

impl Ahead {
    /// So much was written to the journal.
    pub(super) fn used(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
    }

    /// Takes more room if little is left. Without it commits are slower, and nothing else: on a full disk it is they that
    /// must fail, and say so.
    pub(super) fn take(&mut self, store: &Path) {
        if self.left > LOW {
            return;
        }
        self.left += STRIDE;
        if let Err(error) = fill_newest(store) {
            tracing::debug!(%error, "no room was taken ahead of the journal");
        }
    }
}

fn fill_newest(store: &Path) -> Result<()> {
    let newest: Option<PathBuf> = journal::journals(store)?.pop();
    let path = newest.ok_or(ErrorKind::NotFound)?;
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    if !is_in_place(&file)? {
        return Err(Error::other("this file system has no use for it"));
    }
    fill(&file)
}

fn is_in_place(file: &File) -> Result<bool> {
    let kind = u64::try_from(fstatfs(file)?.f_type).unwrap_or(0);
    Ok(IN_PLACE.contains(&kind))
}

/// Writes zeros into the beginning of the first hole.
fn fill(file: &File) -> Result<()> {
    let length = file.metadata()?.len();
    // Behind the last byte there is always a hole; it is not ours to fill.
    let mut at = seek(file, SeekFrom::Hole(0))?;
    let end = length.min(at.saturating_add(STRIDE));
    while at < end {
        let count = usize::try_from(end - at).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
        file.write_all_at(&ZEROS[..count], at)?;
        at += count as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use ichido_core::{ManualClock, Timestamp};

    use super::super::FileSettings;
    use super::*;
    use crate::Maintain;

    fn hole(file: &File) -> u64 {
        seek(file, SeekFrom::Hole(0)).unwrap()
    }

    #[test]
    fn a_hole_becomes_smaller_and_no_byte_changes() {
        let file = tempfile::tempfile().unwrap();
        let (written, length) = (vec![7; 10_001], 2 * STRIDE);
        file.write_all_at(&written, 0).unwrap();
        file.set_len(length).unwrap();
        let mut before = hole(&file);
        assert!((10_001..length).contains(&before), "the file system keeps no holes: {before}");
        loop {
            fill(&file).unwrap();
            let mut bytes = vec![1; usize::try_from(length).unwrap()];
            file.read_exact_at(&mut bytes, 0).unwrap();
            assert!(bytes[..10_001] == written && bytes[10_001..].iter().all(|byte| *byte == 0));
            assert_eq!(file.metadata().unwrap().len(), length);
            let now = hole(&file);
            if before == length {
                assert_eq!(now, length);
                return;
            }
            assert!(now >= length.min(before + STRIDE), "{before} {now}");
            before = now;
        }
    }

    #[tokio::test]
    async fn a_new_ledger_has_room_and_one_that_is_opened_again_takes_none() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp(1_700_000_000_000)));
        let open = || super::super::File::open(dir.path(), FileSettings::default(), clock.clone()).unwrap();
        let journal =
            || File::open(journal::journals(&dir.path().join("store")).unwrap().pop().unwrap()).unwrap();
        let ledger = open();
        // The writer takes it when it has nothing else to do.
        let wanted = if is_in_place(&journal()).unwrap() { STRIDE } else { 1 };
        while hole(&journal()) < wanted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        ledger.close().await.unwrap();
        let ledger = open();
        ledger.close().await.unwrap();
        assert_eq!(hole(&journal()), journal().metadata().unwrap().len());
    }

    #[test]
    fn a_file_without_a_hole_does_not_grow() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 5000], 0).unwrap();
        fill(&file).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 5000);
    }
}
