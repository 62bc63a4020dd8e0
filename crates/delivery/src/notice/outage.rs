//! Outages: what lasts, is announced once, and whose end is told once.
//!
//! A file marks an outage that was announced. It is written after the notice, and removed after the notice of its end:
//! a crash in between tells one of them twice, never not at all. The marks are seen by every process, so ten commands
//! that meet the same held lane make one notice.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ichido_core::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::own::{self, ignore_missing};
use super::{Event, Notices, iso};

const START: &str = "outage_";
/// An outage that lasts is announced again after so long.
const REMIND_MS: u64 = 24 * 60 * 60 * 1000;

#[derive(Debug, Serialize, Deserialize)]
struct Mark {
    outage: String,
    since: String,
    announced: Timestamp,
}

impl Notices {
    /// An outage was met. Announces it unless that was done already; whether it was announced now.
    pub fn begin(&self, outage: &str, event: Event) -> io::Result<bool> {
        let (now, path) = (self.clock.now(), self.mark(outage));
        let known = read(&path);
        if let Some(mark) = &known
            && now.ms_since(mark.announced) < REMIND_MS
        {
            return Ok(false);
        }
        self.announce(event)?;
        let since = known.map_or_else(|| iso(now), |mark| mark.since);
        let mark = Mark { outage: outage.to_owned(), since, announced: now };
        let half = own::write_half(self.outbox.own(), &file_name(outage), &serde_json::to_vec(&mark)?)?;
        fs::rename(half, &path)?;
        own::sync_dir(self.outbox.outages())?;
        Ok(true)
    }

    /// Something went well again. If an outage had been announced, its end is: once. Whether it was now.
    pub fn end(&self, outage: &str) -> io::Result<bool> {
        let (path, taken) = (self.mark(outage), self.outbox.own().join(file_name(outage)));
        // The usual case, for every batch that arrives, is one failed look.
        if !path.try_exists()? {
            return Ok(false);
        }
        match fs::rename(&path, &taken) {
            // Another process tells of it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            renamed => renamed?,
        }
        let since = read(&taken).map_or_else(|| iso(self.clock.now()), |mark| mark.since);
        if let Err(error) = self.announce(Event::Recovered { outage: outage.to_owned(), since }) {
            fs::rename(&taken, &path)?;
            return Err(error);
        }
        fs::remove_file(&taken).or_else(ignore_missing)?;
        Ok(true)
    }

    fn mark(&self, outage: &str) -> PathBuf {
        self.outbox.outages().join(file_name(outage))
    }
}

/// Whether this is the name of a mark.
pub(super) fn is_outage(name: &str) -> bool {
    name.starts_with(START)
}

fn file_name(outage: &str) -> String {
    format!("{START}{}.json", &hex::encode(Sha256::digest(outage))[..16])
}

/// A mark that cannot be read is as good as none: the outage is announced again.
fn read(path: &Path) -> Option<Mark> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}
