//! Errors of the log, in words for its operator: what failed, where, and what to do.

use std::fmt;
use std::io;

use super::reader::Flaw;
use crate::{Error, Kind};

const RESTORE: &str = "restore the directory from a backup";
/// Errors that mean that access is not allowed.
pub(crate) const DENIED: [io::ErrorKind; 2] =
    [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem];
/// Errors that mean that a file is not as it was left.
const DAMAGED: [io::ErrorKind; 3] =
    [io::ErrorKind::NotFound, io::ErrorKind::UnexpectedEof, io::ErrorKind::InvalidData];

/// Makes errors that name the directory of a store.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    pub(crate) dir: String,
}

impl Faults {
    /// A file contains something else than what was written.
    pub(crate) fn damaged(&self, file: &str, offset: u64, flaw: Flaw) -> Error {
        let text = format!("{}/{file} is damaged at offset {offset}: {flaw}; {RESTORE}", self.dir);
        Error::new(Kind::Corrupt(text), "reading the ledger")
    }

    /// The directory is not as it was left.
    pub(crate) fn incomplete(&self, what: impl fmt::Display) -> Error {
        Error::new(Kind::Corrupt(format!("{}: {what}; {RESTORE}", self.dir)), "opening the ledger")
    }

    /// The store lost what it had acknowledged.
    pub(crate) fn behind(&self, file: &str, offset: usize, last: u64, acknowledged: u64) -> Error {
        let text = format!(
            "{dir}/{file} ends at offset {offset} with commit {last}, but commit {acknowledged} was acknowledged: the latest \
             claims are lost, and would be granted again; {RESTORE}. If none of the lost claims matters, remove \
             {dir}/{mark} and start again",
            dir = self.dir,
            mark = super::high_water::NAME,
        );
        Error::new(Kind::Corrupt(text), "opening the ledger")
    }

    /// The store has a format that this version does not know.
    pub(crate) fn other_format(&self, found: &str, ours: u32) -> Error {
        let text = format!(
            "{} has format {found}, and this version of ichido reads format {ours}; open it with the version that wrote it, or \
             use another directory",
            self.dir
        );
        Error::new(Kind::Schema(text), "opening the ledger")
    }

    /// An error of the file system.
    pub(crate) fn io(&self, doing: &str, error: io::Error) -> Error {
        let dir = &self.dir;
        if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            let text = format!(
                "{doing} file:{dir}: the disk is full; no claim is acknowledged until there is space left"
            );
            return Error::new(Kind::Unavailable, text).caused_by(error);
        }
        let kind = if DENIED.contains(&error.kind()) {
            Kind::Denied(error.to_string())
        } else if DAMAGED.contains(&error.kind()) {
            Kind::Corrupt(format!("a file of {dir} is missing or cut short; {RESTORE}"))
        } else {
            Kind::Unavailable
        };
        Error::new(kind, format!("{doing} file:{dir} ({error})")).caused_by(error)
    }
}
