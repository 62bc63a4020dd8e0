//! The end of a run: either a bit is flipped, or everything expires.

use std::sync::atomic::Ordering;

use tokio::sync::oneshot;

use super::check::entries;
use super::store::{Check, Store};
use crate::log::{Call, Effort, Next, View};
use crate::{Error, Kind};

/// Longer than any retention.
const EVERYTHING_EXPIRED_MS: u64 = 200 * 86_400_000;
/// Segments that an empty store may have.
const SEGMENTS_LEFT: usize = 2;

/// What a flipped bit may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    /// Nothing: the content is redundant.
    None,
    /// It may be reported as damage.
    Reported,
}

impl Store {
    /// Ends the run.
    pub(super) fn finish(&mut self) -> Check {
        self.restart_undisturbed()?;
        if self.is_verified()
            && let Some(problem) = self.problems().first()
        {
            return Err(format!("a check of all files finds damage although there is none: {problem}"));
        }
        match self.random.one_in(2) {
            true => self.flip_a_bit(),
            false => self.expire_everything(),
        }
    }

    /// Flips a bit of something durable. Every answer must then be the true one, or an error.
    fn flip_a_bit(&mut self) -> Check {
        for _ in 0..self.random.below(4) {
            self.run_job()?;
        }
        let synced = self.process()?.engine.sync_mark();
        synced.map_err(|error| format!("the high-water mark was not synced: {error}"))?;
        let view = self.view()?;
        let Some((name, offset, harm)) = self.choose_byte(&view)? else { return Ok(()) };
        let [bit] = self.random.bytes();
        let flipped = self.disk.flip_bit(&name, offset, bit);
        flipped.map_err(|error| format!("no bit of {name} was flipped: {error}"))?;
        self.report.flips += 1;
        let place = format!("bit {} of byte {offset} of {name} was flipped", bit % 8);
        let reported = self.read_damaged(&view, harm).map_err(|wrong| format!("{place}: {wrong}"))?;
        let is_found = !self.is_verified() || !self.problems().is_empty();
        drop(view);
        self.process = None;
        self.disk = if self.random.one_in(2) { self.disk.restart() } else { self.disk.kill() };
        let started = self.start_damaged(harm).map_err(|wrong| format!("{place}: {wrong}"))?;
        self.report.flips_reported += u64::from(reported || started);
        match is_found || !(reported || started) {
            true => Ok(()),
            false => Err(format!("{place}: a check of all files does not find the damage")),
        }
    }

    /// A byte that is durable and acknowledged, and what its loss may cause.
    fn choose_byte(&mut self, view: &View) -> Check<Option<(String, u64, Harm)>> {
        let mut places = Vec::new();
        let segments = view.segments();
        for (name, length) in self.disk.files() {
            let segment = name.strip_suffix(".log").and_then(|digits| u32::from_str_radix(digits, 16).ok());
            let segment = segment.and_then(|id| segments.iter().find(|segment| segment.id == id));
            let place = match segment {
                Some(segment) => (u64::from(segment.end.load(Ordering::Acquire)), Harm::Reported),
                None if name.ends_with(".index") || name == "high-water" => (length, Harm::None),
                None if name == "format" || name.starts_with("outcome-") => (length, Harm::Reported),
                None => continue,
            };
            if place.0 > 0 {
                places.push((name, place.0, place.1));
            }
        }
        if places.is_empty() {
            return Ok(None);
        }
        let (name, length, harm) = self.random.pick(&places).clone();
        Ok(Some((name, self.random.below_u64(length), harm)))
    }

    /// Reads all keys. Returns whether damage was reported.
    fn read_damaged(&mut self, view: &View, harm: Harm) -> Check<bool> {
        let now = self.now()?;
        let mut is_reported = false;
        for key in 0..self.keys.len() {
            match self.read(view, key) {
                Ok(found) => {
                    let version = self.model.compare(key, found.as_ref(), now);
                    version.map_err(|wrong| format!("key {key} is {found:?}; {wrong}"))?;
                }
                Err(error) => {
                    is_damage(&error, harm)?;
                    is_reported = true;
                }
            }
        }
        Ok(is_reported)
    }

    /// Opens the store and reads all keys. Returns whether damage was reported.
    fn start_damaged(&mut self, harm: Harm) -> Check<bool> {
        let mut attempts = Vec::new();
        let opened = match self.try_start(&mut attempts) {
            Ok(opened) => opened,
            Err(error) => return is_damage(&error, harm).map(|()| true),
        };
        let time = opened.time.ok_or("an opening by a new process has no time")?;
        let view = opened.engine.view().clone();
        for attempt in attempts {
            self.model.restart(attempt.opened_at, attempt.before_ended_at);
        }
        self.process = Some(super::store::Process::new(opened.engine, time));
        let is_reported = self.read_damaged(&view, harm)?;
        if harm == Harm::None {
            let now = self.now()?;
            self.check_index(&view, now)?;
        }
        Ok(is_reported)
    }

    /// When everything has expired, everything is dropped.
    fn expire_everything(&mut self) -> Check {
        self.clock.advance(EVERYTHING_EXPIRED_MS);
        let now = self.now()?;
        let (reply, mut answer) = oneshot::channel();
        self.process()?.engine.run(vec![Call::Rotate { reply }], now);
        let rotated = answer.try_recv().map_err(|_| "a rotation was not answered")?;
        rotated.map_err(|error| format!("starting a segment failed: {error}"))?;
        let bound = 4 * self.view()?.segments().len() + 16;
        for _ in 0..bound {
            self.sweep_once(now)?;
            while !self.view()?.jobs().is_empty() {
                self.run_job()?;
            }
        }
        let view = self.view()?;
        let (segments, entries) = (view.segments().len(), entries(&view).len());
        if segments > SEGMENTS_LEFT || entries > 0 {
            return Err(format!(
                "{segments} segments and {entries} records are left after everything expired"
            ));
        }
        let files = self.disk.files();
        let count = |is_one: fn(&str) -> bool| files.iter().filter(|(name, _)| is_one(name)).count();
        let outcomes = count(|name| name.starts_with("outcome-"));
        let logs = count(|name| name.ends_with(".log"));
        match outcomes == 0 && logs == segments {
            true => Ok(()),
            false => {
                Err(format!("{logs} segments and {outcomes} outcomes are on disk after everything expired"))
            }
        }
    }

    fn sweep_once(&mut self, now: ichido_core::Timestamp) -> Check {
        let process = self.process()?;
        let view = process.engine.view().clone();
        let next = process.compaction.next(&view, now, Effort::Normal);
        match next.map_err(|error| format!("looking for space to reclaim failed: {error}"))? {
            Next::Nothing => Ok(()),
            Next::Move(records) => Err(format!("{} expired records would be copied", records.len())),
            Next::Drop(segment) => {
                let (reply, mut answer) = oneshot::channel();
                process.engine.run(vec![Call::Drop { segment, reply }], now);
                let dropped = answer.try_recv().map_err(|_| "a drop was not answered")?;
                dropped.map(drop).map_err(|error| format!("dropping a segment failed: {error}"))
            }
        }
    }
}

fn is_damage(error: &Error, harm: Harm) -> Check {
    match (error.kind(), harm) {
        (Kind::Corrupt(_) | Kind::Schema(_), Harm::Reported) => Ok(()),
        (_, Harm::Reported) => Err(format!("the damage is reported as something else: {error}")),
        (_, Harm::None) => Err(format!("nothing was lost, but damage is reported: {error}")),
    }
}
