//! Reads every file, and reports foreign and corrupt ones. Nothing is changed.

use serde::Serialize;

use super::error::Error;
use super::layout::{BatchDir, Layout};
use crate::disk;

/// A file that should not be there, or is corrupt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file.
    pub path: String,
    /// `foreign` or `corrupt`.
    pub kind: &'static str,
    /// What is wrong.
    pub detail: String,
}

/// Number of file names that are read at once.
const NAMES_PER_READ: usize = 10_000;

enum FileState {
    Valid,
    Gone,
    Corrupt(Finding),
}

/// Reads every file in the spool and in failed. Calls `report` for each finding, and returns the number of valid files.
pub fn fsck(layout: &Layout, mut report: impl FnMut(Finding)) -> Result<u64, Error> {
    let mut valid = 0;
    for batch_dir in [BatchDir::Spool, BatchDir::Failed] {
        let dir = layout.dir(batch_dir);
        for file in layout.foreign(batch_dir)? {
            let detail = match file.starts_with(disk::TEMP_PREFIX) {
                true => "a temporary file of an interrupted write; it was never acknowledged",
                false => "not a batch file; ichido leaves it alone",
            };
            report(Finding {
                path: dir.join(file).display().to_string(),
                kind: "foreign",
                detail: detail.to_owned(),
            });
        }
        let mut after = None;
        loop {
            let files = layout.oldest(batch_dir, after.as_ref(), NAMES_PER_READ)?;
            let Some(last) = files.last().cloned() else { break };
            let states = layout.read_each(batch_dir, &files, |listed, read| {
                let detail = match read {
                    Ok(Ok(_)) => return FileState::Valid,
                    Ok(Err(corrupt)) => corrupt.0,
                    // A process has taken it to send it.
                    Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                        return FileState::Gone;
                    }
                    Err(error) => error.to_string(),
                };
                let path = dir.join(&listed.file).display().to_string();
                FileState::Corrupt(Finding { path, kind: "corrupt", detail })
            });
            for state in states {
                match state {
                    FileState::Valid => valid += 1,
                    FileState::Gone => {}
                    FileState::Corrupt(finding) => report(finding),
                }
            }
            after = Some(last);
        }
    }
    Ok(valid)
}
