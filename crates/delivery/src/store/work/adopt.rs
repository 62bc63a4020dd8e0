//! What the dead held, and directories that cannot be worked in.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::Store;
use crate::own;
use crate::store::Error;
use crate::store::layout::Place;
use crate::store::name::Name;

impl Store {
    /// Gives back to the spool what dead processes held. Says how many batches.
    pub fn adopt(&self) -> Result<usize, Error> {
        let dir = self.layout.inflight();
        let reading = |error| Error::io("reading", &dir, error);
        let mut adopted = 0;
        for dead in own::dead(&dir, self.own.path()).map_err(reading)? {
            for file in dead.files().map_err(reading)? {
                if let Some(mut name) = Name::parse(Place::Spool.word(), &file) {
                    name.copy = 1;
                    self.place(&dead.path().join(&file), Place::Spool, name)?;
                    adopted += 1;
                }
            }
            dead.bury().map_err(reading)?;
        }
        Ok(adopted)
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
