//! Keeps identical batches in the spool as one file.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};

use super::{OwnedFile, Store};
use crate::store::error::Error;
use crate::store::file_name::FileName;
use crate::store::format::StoredBatch;
use crate::store::layout::{BatchDir, ListedFile};

/// Number of spooled files by the hash of the key in their names: twelve bytes per entry.
pub(super) type WaitingKeys = HashMap<u64, u32>;

impl Store {
    /// The path of an identical batch in the spool, if there is one.
    pub(super) fn find_duplicate(&self, owned: &OwnedFile) -> Result<Option<PathBuf>, Error> {
        let key = hash(&owned.name.key);
        let mut waiting = self.waiting();
        if waiting.is_none() {
            let mut found = WaitingKeys::new();
            self.layout.each_listed(BatchDir::Spool, |listed| {
                *found.entry(hash(&listed.name.key)).or_default() += 1;
            })?;
            *waiting = Some(found);
        }
        let may_wait = waiting.as_ref().is_some_and(|waiting| waiting.contains_key(&key));
        drop(waiting);
        if !may_wait {
            return Ok(None);
        }
        let mut alike = Vec::new();
        self.layout.each_listed(BatchDir::Spool, |listed| {
            if listed.name.key == owned.name.key {
                alike.push(listed);
            }
        })?;
        if alike.is_empty() {
            return Ok(None);
        }
        let Ok(ours) = self.read(owned)? else { return Ok(None) };
        for listed in alike {
            // A file that is gone by now was taken by another process, or delivered.
            if let Ok(Ok(theirs)) = self.layout.read(BatchDir::Spool, &listed)
                && theirs.batch.key() == ours.batch.key()
                && same_records(&theirs, &ours)
            {
                return Ok(Some(self.layout.dir(BatchDir::Spool).join(&listed.file)));
            }
        }
        Ok(None)
    }

    fn waiting(&self) -> MutexGuard<'_, Option<WaitingKeys>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add_waiting(&self, path: &Path) {
        let file = path.file_name().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
        if let Some(waiting) = self.waiting().as_mut()
            && let Some(name) = FileName::parse(BatchDir::Spool.as_str(), &file)
        {
            *waiting.entry(hash(&name.key)).or_default() += 1;
        }
    }

    pub(super) fn remove_waiting(&self, batch_dir: BatchDir, listed: &ListedFile) {
        let key = hash(&listed.name.key);
        if batch_dir == BatchDir::Spool
            && let Some(waiting) = self.waiting().as_mut()
            && let Some(alike) = waiting.get_mut(&key)
        {
            *alike -= 1;
            if *alike == 0 {
                waiting.remove(&key);
            }
        }
    }
}

fn hash(key: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

fn same_records(one: &StoredBatch, other: &StoredBatch) -> bool {
    let (one, other) = (one.batch.records(), other.batch.records());
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.json() == other.json())
}
