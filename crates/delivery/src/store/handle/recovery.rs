//! Recovers the batches of crashed processes.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ichido_core::Timestamp;

use super::Store;
use crate::history::RequestState;
use crate::process_dir::{self, AbandonedDir};
use crate::store::error::Error;
use crate::store::file_name::FileName;
use crate::store::format::StoredBatch;
use crate::store::layout::{BatchDir, read_file};
use crate::store::request_log;

/// What a crashed process left behind.
enum Leftover {
    /// A batch that is not known to be delivered.
    Pending,
    /// A delivered batch, whose file is removed now.
    Delivered,
}

impl Store {
    /// Moves the batches of crashed processes back to the spool, and returns their number.
    pub fn recover(&self) -> Result<usize, Error> {
        let dir = self.layout.inflight();
        let reading = |error| Error::io("read", &dir, error);
        let mut recovered = 0;
        for abandoned in process_dir::abandoned(&dir, self.process_dir.path()).map_err(reading)? {
            if let Err(error) = self.unpack_groups(&abandoned) {
                tracing::error!(%error, "cannot recover the batches of a crashed process yet");
                continue;
            }
            let files: Vec<(String, FileName)> = abandoned
                .files()
                .map_err(reading)?
                .into_iter()
                .filter_map(|file| Some((file.clone(), FileName::parse(BatchDir::Spool.as_str(), &file)?)))
                .collect();
            let files = match self.without_parts(&abandoned, files) {
                Ok(files) => files,
                Err(error) => {
                    tracing::error!(%error, "cannot recover the batches of a crashed process yet");
                    continue;
                }
            };
            let requests = request_log::read_log(&self.disk, abandoned.path());
            for (file, name) in files {
                let request = requests.get(&file).copied();
                recovered += usize::from(self.recover_file(&abandoned, &file, name, request)?);
            }
            abandoned.remove().map_err(reading)?;
        }
        Ok(recovered)
    }

    /// Moves one file back. Returns whether it is in the spool now.
    fn recover_file(
        &self,
        abandoned: &AbandonedDir,
        file: &str,
        mut name: FileName,
        request: Option<(RequestState, Timestamp)>,
    ) -> Result<bool, Error> {
        match self.update_history(abandoned, file, &name, request) {
            Ok(Leftover::Pending) => {}
            Ok(Leftover::Delivered) => return Ok(false),
            Err(error) => {
                tracing::error!(%error, "cannot recover a batch of a crashed process yet");
                return Ok(false);
            }
        }
        name.copy = 1;
        self.move_to(&abandoned.path().join(file), BatchDir::Spool, name)?;
        Ok(true)
    }

    /// Adds the last logged request to the history in the file. If a receipt says that the batch was delivered, removes
    /// the file.
    fn update_history(
        &self,
        abandoned: &AbandonedDir,
        file: &str,
        name: &FileName,
        request: Option<(RequestState, Timestamp)>,
    ) -> Result<Leftover, Error> {
        let path = abandoned.path().join(file);
        let Ok(mut stored) = read_file(&self.disk, &path, name)? else { return Ok(Leftover::Pending) };
        if self.is_delivered_by(abandoned, &stored) {
            self.disk.remove(&path).map_err(|error| Error::io("remove", &path, error))?;
            tracing::info!(
                batchIdempotencyKey = stored.batch.key(),
                "removed the leftover file of a delivered batch"
            );
            return Ok(Leftover::Delivered);
        }
        let before = stored.history.clone();
        if let Some((request, at)) = request {
            stored.history.add(request, at);
        }
        if stored.history != before {
            let bytes = stored.encode(name.gzip);
            let replaced = self.disk.replace(abandoned.path(), file, &bytes);
            replaced.map_err(|error| Error::io("write", &path, error))?;
        }
        Ok(Leftover::Pending)
    }

    fn is_delivered_by(&self, abandoned: &AbandonedDir, stored: &StoredBatch) -> bool {
        let found = self.receipts.has_delivered_by(&abandoned.name(), &stored.batch);
        found.unwrap_or_else(|error| {
            tracing::error!(%error, "cannot read receipts; a delivered batch may be sent again");
            false
        })
    }

    /// Removes the parts of a batch that is still there: it was being split, and no part was sent. Sent on their
    /// own, the parts might be split at other positions than the whole batch.
    fn without_parts(
        &self,
        abandoned: &AbandonedDir,
        files: Vec<(String, FileName)>,
    ) -> Result<Vec<(String, FileName)>, Error> {
        if files.len() < 2 {
            return Ok(files);
        }
        let (mut wholes, mut parts) = (HashSet::new(), Vec::new());
        for (file, name) in &files {
            if let Ok(stored) = read_file(&self.disk, &abandoned.path().join(file), name)? {
                wholes.insert(stored.batch.key().to_owned());
                parts.extend(stored.part_of.map(|whole| (whole, file.clone())));
            }
        }
        parts.retain(|(whole, _)| wholes.contains(whole));
        for (_, file) in &parts {
            let path = abandoned.path().join(file);
            self.disk.remove(&path).map_err(|error| Error::io("remove", &path, error))?;
        }
        Ok(files.into_iter().filter(|(file, _)| !parts.iter().any(|(_, part)| part == file)).collect())
    }
}

/// The error for a directory that cannot be used, with the permissions of the nearest existing parent.
pub(super) fn unusable_dir(dir: &Path, error: io::Error) -> Error {
    let there = dir.ancestors().find_map(|dir| fs::metadata(dir).ok().map(|metadata| (dir, metadata)));
    let source = match there {
        Some((there, metadata)) => {
            let mode = metadata.permissions().mode() & 0o7777;
            io::Error::new(error.kind(), format!("{error} ({} has mode {mode:04o})", there.display()))
        }
        None => error,
    };
    Error::io("prepare", dir, source)
}
