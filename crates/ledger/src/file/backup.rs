//! Copies a ledger to another directory, while it is in use.
//!
//! A commit never changes what earlier commits wrote, so a copy of all segments up to a commit is the store as it was after
//! that commit. A backup has the layout of a ledger: it can be verified, and opened.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::Ordering;

use super::verify::verify;
use crate::log::storage::Disk;
use crate::log::{View, is_backed_up, segment_name, write_high_water};
use crate::{Backup, Error, Kind, Result};

/// Copies the store of a view to a new directory.
pub(super) fn backup(view: &View, from: &Path, to: &Path) -> Result<Backup> {
    create(to)?;
    let failed = |error| failed("backing up", to, error);
    let segments = view.segments();
    let mut backup = Backup::default();
    for segment in &segments {
        // What the newest segment has now; commits may add to it.
        let end = u64::from(segment.end.load(Ordering::Acquire));
        let name = segment_name(segment.id);
        backup.bytes += copy(&from.join(&name), &to.join(&name), Some(end)).map_err(failed)?;
        backup.files += 1;
    }
    for name in names(from).map_err(failed)?.iter().filter(|name| is_backed_up(name)) {
        // A file of an outcome may be removed meanwhile: its claim has expired.
        match copy(&from.join(name), &to.join(name), None) {
            Ok(bytes) => (backup.files, backup.bytes) = (backup.files + 1, backup.bytes + bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
    }
    sync_dir(to).map_err(failed)?;
    finish(to, backup)
}

/// Checks the copy. Its last commit becomes its high-water mark.
fn finish(to: &Path, mut backup: Backup) -> Result<Backup> {
    let verified = verify(to)?;
    if let Some(problem) = verified.problems.first() {
        return Err(Error::new(
            Kind::Corrupt(format!("the copy is incomplete: {problem}")),
            "checking the backup",
        ));
    }
    backup.commit = verified.commit;
    write_high_water(&Disk::new(to), verified.commit).map_err(|error| failed("backing up", to, error))?;
    Ok(backup)
}

/// Copies a backup to a new directory, from which a process can open it. The backup is checked first.
pub fn restore(from: &Path, to: &Path) -> Result<Backup> {
    let verified = verify(from)?;
    if let Some(problem) = verified.problems.first() {
        let text = format!("the backup is damaged: {problem}");
        return Err(Error::new(Kind::Corrupt(text), "restoring a backup"));
    }
    create(to)?;
    let failed = |error| failed("restoring", to, error);
    let mut restored = Backup { commit: verified.commit, ..Backup::default() };
    for name in
        names(from).map_err(failed)?.iter().filter(|name| !["lock", "holder"].contains(&name.as_str()))
    {
        restored.bytes += copy(&from.join(name), &to.join(name), None).map_err(failed)?;
        restored.files += 1;
    }
    sync_dir(to).map_err(failed)?;
    Ok(restored)
}

fn create(dir: &Path) -> Result<()> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    let is_empty = created.and_then(|()| Ok(fs::read_dir(dir)?.next().is_none()));
    match is_empty {
        Ok(true) => Ok(()),
        Ok(false) => {
            let text = format!("{} is not empty; use a directory that does not exist", dir.display());
            Err(Error::new(Kind::Settings(text), "creating a copy of the ledger"))
        }
        Err(error) => Err(failed("creating", dir, error)),
    }
}

fn names(dir: &Path) -> io::Result<Vec<String>> {
    fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// Copies a file, or its beginning, and makes it durable.
fn copy(from: &Path, to: &Path, length: Option<u64>) -> io::Result<u64> {
    let mut source = fs::File::open(from)?.take(length.unwrap_or(u64::MAX));
    let mut target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    let copied = io::copy(&mut source, &mut target)?;
    if length.is_some_and(|length| copied < length) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    target.flush()?;
    target.sync_all()?;
    Ok(copied)
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    fs::File::open(dir)?.sync_all()
}

fn failed(doing: &str, dir: &Path, error: io::Error) -> Error {
    Error::new(Kind::Unavailable, format!("{doing} {} ({error})", dir.display())).caused_by(error)
}
