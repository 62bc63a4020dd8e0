//! Records on their way: what lies in the spool or in the hands of a process that sends.
//!
//! Where a receiver lets a later record replace an earlier one, a new total must not go while an older one waits: resent
//! after it, the older one would win. So the new one stays in Dify until the older one has arrived. That needs no
//! clock, no order of requests and no look into the hands of other processes but this one.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use ichido_core::Timestamp;
use ichido_delivery::disk;
use ichido_delivery::store::{BatchDir, FILE_BYTES_MAX, FileName, Layout, StoredBatch};

use ichido_serve::Failure;

/// The ids of all records that wait to be delivered.
pub fn ids(layout: &Layout) -> Result<HashSet<String>, Failure> {
    let mut ids = HashSet::new();
    // A file that moves between the two places while they are read is in one of them twice or once, not never: whoever
    // takes one from the spool has it in hand longer than this takes.
    for _ in 0..2 {
        in_hand(layout, &mut ids)?;
        read_all(&layout.dir(BatchDir::Spool), &mut ids)?;
    }
    Ok(ids)
}

fn in_hand(layout: &Layout, ids: &mut HashSet<String>) -> Result<(), Failure> {
    let inflight = layout.inflight();
    for process in names(&inflight)? {
        let dir = inflight.join(process);
        if dir.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
            read_all(&dir, ids)?;
        }
    }
    Ok(())
}

fn read_all(dir: &Path, ids: &mut HashSet<String>) -> Result<(), Failure> {
    for file in names(dir)? {
        let Some(name) = FileName::parse(BatchDir::Spool.as_str(), &file) else { continue };
        let path = dir.join(&file);
        let bytes = match disk::read_regular(&path, FILE_BYTES_MAX) {
            Ok(bytes) => bytes,
            // It was sent, or moved to a place that is read as well.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(unknown(&path, &error)),
        };
        let stored =
            StoredBatch::decode(&bytes, name.gzip, Timestamp(0)).map_err(|error| unknown(&path, &error))?;
        ids.extend(stored.batch.records().iter().map(|record| record.key().to_owned()));
    }
    Ok(())
}

/// Nobody knows which records a file holds. It may still be sent, by another version or once it is repaired, and would
/// then replace newer totals.
fn unknown(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::usage(format!(
        "cannot tell which records wait for delivery: {}: {error}; repair the file or move it out of the directory",
        path.display()
    ))
}

fn names(dir: &Path) -> Result<Vec<String>, Failure> {
    disk::file_names(dir).map_err(|error| Failure::usage(format!("reading {}: {error}", dir.display())))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use ichido_delivery::{Batch, Record};

    use super::*;

    fn spooled(root: &Path, name: &str, id: &str) -> std::path::PathBuf {
        let dir = Layout::new(root).dir(BatchDir::Spool);
        fs::create_dir_all(&dir).unwrap();
        let record = Record::parse(&format!(r#"{{"source_event_id":"{id}"}}"#)).unwrap();
        let path = dir.join(name);
        fs::write(&path, StoredBatch::fresh(Batch::new(vec![record]), Timestamp(0)).encode(false)).unwrap();
        path
    }

    #[test]
    fn a_file_whose_records_are_unknown_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        spooled(dir.path(), "spool_20250118T120530Z_aaa.json", "whole");
        let path = spooled(dir.path(), "spool_20250118T120531Z_bbb.json", "older");
        assert_eq!(ids(&layout).unwrap(), ["whole".to_owned(), "older".to_owned()].into());
        let fails = |case: &str| {
            let message = ids(&layout).unwrap_err().to_string();
            assert!(message.contains("spool_20250118T120531Z_bbb.json"), "{case}: {message}");
        };
        // A file of root can be read by root whatever its rights.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
        if fs::read(&path).is_err() {
            fails("no right to read it");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, r#"{"format":2,"records":[{"source_event_id":"older"}]}"#).unwrap();
        fails("written by a later version");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        fails("a directory");
    }
}
