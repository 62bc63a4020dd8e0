//! Batches that were written together.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, MutexGuard, PoisonError};

use super::{OwnedFile, Store};
use crate::batch::Batch;
use crate::disk::already_exists;
use crate::process_dir::AbandonedDir;
use crate::store::error::Error;
use crate::store::file_name::FileName;
use crate::store::format::{Corrupt, FILE_BYTES_MAX, StoredBatch, seal};
use crate::store::group_file::{self, GONE, GROUP_BATCHES_MAX, GROUP_BYTES_MAX, Span};
use crate::store::layout::BatchDir;

/// The groups of this process.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Number of groups that were written.
    written: u64,
    /// The names of all entries, and of files that are being created. No file of this process gets one of them, so a file
    /// with the name of an entry is that entry, extracted.
    names: HashSet<String>,
}

/// Where a batch is in a group.
#[derive(Debug)]
pub(super) struct Grouped {
    group: Arc<Group>,
    span: Span,
}

#[derive(Debug)]
struct Group {
    path: PathBuf,
    file: File,
    /// Number of entries that have not left.
    live: AtomicUsize,
}

/// What a change must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// A crash of the process.
    Process,
    /// A power failure.
    Machine,
}

impl Store {
    /// Writes new batches to disk before any of them is sent, with one sync for as many as a group may hold. Fails if the
    /// spool is full. On an error, none of them is on disk.
    pub fn accept_group(&self, batches: &[StoredBatch]) -> Result<Vec<OwnedFile>, Error> {
        if let [only] = batches {
            return Ok(vec![self.accept(only)?]);
        }
        let (mut bytes, mut owned) = (Vec::with_capacity(GROUP_BYTES_MAX / 4), Vec::new());
        for stored in batches {
            let mut name = FileName::new(stored.first_attempt, stored.batch.key(), false);
            let file = self.reserve_name(&mut name);
            let text = stored.encode_unsealed();
            let span = group_file::push(&mut bytes, &file, &text);
            owned.push((OwnedFile { file, name, bytes: text.len() as u64, grouped: None }, span));
        }
        let group = self.check_quota(bytes.len() as u64).and_then(|()| self.write_group(&bytes, owned.len()));
        let group =
            group.inspect_err(|_| owned.iter().for_each(|(owned, _)| self.release_name(&owned.file)))?;
        self.add_used(owned.iter().map(|(owned, _)| owned.bytes).sum());
        let grouped = |span| Some(Grouped { group: group.clone(), span });
        Ok(owned.into_iter().map(|(owned, span)| OwnedFile { grouped: grouped(span), ..owned }).collect())
    }

    fn write_group(&self, bytes: &[u8], entries: usize) -> Result<Arc<Group>, Error> {
        let number = {
            let mut groups = self.groups();
            groups.written += 1;
            groups.written
        };
        let (dir, name) = (self.process_dir.path(), group_file::name(number));
        let path = dir.join(&name);
        let failed = |error| Error::io("write", &path, error);
        self.disk.create(dir, &name, bytes).map_err(failed)?;
        let file = self.disk.open_update(&path).map_err(|error| {
            drop(std::fs::remove_file(&path));
            failed(error)
        })?;
        Ok(Arc::new(Group { file, live: AtomicUsize::new(entries), path }))
    }

    /// How many of these batches may be written together: at least one.
    pub fn group_size(batches: &[Batch]) -> usize {
        let mut bytes = 0;
        let fits = |batch: &&Batch| {
            bytes += batch.records().iter().map(|record| record.json().len() + 1).sum::<usize>();
            bytes <= GROUP_BYTES_MAX
        };
        batches.iter().take(GROUP_BATCHES_MAX).take_while(fits).count().max(1)
    }

    /// Reserves a name that neither a file nor an entry of this process has.
    pub(super) fn reserve_name(&self, name: &mut FileName) -> String {
        let mut groups = self.groups();
        loop {
            let file = name.text(BatchDir::Spool.as_str());
            if !groups.names.contains(&file) && !self.process_dir.path().join(&file).exists() {
                groups.names.insert(file.clone());
                return file;
            }
            name.copy += 1;
        }
    }

    /// Ends the reservation of a name.
    pub(super) fn release_name(&self, file: &str) {
        self.groups().names.remove(file);
    }

    /// Gives a batch a file of its own, as it was accepted.
    pub(super) fn extract(&self, owned: &mut OwnedFile) -> Result<(), Error> {
        let Some(Grouped { group, span }) = &owned.grouped else { return Ok(()) };
        let failed = |error| Error::io("extract a batch from", &group.path, error);
        let text = self.disk.read_part(&group.file, &group.path, &span.text).map_err(failed)?;
        group_file::check(&text, span.crc).map_err(|corrupt| failed(invalid(&corrupt)))?;
        let text = String::from_utf8(text).map_err(|error| failed(io::Error::other(error)))?;
        let replaced = self.disk.replace(self.process_dir.path(), &owned.file, seal(text).as_bytes());
        replaced.map_err(failed)?;
        self.leave_own_group(owned)
    }

    /// A batch now has a file of its own.
    pub(super) fn leave_own_group(&self, owned: &mut OwnedFile) -> Result<(), Error> {
        if let Some(grouped) = &owned.grouped {
            // The file may be moved or removed next. The entry must not come back then.
            self.leave_group(grouped, &owned.file, Durability::Machine)?;
            owned.grouped = None;
        }
        Ok(())
    }

    /// Marks an entry as gone. The last one to leave removes the group.
    pub(super) fn leave_group(
        &self,
        grouped: &Grouped,
        file: &str,
        durability: Durability,
    ) -> Result<(), Error> {
        let Grouped { group, span } = grouped;
        let failed = |error| Error::io("write", &group.path, error);
        self.disk.overwrite(&group.file, &group.path, GONE, span.state).map_err(failed)?;
        if durability == Durability::Machine {
            self.disk.sync_data(&group.file, &group.path).map_err(failed)?;
        }
        self.release_name(file);
        if group.live.fetch_sub(1, Relaxed) == 1
            && let Err(error) = self.disk.remove(&group.path)
        {
            // The next process finds no entry in it, and removes it.
            tracing::error!(%error, path = %group.path.display(), "cannot remove an empty group of batches");
        }
        Ok(())
    }

    /// Gives each entry of a crashed process's groups a file of its own. After another crash this starts again, because
    /// no file is moved before its group is gone.
    pub(super) fn unpack_groups(&self, abandoned: &AbandonedDir) -> Result<(), Error> {
        let dir = abandoned.path();
        let files = abandoned.files().map_err(|error| Error::io("read", dir, error))?;
        for group in files.iter().filter(|file| group_file::is_group(file)) {
            let path = dir.join(group);
            let failed = |error| Error::io("unpack", &path, error);
            let bytes = self.disk.read(&path, FILE_BYTES_MAX).map_err(failed)?;
            for entry in group_file::parse(&bytes).map_err(|corrupt| failed(invalid(&corrupt)))? {
                match self.disk.create(dir, entry.file, entry.sealed().as_bytes()) {
                    // The process crashed after it had extracted the entry.
                    Err(error) if already_exists(&error) => {}
                    other => other.map_err(failed)?,
                }
            }
            self.disk.remove(&path).map_err(failed)?;
            self.disk.sync_dir(dir).map_err(failed)?;
        }
        Ok(())
    }

    fn groups(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn invalid(corrupt: &Corrupt) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, corrupt.to_string())
}
