//! The same batch twice is one file.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};

use super::{OwnedFile, Store};
use crate::store::error::Error;
use crate::store::file_name::FileName;
use crate::store::format::StoredBatch;
use crate::store::layout::{BatchDir, ListedFile};

/// How many files wait whose name has a key with this hash: twelve bytes for each, however many wait.
pub(super) type Waiting = HashMap<u64, u32>;

impl Store {
    /// Where the very same batch lies in the spool already.
    pub(super) fn waits_already(&self, owned: &OwnedFile) -> Result<Option<PathBuf>, Error> {
        let key = hash(&owned.name.key);
        let mut waiting = self.waiting();
        if waiting.is_none() {
            let mut found = Waiting::new();
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
            // What is gone meanwhile is in the hands of another process, or has arrived.
            if let Ok(Ok(theirs)) = self.layout.read(BatchDir::Spool, &listed)
                && theirs.batch.key() == ours.batch.key()
                && same_records(&theirs, &ours)
            {
                return Ok(Some(self.layout.dir(BatchDir::Spool).join(&listed.file)));
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
            && let Some(name) = FileName::parse(BatchDir::Spool.as_str(), &file)
        {
            *waiting.entry(hash(&name.key)).or_default() += 1;
        }
    }

    pub(super) fn forget(&self, batch_dir: BatchDir, listed: &ListedFile) {
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
