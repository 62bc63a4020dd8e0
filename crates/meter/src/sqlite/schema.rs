//! Creates, versions and recognizes the file.

use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use ichido_usage::Profile;
use rusqlite::{Connection, OpenFlags};

use super::error::classify;
use super::sum_of_money::SumOfMoney;
use crate::announcement::Announcement;
use crate::store::{ERASED_USER, Error, Grain, Result};

/// The version of the tables below.
const VERSION: i32 = 1;
/// `ichm`, which marks a file as a meter's.
const APPLICATION_ID: i32 = 0x6963_686d;
const OPERATION: &str = "opening the meter's file";
/// How long to wait for another process that has locked the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Slots are unique for ever: no row of `records` is ever deleted. `event_id` is NULL if the slot is the id.
const TABLES: &str = "
    CREATE TABLE layout (single INTEGER PRIMARY KEY CHECK (single = 1), grain TEXT NOT NULL) STRICT;
    CREATE TABLE records (
        tenant TEXT NOT NULL,
        slot TEXT NOT NULL,
        event_id TEXT,
        usage_date TEXT NOT NULL,
        provider TEXT NOT NULL,
        model TEXT NOT NULL,
        app_id TEXT NOT NULL,
        app_name TEXT NOT NULL,
        user_id TEXT NOT NULL,
        user_type TEXT NOT NULL,
        source_system TEXT NOT NULL,
        aggregation_method TEXT NOT NULL,
        input_tokens INTEGER NOT NULL,
        output_tokens INTEGER NOT NULL,
        total_tokens INTEGER NOT NULL,
        request_count INTEGER NOT NULL,
        cost TEXT NOT NULL,
        currency TEXT NOT NULL,
        digest BLOB NOT NULL,
        exported_at INTEGER,
        received_at INTEGER NOT NULL,
        batch TEXT,
        PRIMARY KEY (tenant, slot)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX records_by_day ON records (tenant, usage_date);
    CREATE TABLE receipts (
        tenant TEXT NOT NULL,
        batch TEXT NOT NULL,
        times INTEGER NOT NULL,
        first_at INTEGER NOT NULL,
        first TEXT NOT NULL,
        last_at INTEGER NOT NULL,
        last TEXT NOT NULL,
        PRIMARY KEY (tenant, batch)
    ) STRICT, WITHOUT ROWID;
";

/// Tables that files of earlier versions do not have. Earlier versions ignore them.
const LATER_TABLES: &str = "
    CREATE TABLE repeats (
        tenant TEXT NOT NULL,
        month TEXT NOT NULL,
        app_id TEXT NOT NULL,
        result TEXT NOT NULL,
        records INTEGER NOT NULL,
        last_at INTEGER NOT NULL,
        PRIMARY KEY (tenant, month, app_id, result)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE budget_notices (
        month TEXT NOT NULL,
        budget TEXT NOT NULL,
        threshold INTEGER NOT NULL,
        announced_at INTEGER NOT NULL,
        PRIMARY KEY (month, budget, threshold)
    ) STRICT, WITHOUT ROWID;
";

/// Opens the file for writing. Creates it if it does not exist, readable only by its owner.
pub(super) fn open(file: &Path, profile: Profile) -> Result<Connection> {
    create_file(file).map_err(|error| {
        Error::Settings(format!("the meter's file {} cannot be created: {error}", file.display()))
    })?;
    let grain = Grain::of(profile);
    let mut connection = connect(file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // In one transaction: otherwise another process might create the tables between two reads.
    let transaction = connection.transaction().map_err(|error| classify(OPERATION, error))?;
    let ours = recognize(&transaction, file)?;
    drop(transaction);
    connection
        .pragma_update(None, "journal_mode", "WAL")
        .and_then(|()| connection.pragma_update(None, "synchronous", "FULL"))
        .map_err(|error| classify(OPERATION, error))?;
    match ours {
        true => add_later_tables(&mut connection)?,
        false => create_tables(&mut connection, file, grain)?,
    }
    let found: String = connection
        .query_row("SELECT grain FROM layout", [], |row| row.get(0))
        .map_err(|error| classify(OPERATION, error))?;
    grain.require(&found)?;
    Ok(connection)
}

/// Opens a read-only connection.
pub(super) fn open_read_only(file: &Path) -> Result<Connection> {
    let connection = connect(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection
        .create_aggregate_function(
            "sum_of_money",
            1,
            rusqlite::functions::FunctionFlags::SQLITE_UTF8
                | rusqlite::functions::FunctionFlags::SQLITE_DETERMINISTIC,
            SumOfMoney,
        )
        .map_err(|error| classify(OPERATION, error))?;
    Ok(connection)
}

/// Adds the tables that a file of an earlier version lacks, and notes since when they are complete.
fn add_later_tables(connection: &mut Connection) -> Result<()> {
    let fail = |error| classify(OPERATION, error);
    let known = |connection: &Connection| {
        connection
            .query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'repeats'", [], |row| {
                row.get::<_, i64>(0)
            })
            .map(|count| count > 0)
    };
    if known(connection).map_err(fail)? {
        return Ok(());
    }
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(fail)?;
    // Another process may have added them while we waited.
    if known(&transaction).map_err(fail)? {
        return Ok(());
    }
    transaction
        .execute_batch(LATER_TABLES)
        .and_then(|()| {
            transaction.execute("INSERT INTO repeats VALUES ('', '', '', 'since', 0, unixepoch() * 1000)", [])
        })
        .and_then(|_| transaction.commit())
        .map_err(fail)
}

/// Notes that a notice about a budget was announced.
pub(super) fn note_announced(file: &Path, announcement: &Announcement, at: i64) -> Result<()> {
    let Announcement { month, budget, threshold } = announcement;
    connect(file, OpenFlags::SQLITE_OPEN_READ_WRITE)?
        .execute(
            "INSERT INTO budget_notices VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
            rusqlite::params![month, budget, threshold, at],
        )
        .map(drop)
        .map_err(|error| classify("noting a notice about a budget", error))
}

/// Replaces the id of a user. Pages that had it are overwritten, and the log is emptied if no reader needs it.
pub(super) fn erase_user(file: &Path, user: &str) -> Result<u64> {
    let fail = |error| classify("erasing a user", error);
    let connection = connect(file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "secure_delete", "ON").map_err(fail)?;
    let sql = "UPDATE records SET user_id = ?2 WHERE user_id = ?1";
    let erased = connection.execute(sql, [user, ERASED_USER]).map_err(fail)?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(fail)?;
    Ok(erased as u64)
}

/// Checks that the tables can be read.
pub(super) fn check(connection: &Connection) -> Result<()> {
    let operation = "checking the meter's file";
    connection
        .query_row("SELECT grain FROM layout", [], |_| Ok(()))
        .map_err(|error| classify(operation, error))
}

fn connect(file: &Path, access: OpenFlags) -> Result<Connection> {
    let connection = Connection::open_with_flags(file, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .and_then(|connection| connection.busy_timeout(BUSY_TIMEOUT).map(|()| connection));
    let connection = connection.map_err(|error| {
        Error::Settings(format!("the meter's file {} cannot be opened: {error}", file.display()))
    })?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Creates the file, because SQLite would make it readable for everyone.
fn create_file(file: &Path) -> std::io::Result<()> {
    if let Some(dir) = file.parent().filter(|dir| !dir.as_os_str().is_empty() && !dir.exists()) {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(file).map(drop)
}

/// Whether the file has our tables. Fails if it has others.
fn recognize(connection: &Connection, file: &Path) -> Result<bool> {
    let path = file.display();
    let number = |name: &str| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i32>(0));
    let known = number("application_id").and_then(|application| Ok((application, number("user_version")?)));
    let is_empty =
        || connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0));
    let (application, version) = known.map_err(|error| unreadable(file, &error))?;
    match (application, version) {
        (APPLICATION_ID, VERSION) => Ok(true),
        (APPLICATION_ID, version) if version > VERSION => Err(Error::Settings(format!(
            "the meter's file {path} was created by a newer ichido (version {version}; this one supports {VERSION}): upgrade \
             this one, or use another file"
        ))),
        (0, 0) if is_empty().map_err(|error| unreadable(file, &error))? == 0 => Ok(false),
        (_, _) => Err(Error::Settings(format!(
            "the file {path} was not created by a meter: use another file (this one is left unchanged)"
        ))),
    }
}

fn unreadable(file: &Path, error: &rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => Error::Settings(format!(
            "the file {} was not created by a meter: use another file (this one is left unchanged)",
            file.display()
        )),
        _ => Error::Settings(format!("the meter's file {} cannot be read: {error}", file.display())),
    }
}

fn create_tables(connection: &mut Connection, file: &Path, grain: Grain) -> Result<()> {
    let transaction = connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .map_err(|error| classify(OPERATION, error))?;
    // Another process may have created them while we waited.
    if recognize(&transaction, file)? {
        return Ok(());
    }
    transaction
        .execute_batch(TABLES)
        .and_then(|()| transaction.execute_batch(LATER_TABLES))
        .and_then(|()| transaction.execute("INSERT INTO layout VALUES (1, ?1)", [grain.as_str()]))
        .and_then(|_| transaction.pragma_update(None, "application_id", APPLICATION_ID))
        .and_then(|()| transaction.pragma_update(None, "user_version", VERSION))
        .and_then(|()| transaction.commit())
        .map_err(|error| classify(OPERATION, error))
}
