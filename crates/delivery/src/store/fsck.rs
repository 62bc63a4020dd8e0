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

enum Looked {
    Valid,
    Gone,
    Bad(Finding),
}

/// Reads every file in the spool and in failed. Calls `see` for each finding, and returns the number of valid files.
pub fn fsck(layout: &Layout, mut see: impl FnMut(Finding)) -> Result<u64, Error> {
    let mut valid = 0;
    for batch_dir in [BatchDir::Spool, BatchDir::Failed] {
        let dir = layout.dir(batch_dir);
        for file in layout.foreign(batch_dir)? {
            let detail = match file.starts_with(disk::TEMP_PREFIX) {
                true => "a temporary file of an interrupted write; it was never acknowledged",
                false => "not a batch file; ichido leaves it alone",
            };
            see(Finding {
                path: dir.join(file).display().to_string(),
                kind: "foreign",
                detail: detail.to_owned(),
            });
        }
        let mut after = None;
        loop {
            let some = layout.oldest(batch_dir, after.as_ref(), NAMES_PER_READ)?;
            let Some(last) = some.last().cloned() else { break };
            let looked = layout.read_each(batch_dir, &some, |listed, read| {
                let detail = match read {
                    Ok(Ok(_)) => return Looked::Valid,
                    Ok(Err(corrupt)) => corrupt.0,
                    // A process has taken it to send it.
                    Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                        return Looked::Gone;
                    }
                    Err(error) => error.to_string(),
                };
                let path = dir.join(&listed.file).display().to_string();
                Looked::Bad(Finding { path, kind: "corrupt", detail })
            });
            for looked in looked {
                match looked {
                    Looked::Valid => valid += 1,
                    Looked::Gone => {}
                    Looked::Bad(finding) => see(finding),
                }
            }
            after = Some(last);
        }
    }
    Ok(valid)
}
