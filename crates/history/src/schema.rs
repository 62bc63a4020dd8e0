//! The tables of a history file, and opening it.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

/// The version of the tables. A file of another version is set aside.
///
/// `totals` and `days` repeat what `hours` says, in few enough rows for a page: `hours` may have a million.
const VERSION: i64 = 2;
const TABLES: &str = "
CREATE TABLE decisions (
    id INTEGER PRIMARY KEY, at INTEGER NOT NULL, tag INTEGER NOT NULL, key TEXT NOT NULL, route TEXT NOT NULL,
    source TEXT, result TEXT NOT NULL, latency_us INTEGER NOT NULL, degraded INTEGER NOT NULL, detail TEXT, request_id TEXT
);
CREATE INDEX decisions_tag ON decisions (tag);
CREATE INDEX decisions_key ON decisions (key);
CREATE INDEX decisions_request ON decisions (request_id) WHERE request_id IS NOT NULL;
CREATE TABLE hours (
    hour INTEGER NOT NULL, route TEXT NOT NULL, source TEXT NOT NULL, result TEXT NOT NULL, degraded INTEGER NOT NULL,
    count INTEGER NOT NULL, latency_us INTEGER NOT NULL, latency_max_us INTEGER NOT NULL,
    PRIMARY KEY (hour, route, source, result, degraded)
) WITHOUT ROWID;
CREATE TABLE totals (
    hour INTEGER NOT NULL, result TEXT NOT NULL, degraded INTEGER NOT NULL,
    count INTEGER NOT NULL, latency_us INTEGER NOT NULL, latency_max_us INTEGER NOT NULL,
    PRIMARY KEY (hour, result, degraded)
) WITHOUT ROWID;
CREATE TABLE days (
    day INTEGER NOT NULL, source TEXT NOT NULL, result TEXT NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY (day, source, result)
) WITHOUT ROWID;
CREATE TABLE recorded (hour INTEGER PRIMARY KEY, seconds INTEGER NOT NULL);
CREATE TABLE instance (name TEXT NOT NULL);
";

/// Opens the database for writing, and creates it if needed. An unusable file is renamed, and a new one is started.
pub(crate) fn open(path: &Path, instance: &str) -> rusqlite::Result<Connection> {
    match try_open(path, instance) {
        Ok(connection) => Ok(connection),
        Err(error) if is_unusable(&error) => {
            let aside = set_aside(path);
            tracing::warn!(
                file = %path.display(),
                %error,
                set_aside = aside.as_deref().map(|path| path.display().to_string()),
                "history file cannot be used; starting a new one"
            );
            try_open(path, instance)
        }
        Err(error) => Err(error),
    }
}

fn try_open(path: &Path, instance: &str) -> rusqlite::Result<Connection> {
    // The file contains keys, so only its owner may read it.
    let mut options = OpenOptions::new();
    let created = options.create(true).truncate(false).write(true).mode(0o600).open(path);
    created.map_err(|error| {
        rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN),
            Some(error.to_string()),
        )
    })?;
    let connection = Connection::open(path)?;
    // Losing the last second in a power failure is acceptable for a history; a damaged file is not.
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -2000;",
    )?;
    match version(&connection)? {
        0 => {
            connection.execute_batch(&format!("BEGIN; {TABLES} PRAGMA user_version = {VERSION}; COMMIT;"))?
        }
        VERSION => {}
        other => return Err(other_version(other)),
    }
    connection.query_row("PRAGMA quick_check(1)", [], |row| match row.get::<_, String>(0)?.as_str() {
        "ok" => Ok(()),
        _ => Err(corrupt()),
    })?;
    connection.execute("DELETE FROM instance", [])?;
    connection.execute("INSERT INTO instance (name) VALUES (?1)", [instance])?;
    Ok(connection)
}

/// Opens a file that its process has left, to remove what is old. `None` if it is not a history of this version.
pub(crate) fn open_abandoned(path: &Path) -> rusqlite::Result<Option<Connection>> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    Ok((version(&connection)? == VERSION).then_some(connection))
}

/// Opens a file to read. `None` if it is not a history of this version.
pub(crate) fn open_to_read(path: &Path) -> rusqlite::Result<Option<Connection>> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    Ok((version(&connection)? == VERSION).then_some(connection))
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

fn other_version(version: i64) -> rusqlite::Error {
    let text = format!("it has version {version}, and this program reads version {VERSION}");
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_NOTADB), Some(text))
}

fn corrupt() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT), None)
}

/// Whether another try with the same file would fail as well.
pub(crate) fn is_unusable(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
        || matches!(error, rusqlite::Error::SqliteFailure(code, _) if code.extended_code == rusqlite::ffi::SQLITE_ERROR)
}

/// Renames a file, with its log. Returns its new name.
pub(crate) fn set_aside(path: &Path) -> Option<PathBuf> {
    let aside = (1..1_000)
        .map(|number| extended(path, &format!(".unusable-{number}")))
        .find(|path| !path.exists())?;
    remove_log(path);
    std::fs::rename(path, &aside).ok()?;
    Some(aside)
}

/// Removes a file, with its log.
pub(crate) fn remove(path: &Path) -> std::io::Result<()> {
    remove_log(path);
    std::fs::remove_file(path)
}

fn remove_log(path: &Path) {
    for suffix in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(extended(path, suffix));
    }
}

fn extended(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
