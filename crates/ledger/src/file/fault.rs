//! What went wrong with the store, in words for its operator.

use std::io;
use std::path::Path;

use super::engine::FLUSH_BYTES;
use super::journal;
use super::reader::Flaw;
use crate::{Error, Kind};

const RESTORE: &str = "restore the directory from a backup";
/// Errors that say that we may not.
pub(super) const DENIED: [io::ErrorKind; 2] =
    [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem];
/// Errors that say that a file is not as the engine left it.
const DAMAGED: [io::ErrorKind; 5] = [
    io::ErrorKind::NotFound,
    io::ErrorKind::AlreadyExists,
    io::ErrorKind::UnexpectedEof,
    io::ErrorKind::InvalidData,
    io::ErrorKind::InvalidInput,
];

/// A value that does not decode. Never an absent record: that would be a fresh grant.
pub(super) fn flaw(dir: &Path, keyspace: &str, flaw: Flaw) -> Error {
    let text = format!("a record in {keyspace:?} of {} cannot be read: {flaw}; {RESTORE}", dir.display());
    Error::new(Kind::Corrupt(text), "reading the ledger")
}

/// A store that lost what it had acknowledged.
pub(super) fn behind(dir: &Path, store: u64, mark: u64) -> Error {
    let text = format!(
        "{} ends at commit {store}, but commit {mark} was acknowledged: the store lost its latest claims, and would \
         grant them again; {RESTORE}. If you know that none of the lost claims matters, remove {} and open it again",
        dir.display(),
        dir.join("high-water").display()
    );
    Error::new(Kind::Corrupt(text), "opening the ledger")
}

/// Something in the directory is not as it was left.
pub(super) fn damaged(dir: &Path, what: impl std::fmt::Display) -> Error {
    let text = format!("{} is damaged: {what}; {RESTORE}", dir.display());
    Error::new(Kind::Corrupt(text), "opening the ledger")
}

/// An error of the file system.
pub(super) fn io(dir: &Path, doing: &str, error: io::Error) -> Error {
    let name = dir.display();
    if is_full(&error) {
        let text = format!(
            "{doing} file:{name}: the disk is full (no space left for {name}); nothing is acknowledged until there is room"
        );
        return Error::new(Kind::Unavailable, text).caused_by(error);
    }
    let doing = format!("{doing} file:{name} ({error})");
    let is = |kinds: &[io::ErrorKind]| kinds.contains(&error.kind());
    let kind = if is(&DENIED) {
        Kind::Denied(error.to_string())
    } else if is(&DAMAGED) {
        Kind::Corrupt(format!("a file of {name} is missing or damaged; {RESTORE}"))
    } else {
        Kind::Unavailable
    };
    Error::new(kind, doing).caused_by(error)
}

/// An error of the engine.
#[allow(clippy::wildcard_enum_match_arm, reason = "the engine's list of errors may grow")]
pub(super) fn engine(dir: &Path, doing: &str, error: fjall::Error) -> Error {
    let name = dir.display();
    let error = match error {
        fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => {
            return io(dir, doing, error);
        }
        other => other,
    };
    if matches!(error, fjall::Error::Poisoned | fjall::Error::Locked) {
        // A worker that fails to write a table does not say why.
        if has_no_room(dir) {
            return io(dir, doing, io::ErrorKind::StorageFull.into());
        }
        let doing = format!("{doing} file:{name} (the engine stopped; it is opened again)");
        return Error::new(Kind::Unavailable, doing).caused_by(error);
    }
    let text = format!("{name} is damaged ({error}); {RESTORE}");
    Error::new(Kind::Corrupt(text), format!("{doing} file:{name}")).caused_by(error)
}

/// The journals are not to be opened.
pub(super) fn journals(dir: &Path, error: journal::Error) -> Error {
    match error {
        journal::Error::Io { error, .. } => io(dir, "opening", error),
        flaw @ (journal::Error::Gap { .. } | journal::Error::Order { .. } | journal::Error::Torn { .. }) => {
            damaged(dir, flaw)
        }
    }
}

/// The engine panicked: its files are not what it expects.
pub(super) fn panicked(dir: &Path, doing: &str) -> Error {
    let text = format!("the engine failed on the files of {}; {RESTORE}", dir.display());
    Error::new(Kind::Corrupt(text), format!("{doing} file:{}", dir.display()))
}

/// Whether there is no room for the tables of one flush.
fn has_no_room(dir: &Path) -> bool {
    rustix::fs::statvfs(dir).is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < 2 * FLUSH_BYTES)
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
