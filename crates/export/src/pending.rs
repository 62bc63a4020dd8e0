//! Undelivered records: those in the spool, and those that a process is sending.
//!
//! If the receiver lets a later record replace an earlier one, a new total must not be sent while an older one is
//! undelivered: resent later, the older one would win. So the new total stays in Dify until the older one was delivered.
//! That needs no clock, no ordering of requests and no other knowledge of what other processes do.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use ichido_core::Timestamp;
use ichido_delivery::disk;
use ichido_delivery::store::{BatchDir, FILE_BYTES_MAX, FileName, Layout, StoredBatch, is_group, read_group};

use ichido_serve::Failure;

/// The ids of all undelivered records.
pub(crate) fn ids(layout: &Layout) -> Result<HashSet<String>, Failure> {
    let mut ids = HashSet::new();
    // Reading both directories twice finds a file that moves between them meanwhile: a process keeps a file that it took
    // from the spool for longer than this takes.
    for _ in 0..2 {
        read_inflight(layout, &mut ids)?;
        read_all(&layout.dir(BatchDir::Spool), &mut ids)?;
    }
    Ok(ids)
}

fn read_inflight(layout: &Layout, ids: &mut HashSet<String>) -> Result<(), Failure> {
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
        let (name, path) = (FileName::parse(BatchDir::Spool.as_str(), &file), dir.join(&file));
        if name.is_none() && !is_group(&file) {
            continue;
        }
        let bytes = match disk::read_regular(&path, FILE_BYTES_MAX) {
            Ok(bytes) => bytes,
            // The file was delivered, or moved to a directory that is read as well.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(unreadable(&path, &error)),
        };
        let stored = match name {
            Some(name) => StoredBatch::decode(&bytes, name.gzip, Timestamp(0)).map(|stored| vec![stored]),
            None => read_group(&bytes),
        };
        let stored = stored.map_err(|error| unreadable(&path, &error))?;
        let records = stored.iter().flat_map(|stored| stored.batch.records());
        ids.extend(records.map(|record| record.key().to_owned()));
    }
    Ok(())
}

/// A file with unknown records is an error: another version may still send it, or it may be repaired, and it would then
/// replace newer totals.
fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::usage(format!(
        "cannot tell which records are undelivered: {}: {error}; repair the file or move it out of the directory",
        path.display()
    ))
}

fn names(dir: &Path) -> Result<Vec<String>, Failure> {
    disk::file_names(dir).map_err(|error| Failure::usage(format!("cannot read {}: {error}", dir.display())))
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
        // root can read the file whatever its permissions.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
        if fs::read(&path).is_err() {
            fails("no permission");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, r#"{"format":2,"records":[{"source_event_id":"older"}]}"#).unwrap();
        fails("written by a later version");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        fails("a directory");
    }
}
