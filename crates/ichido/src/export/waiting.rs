//! Records on their way: what lies in the spool or in the hands of a process that sends.
//!
//! Where a receiver lets a later record replace an earlier one, a new total must not go while an older one waits: resent
//! after it, the older one would win. So the new one stays in Dify until the older one has arrived. That needs no
//! clock, no order of requests and no look into the hands of other processes but this one.

use std::collections::HashSet;
use std::path::Path;

use ichido_core::Timestamp;
use ichido_delivery::files;
use ichido_delivery::store::{Layout, MOST_BYTES, Name, Place, Stored};

use crate::exit::Failure;

/// The ids of all records that wait to be delivered.
pub(crate) fn ids(layout: &Layout) -> Result<HashSet<String>, Failure> {
    let mut ids = HashSet::new();
    // A file that moves between the two places while they are read is in one of them twice or once, not never: whoever
    // takes one from the spool has it in hand longer than this takes.
    for _ in 0..2 {
        in_hand(layout, &mut ids)?;
        read_all(&layout.dir(Place::Spool), &mut ids)?;
    }
    Ok(ids)
}

fn in_hand(layout: &Layout, ids: &mut HashSet<String>) -> Result<(), Failure> {
    let inflight = layout.inflight();
    for process in names(&inflight)? {
        let dir = inflight.join(process);
        if dir.is_dir() {
            read_all(&dir, ids)?;
        }
    }
    Ok(())
}

fn read_all(dir: &Path, ids: &mut HashSet<String>) -> Result<(), Failure> {
    for file in names(dir)? {
        let Some(name) = Name::parse(Place::Spool.word(), &file) else { continue };
        // What is gone has moved on or arrived; what cannot be read is sent by nobody.
        let Ok(bytes) = files::read(&dir.join(&file), MOST_BYTES) else { continue };
        if let Ok(stored) = Stored::decode(&bytes, name.gzip, Timestamp(0)) {
            ids.extend(stored.batch.records().iter().map(|record| record.key().to_owned()));
        }
    }
    Ok(())
}

fn names(dir: &Path) -> Result<Vec<String>, Failure> {
    files::names(dir).map_err(|error| Failure::usage(format!("reading {}: {error}", dir.display())))
}
