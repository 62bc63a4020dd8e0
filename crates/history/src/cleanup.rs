//! Cleans up files that no process uses any more: they contain keys, which go when their time is over.

use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::record::{self, Limits};
use crate::{files, schema};

/// The part of a file name that says that the file was set aside.
const SET_ASIDE: &str = ".sqlite.unusable-";

/// Removes what is old from the files of other processes that have ended, and files that are empty then. `own` is left alone.
pub(crate) fn clean(dir: &Path, own: &Path, now_ms: u64, limits: &Limits) {
    for (path, lock_path) in files::all(dir).filter(|(path, _)| path != own && path.exists()) {
        // A process that starts meanwhile takes another file.
        let Some(_lock) = files::lock(&lock_path).ok().flatten() else { continue };
        match clean_file(&path, now_ms, limits) {
            Ok(()) => {}
            Err(error) if schema::is_unusable(&error) => drop(schema::set_aside(&path)),
            Err(error) => tracing::warn!(file = %path.display(), %error, "cannot clean up a history file"),
        }
    }
    let oldest = SystemTime::UNIX_EPOCH + Duration::from_millis(now_ms.saturating_sub(limits.counts_ms));
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().contains(SET_ASIDE)) {
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        if modified.is_ok_and(|modified| modified < oldest)
            && let Err(error) = std::fs::remove_file(entry.path())
        {
            tracing::warn!(file = %entry.path().display(), %error, "cannot remove an old history file");
        }
    }
}

fn clean_file(path: &Path, now_ms: u64, limits: &Limits) -> rusqlite::Result<()> {
    let Some(connection) = schema::open_abandoned(path)? else {
        // Otherwise nobody could read the other files of this directory.
        schema::set_aside(path);
        return Ok(());
    };
    record::prune(&connection, now_ms, limits)?;
    let is_empty = "SELECT NOT EXISTS (SELECT 1 FROM decisions) AND NOT EXISTS (SELECT 1 FROM hours)";
    let is_empty = connection.query_row(is_empty, [], |row| row.get(0))?;
    drop(connection);
    if is_empty && let Err(error) = schema::remove(path) {
        tracing::warn!(file = %path.display(), %error, "cannot remove an old history file");
    }
    Ok(())
}
