//! Compares what readers see with what the store must contain.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use ichido_core::{State, Timestamp};

use super::model::{Held, Version};
use super::store::{Check, Store};
use crate::log::{RecordKind, View};

/// How a record is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Listed {
    Open,
    Done,
    Mark,
}

impl Store {
    /// Reads a key.
    pub(super) fn read(&self, view: &View, key: usize) -> crate::Result<Option<Held>> {
        let index = self.keys.index(key);
        Ok(match self.keys.is_claim(key) {
            true => view.claim(&index)?.map(|found| Held::Claim(found.record)),
            false => view.mark(&index)?.map(|found| Held::Mark(found.record)),
        })
    }

    /// Reads a key, and compares what it finds.
    pub(super) fn compare(&self, view: &View, key: usize, now: Timestamp) -> Check<Version> {
        let faults = self.faults();
        let found = match self.read(view, key) {
            Ok(found) => found,
            Err(error) => {
                self.justify(&error, faults, "reading a key")?;
                return Ok(Version::Same);
            }
        };
        let version = self.model.compare(key, found.as_ref(), now);
        version.map_err(|wrong| format!("key {key} is {found:?}; {wrong}"))
    }

    /// Reads all keys.
    pub(super) fn compare_all(&self, view: &View, now: Timestamp) -> Check<Vec<Version>> {
        (0..self.keys.len()).map(|key| self.compare(view, key, now)).collect()
    }

    /// Checks the list of all records, and every count that must agree with it.
    pub(super) fn check_index(&mut self, view: &View, now: Timestamp) -> Check {
        let entries = entries(view);
        let mut listed: BTreeMap<(u64, Listed), i64> = BTreeMap::new();
        let mut live: BTreeMap<u32, u32> = BTreeMap::new();
        for (tag, location) in &entries {
            let kind = match location.kind {
                RecordKind::Open => Listed::Open,
                RecordKind::Done | RecordKind::Large => Listed::Done,
                RecordKind::Mark => Listed::Mark,
                RecordKind::Removed | RecordKind::State => {
                    return Err("a record without a key is listed".into());
                }
            };
            *listed.entry((*tag, kind)).or_default() += 1;
            *live.entry(location.segment).or_default() += 1;
        }
        let open: Vec<u64> =
            listed.keys().filter(|(_, kind)| *kind == Listed::Open).map(|(tag, _)| *tag).collect();
        let noted = open_tags(view);
        if noted != open {
            return Err(format!("the open claims are {open:x?}, but {noted:x?} are listed"));
        }
        self.check_segments(view, &live)?;
        self.check_list(view, listed, now)
    }

    fn check_segments(&mut self, view: &View, live: &BTreeMap<u32, u32>) -> Check {
        let segments = view.segments();
        self.report.segments_max = self.report.segments_max.max(segments.len() as u64);
        for segment in &segments {
            let (counted, listed) = (segment.live.load(Ordering::Acquire), live.get(&segment.id).copied());
            if counted != listed.unwrap_or(0) {
                return Err(format!(
                    "segment {} has {listed:?} records, but {counted} are counted",
                    segment.id
                ));
            }
        }
        match live.keys().find(|id| view.segment(**id).is_none()) {
            Some(id) => Err(format!("records of segment {id} are listed, but it was dropped")),
            None => Ok(()),
        }
    }

    /// Each record is listed once. Those that have expired may be listed.
    fn check_list(&self, view: &View, mut listed: BTreeMap<(u64, Listed), i64>, now: Timestamp) -> Check {
        let mut expired: BTreeMap<(u64, Listed), i64> = BTreeMap::new();
        for (key, held) in self.model.iter() {
            let kind = match held {
                Held::Mark(_) => Listed::Mark,
                Held::Claim(record) => match record.state {
                    State::Running | State::InDoubt(_) => Listed::Open,
                    State::Done(_) => Listed::Done,
                },
            };
            let entry = (view.tag(&self.keys.index(key)), kind);
            match held.is_expired(now) {
                true => *expired.entry(entry).or_default() += 1,
                false => *listed.entry(entry).or_default() -= 1,
            }
        }
        for (entry, count) in listed {
            let allowed = expired.get(&entry).copied().unwrap_or(0);
            if !(0..=allowed).contains(&count) {
                return Err(format!("{entry:x?} is listed {count} times too often; {allowed} have expired"));
            }
        }
        Ok(())
    }
}

type Entries = Vec<(u64, crate::log::Location)>;

/// All entries of the index, in order.
pub(super) fn entries(view: &View) -> Entries {
    let mut all = Vec::new();
    let mut from = Some(0);
    while let Some(tag) = from {
        let entries = view.index.entries_from(tag);
        from = entries.last().and_then(|(tag, _)| tag.checked_add(1));
        all.extend(entries);
    }
    all
}

/// The tags of open claims, as they are listed.
fn open_tags(view: &View) -> Vec<u64> {
    let mut tags = Vec::new();
    let mut from = Some(0);
    while let Some(entries) = from.map(|tag| view.index.open_from(tag)).filter(|entries| !entries.is_empty())
    {
        tags.extend(entries.iter().map(|(tag, _)| *tag));
        from = tags.last().and_then(|tag| tag.checked_add(1));
    }
    tags.dedup();
    tags
}
