//! Copies a ledger to another directory while it is in use, and back.
//!
//! A commit never changes what earlier commits wrote, so a copy of all segments up to a commit is the store as it was after
//! that commit. A backup has the layout of a ledger: it can be verified, and opened.
//!
//! A copy that was interrupted must not look like a ledger, because every claim that it lacks would be granted again. So a
//! backup gets its high-water mark last, and is not restored without one. A restored directory gets the mark first and the file
//! that makes it a ledger last: a directory with only some of these files is not opened.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::Ordering;

use super::holder::{self, Held};
use super::verify::verify;
use crate::log::storage::Disk;
use crate::log::{HIGH_WATER, IDENTITY, View, is_backed_up, segment_name, write_high_water};
use crate::{Backup, Error, Kind, Result};

/// Copies the store of a view to a new directory. Ends early if the ledger is closed meanwhile.
pub(super) fn backup(view: &View, from: &Path, to: &Path, is_closed: impl Fn() -> bool) -> Result<Backup> {
    create(from, to)?;
    let failed = |error| failed("backing up the ledger", to, error);
    let mut backup = Backup::default();
    for segment in &view.segments() {
        // What the newest segment has now; commits may add to it.
        let end = u64::from(segment.end.load(Ordering::Acquire));
        let name = segment_name(segment.id);
        backup.bytes += copy(&from.join(&name), &to.join(&name), Some(end)).map_err(failed)?;
        backup.files += 1;
        if is_closed() {
            return Err(Error::new(Kind::Closed, format!("backing up the ledger to {}", to.display())));
        }
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
    let written = write_high_water(&Disk::new(to), verified.commit);
    written.map_err(|error| failed("backing up the ledger", to, error))?;
    Ok(backup)
}

/// Copies a backup to a new directory, from which a process can open it. The backup is checked first. Blocks for as long as
/// that takes.
pub fn restore(from: &Path, to: &Path) -> Result<Backup> {
    let verified = verify(from)?;
    let problem = match from.join(HIGH_WATER).exists() {
        true => verified.problems.into_iter().next(),
        false => Some(format!("the file {HIGH_WATER} is missing, which is written last")),
    };
    if let Some(problem) = problem {
        let text =
            format!("{} is damaged or incomplete, and nothing was restored: {problem}", from.display());
        return Err(Error::new(Kind::Corrupt(text), "checking the backup"));
    }
    let held = Held::take_empty(to)?;
    let restored = copy_back(from, held.dir()).map_err(|error| failed("restoring the backup", to, error));
    held.release();
    let (files, bytes) = restored?;
    Ok(Backup { commit: verified.commit, files, bytes })
}

fn copy_back(from: &Path, to: &Path) -> io::Result<(u64, u64)> {
    let mut names = names(from)?;
    names.retain(|name| !holder::is_own_file(name) && ![HIGH_WATER, IDENTITY].contains(&name.as_str()));
    let mut bytes = copy(&from.join(HIGH_WATER), &to.join(HIGH_WATER), None)?;
    sync_dir(to)?;
    for name in &names {
        bytes += copy(&from.join(name), &to.join(name), None)?;
    }
    sync_dir(to)?;
    bytes += copy(&from.join(IDENTITY), &to.join(IDENTITY), None)?;
    sync_dir(to)?;
    Ok((names.len() as u64 + 2, bytes))
}

/// Creates the directory of a backup.
fn create(from: &Path, to: &Path) -> Result<()> {
    let refused = |text| Err(Error::new(Kind::Settings(text), "backing up the ledger"));
    if to.starts_with(from) {
        let text = format!("{} is inside the ledger's own directory; use a directory outside", to.display());
        return refused(text);
    }
    let created = DirBuilder::new().recursive(true).mode(0o700).create(to);
    match created.and_then(|()| Ok(fs::read_dir(to)?.next().is_none())) {
        Ok(true) => Ok(()),
        Ok(false) => refused(format!("{} is not empty; use a directory that does not exist", to.display())),
        Err(error) => Err(failed("backing up the ledger", to, error)),
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

/// The ledger itself is not the problem: the operator chose the directory.
fn failed(doing: &'static str, to: &Path, error: io::Error) -> Error {
    let text = format!("cannot copy it to {}: {error}; the copy is incomplete", to.display());
    Error::new(Kind::Settings(text), doing).caused_by(error)
}
