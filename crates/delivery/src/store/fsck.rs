//! Looks at every file, and names what is not as it should be. Nothing is changed.

use serde::Serialize;

use super::error::Error;
use super::layout::{BatchDir, Layout};
use crate::disk;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file.
    pub path: String,
    /// `foreign` or `corrupt`.
    pub kind: &'static str,
    /// What is wrong.
    pub detail: String,
}

/// Names that are read at once.
const AT_ONCE: usize = 10_000;

enum Looked {
    Sound,
    Gone,
    Bad(Finding),
}

/// Looks at every file of both places. `see` is called for each finding; the number of sound files is returned.
pub fn fsck(layout: &Layout, mut see: impl FnMut(Finding)) -> Result<u64, Error> {
    let mut sound = 0;
    for batch_dir in [BatchDir::Spool, BatchDir::Failed] {
        let dir = layout.dir(batch_dir);
        for file in layout.foreign(batch_dir)? {
            let detail = match file.starts_with(disk::TEMP_PREFIX) {
                true => "an unfinished file; nobody was told that it was accepted",
                false => "not a file of the spool; it is left alone",
            };
            see(Finding {
                path: dir.join(file).display().to_string(),
                kind: "foreign",
                detail: detail.to_owned(),
            });
        }
        let mut after = None;
        loop {
            let some = layout.oldest(batch_dir, after.as_ref(), AT_ONCE)?;
            let Some(last) = some.last().cloned() else { break };
            let looked = layout.look(batch_dir, &some, |listed, read| {
                let detail = match read {
                    Ok(Ok(_)) => return Looked::Sound,
                    Ok(Err(corrupt)) => corrupt.0,
                    // Taken by a process that is sending it.
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
                    Looked::Sound => sound += 1,
                    Looked::Gone => {}
                    Looked::Bad(finding) => see(finding),
                }
            }
            after = Some(last);
        }
    }
    Ok(sound)
}
