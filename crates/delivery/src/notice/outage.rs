//! Outages: conditions that last. Their start and their end are announced once each.
//!
//! A mark on disk records that an outage was announced. It is written after the notice, and removed after the notice of
//! the recovery, so a crash in between repeats a notice but never loses one. All processes see the marks: ten commands
//! that meet the same held lane cause one notice.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};

use ichido_core::{Timestamp, to_hex};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::Notices;
use super::event::Event;
use super::outbox::{NOTICE_BYTES_MAX, OUTAGE_PREFIX};
use crate::disk::{ignore_missing, read_regular};
use crate::time::iso_seconds;

/// An outage that lasts this long is announced again.
const REMINDER_INTERVAL_MS: u64 = 24 * 60 * 60 * 1000;

#[derive(Debug, Serialize, Deserialize)]
struct Mark {
    outage: String,
    since: String,
    announced: Timestamp,
}

impl Notices {
    /// Announces an outage, unless that was done already. Returns whether it was announced now.
    ///
    /// On an error only this process remembers the outage, and sends the notice from memory, once.
    pub fn begin_outage(&self, outage: &str, event: Event) -> io::Result<bool> {
        let now = self.clock.now();
        let known = read(&self.mark(outage));
        if self.unmarked().contains_key(outage)
            || known.as_ref().is_some_and(|mark| now.ms_since(mark.announced) < REMINDER_INTERVAL_MS)
        {
            return Ok(false);
        }
        let since = known.map_or_else(|| iso_seconds(now), |mark| mark.since);
        let mark = Mark { outage: outage.to_owned(), since: since.clone(), announced: now };
        let marked = self.announce(event).and_then(|()| self.write(&mark));
        if marked.is_err() {
            self.unmarked().insert(outage.to_owned(), since);
        }
        marked.map(|()| true)
    }

    /// Announces the recovery from an outage, if the outage was announced. Returns whether it was announced now.
    pub fn end_outage(&self, outage: &str) -> io::Result<bool> {
        let remembered = self.unmarked().remove(outage);
        let (path, taken) = (self.mark(outage), self.outbox.process_dir().join(file_name(outage)));
        // Usually there is no outage, which costs one failed lookup per delivered batch. Of two processes, one
        // takes the mark.
        let marked = path.try_exists()?
            && self.outbox.disk().rename(&path, &taken).map(|()| true).or_else(missing_is_false)?;
        let since = match (marked, remembered) {
            (true, _) => read(&taken).map(|mark| mark.since),
            (false, Some(since)) => Some(since),
            (false, None) => return Ok(false),
        };
        let since = since.unwrap_or_else(|| iso_seconds(self.clock.now()));
        let announced = self.announce(Event::Recovered { outage: outage.to_owned(), since });
        if marked {
            match announced {
                Ok(()) => self.outbox.disk().remove(&taken).or_else(ignore_missing)?,
                Err(_) => fs::rename(&taken, &path)?,
            }
        }
        announced.map(|()| true)
    }

    fn write(&self, mark: &Mark) -> io::Result<()> {
        let name = file_name(&mark.outage);
        let disk = self.outbox.disk();
        let temp = disk.write_temp(self.outbox.process_dir(), &name, &serde_json::to_vec(mark)?)?;
        disk.rename(&temp, &self.mark(&mark.outage))?;
        disk.sync_dir(self.outbox.outages())
    }

    fn unmarked(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.unmarked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mark(&self, outage: &str) -> PathBuf {
        self.outbox.outages().join(file_name(outage))
    }
}

fn file_name(outage: &str) -> String {
    format!("{OUTAGE_PREFIX}{}.json", &to_hex(&Sha256::digest(outage))[..16])
}

/// An unreadable mark counts as none: the outage is announced again.
fn read(path: &Path) -> Option<Mark> {
    serde_json::from_slice(&read_regular(path, NOTICE_BYTES_MAX).ok()?).ok()
}

fn missing_is_false(error: io::Error) -> io::Result<bool> {
    ignore_missing(error).map(|()| false)
}
