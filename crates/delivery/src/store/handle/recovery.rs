//! What the dead held, and directories that cannot be worked in.

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

/// What a dead process left.
enum Left {
    /// A batch that is not known to have arrived.
    Open,
    /// A batch that has arrived; its file is gone.
    Delivered,
}

impl Store {
    /// Gives back to the spool what dead processes held. Says how many batches.
    pub fn adopt(&self) -> Result<usize, Error> {
        let dir = self.layout.inflight();
        let reading = |error| Error::io("reading", &dir, error);
        let mut adopted = 0;
        for abandoned in process_dir::abandoned(&dir, self.process_dir.path()).map_err(reading)? {
            let files: Vec<(String, FileName)> = abandoned
                .files()
                .map_err(reading)?
                .into_iter()
                .filter_map(|file| Some((file.clone(), FileName::parse(BatchDir::Spool.as_str(), &file)?)))
                .collect();
            let files = match self.without_parts(&abandoned, files) {
                Ok(files) => files,
                Err(error) => {
                    tracing::error!(%error, "what a dead process held stays where it is for now");
                    continue;
                }
            };
            let requests = request_log::read_log(&self.disk, abandoned.path());
            for (file, name) in files {
                let request = requests.get(&file).copied();
                adopted += usize::from(self.adopt_file(&abandoned, &file, name, request)?);
            }
            abandoned.remove().map_err(reading)?;
        }
        Ok(adopted)
    }

    /// Gives one file back; says whether it is in the spool now.
    fn adopt_file(
        &self,
        abandoned: &AbandonedDir,
        file: &str,
        mut name: FileName,
        request: Option<(RequestState, Timestamp)>,
    ) -> Result<bool, Error> {
        match self.settle(abandoned, file, &name, request) {
            Ok(Left::Open) => {}
            Ok(Left::Delivered) => return Ok(false),
            Err(error) => {
                tracing::error!(%error, "a batch of a dead process stays where it is for now");
                return Ok(false);
            }
        }
        name.copy = 1;
        self.move_to(&abandoned.path().join(file), BatchDir::Spool, name)?;
        Ok(true)
    }

    /// Writes what a dead process knew of its last request into the file. A batch that it has a receipt for has arrived:
    /// its file goes.
    fn settle(
        &self,
        abandoned: &AbandonedDir,
        file: &str,
        name: &FileName,
        request: Option<(RequestState, Timestamp)>,
    ) -> Result<Left, Error> {
        let path = abandoned.path().join(file);
        let Ok(mut stored) = read_file(&self.disk, &path, name)? else { return Ok(Left::Open) };
        if self.is_delivered_by(abandoned, &stored) {
            self.disk.remove(&path).map_err(|error| Error::io("removing", &path, error))?;
            tracing::info!(
                batchIdempotencyKey = stored.batch.key(),
                "removed the file of a batch that was delivered"
            );
            return Ok(Left::Delivered);
        }
        let before = stored.history.clone();
        if let Some((request, at)) = request {
            stored.history.add(request, at);
        }
        if stored.history != before {
            let bytes = stored.encode(name.gzip);
            let replaced = self.disk.replace(abandoned.path(), file, &bytes);
            replaced.map_err(|error| Error::io("writing", &path, error))?;
        }
        Ok(Left::Open)
    }

    fn is_delivered_by(&self, abandoned: &AbandonedDir, stored: &StoredBatch) -> bool {
        let found = self.receipts.has_delivered_by(&abandoned.name(), &stored.batch);
        found.unwrap_or_else(|error| {
            tracing::error!(%error, "cannot read receipts; a batch may be sent again");
            false
        })
    }

    /// Removes the parts of a batch that is there as well: its division did not come to its end, and nothing of the
    /// parts was sent. Sent by themselves they might be divided at other places than the whole.
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
            self.disk.remove(&path).map_err(|error| Error::io("removing", &path, error))?;
        }
        Ok(files.into_iter().filter(|(file, _)| !parts.iter().any(|(_, part)| part == file)).collect())
    }
}

/// A directory that cannot be worked in, with its rights.
pub(super) fn refused(dir: &Path, error: io::Error) -> Error {
    let there = dir.ancestors().find_map(|dir| fs::metadata(dir).ok().map(|metadata| (dir, metadata)));
    let source = match there {
        Some((there, metadata)) => {
            let mode = metadata.permissions().mode() & 0o7777;
            io::Error::new(error.kind(), format!("{error} ({} has mode {mode:04o})", there.display()))
        }
        None => error,
    };
    Error::io("preparing", dir, source)
}
