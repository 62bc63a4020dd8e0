//! Checks every hour once, however many processes use a directory, and however often they are restarted.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ichido_core::Timestamp;
use serde::{Deserialize, Serialize};

use super::baseline::{HOUR_MS, WEEK};
use super::{AnomalySettings, Finding, find};
use crate::{Error, History};

/// Contains the last hour that was checked. Whoever checks locks it.
const FILE: &str = "anomalies.checked";
/// Decisions of an hour are in the file after this time.
const DELAY_MS: u64 = 2 * 60 * 1_000;
/// Hours that are made up for after a pause.
const HOURS_MAX: u64 = 24;

/// What was found in hours that nobody had checked.
#[derive(Debug)]
pub struct Checked {
    /// What to report.
    pub findings: Vec<Finding>,
    file: File,
    hour: u64,
}

impl Checked {
    /// Notes that everything was reported. If the process ends before, the next one reports it again.
    pub fn done(mut self) -> std::io::Result<()> {
        self.file.rewind()?;
        self.file.set_len(0)?;
        self.file.write_all(self.hour.to_string().as_bytes())
    }
}

/// Checks the completed hours of a directory that were not checked yet. `None` if there are none, or another process checks them.
///
/// Fails if the file of a process that starts is not complete yet.
pub fn check(dir: &Path, now: Timestamp, settings: &AnomalySettings) -> Result<Option<Checked>, Error> {
    let Some(hour) = last_completed_hour(now) else { return Ok(None) };
    let failed = |error: std::io::Error| Error::new(&dir.join(FILE), error);
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(false).read(true).write(true).mode(0o600).open(dir.join(FILE));
    let mut file = file.map_err(failed)?;
    if file.try_lock().is_err() {
        return Ok(None);
    }
    let mut text = String::new();
    // What cannot be read counts as nothing: then the last hours are checked again.
    let _ = (&mut file).take(64).read_to_string(&mut text);
    // A clock that was ahead has left an hour that is yet to come.
    let last = text.trim().parse().ok().filter(|last| *last <= hour + 1);
    let first = last.map_or(hour, |last: u64| (last + 1).max((hour + 1).saturating_sub(HOURS_MAX)));
    if first > hour {
        return Ok(None);
    }
    let observed = History::open(&[dir.to_owned()])?.hourly(first..=hour)?;
    Ok(Some(Checked { findings: find(&observed, first..=hour, settings), file, hour }))
}

/// The last hour whose decisions have all been written, in hours since 1970.
pub(super) fn last_completed_hour(now: Timestamp) -> Option<u64> {
    (now.0.saturating_sub(DELAY_MS) / HOUR_MS).checked_sub(1)
}

/// What was unusual in the last days.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    /// The findings, the oldest first.
    #[serde(rename = "anomalies")]
    pub findings: Vec<Finding>,
    /// The hours that were recorded in full. A source is judged after a week.
    pub known_hours: usize,
    /// The end of the last hour that was judged, in milliseconds since 1970.
    pub until: u64,
}

impl Found {
    /// The hours that must be known before a source is judged.
    pub const HOURS_MIN: usize = WEEK;

    /// Whether no other hour is complete by now.
    pub fn is_current(&self, now: Timestamp) -> bool {
        self.until == end_of(last_completed_hour(now))
    }

    /// Keeps what was found in the last days only.
    pub fn keep_days(&mut self, days: u32) {
        let from = self.until.saturating_sub(u64::from(days) * 24 * HOUR_MS);
        self.findings.retain(|finding| finding.at >= from);
    }
}

fn end_of(hour: Option<u64>) -> u64 {
    hour.map_or(0, |hour| (hour + 1) * HOUR_MS)
}

impl History {
    /// Finds what was unusual in the last days.
    pub fn anomalies(&self, days: u32, now: Timestamp, settings: &AnomalySettings) -> Result<Found, Error> {
        let Some(hour) = last_completed_hour(now) else { return Ok(Found::default()) };
        let first = (hour + 1).saturating_sub(u64::from(days) * 24);
        let observed = self.hourly(first..=hour)?;
        Ok(Found {
            findings: find(&observed, first..=hour, settings),
            known_hours: observed.known_hours(),
            until: end_of(Some(hour)),
        })
    }
}
