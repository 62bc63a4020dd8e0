//! The same batch twice is one file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};

use super::{Held, Store};
use crate::store::Error;
use crate::store::format::Stored;
use crate::store::layout::{Listed, Place};
use crate::store::name::Name;

/// Files that wait, by the part of their key that is in their name.
pub(super) type Waiting = HashMap<String, Vec<Listed>>;

impl Store {
    /// Where the very same batch lies in the spool already.
    pub(super) fn waits_already(&self, held: &Held) -> Result<Option<PathBuf>, Error> {
        let mut waiting = self.waiting();
        if waiting.is_none() {
            let mut found = Waiting::new();
            for listed in self.layout.oldest(Place::Spool, None, usize::MAX)? {
                found.entry(listed.name.key.clone()).or_default().push(listed);
            }
            *waiting = Some(found);
        }
        let alike = waiting.as_ref().and_then(|waiting| waiting.get(&held.name.key)).cloned();
        drop(waiting);
        let Some(alike) = alike else { return Ok(None) };
        let Ok(ours) = self.read(held)? else { return Ok(None) };
        for listed in alike {
            // What is gone meanwhile is in the hands of another process, or has arrived.
            if let Ok(Ok(theirs)) = self.layout.read(Place::Spool, &listed)
                && theirs.batch.key() == ours.batch.key()
                && same_records(&theirs, &ours)
            {
                return Ok(Some(self.layout.dir(Place::Spool).join(&listed.file)));
            }
        }
        Ok(None)
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn remember(&self, path: &Path) {
        let file = path.file_name().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
        if let Some(waiting) = self.waiting().as_mut()
            && let Some(name) = Name::parse(Place::Spool.word(), &file)
        {
            waiting.entry(name.key.clone()).or_default().push(Listed { name, file });
        }
    }

    pub(super) fn forget(&self, listed: &Listed) {
        if let Some(waiting) = self.waiting().as_mut()
            && let Some(alike) = waiting.get_mut(&listed.name.key)
        {
            alike.retain(|other| other.file != listed.file);
            if alike.is_empty() {
                waiting.remove(&listed.name.key);
            }
        }
    }
}

fn same_records(one: &Stored, other: &Stored) -> bool {
    let (one, other) = (one.batch.records(), other.batch.records());
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.json() == other.json())
}
