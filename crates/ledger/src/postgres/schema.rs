//! Tables: creates them, upgrades them, and recognises them by their version and columns.
//!
//! Existing tables are inspected before anything is written. Tables with an unexpected layout are left alone, and
//! the error says what to do. Creation is one transaction under an advisory lock, so any number of processes may
//! start at once.

use std::fmt::Write as _;

use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};

use super::connections::Connections;
use super::error::{Sent, failed};
use super::row::column;
use crate::{Error, Kind, Result};

/// The version of the layout below.
const VERSION: i32 = 2;
/// Upgrades version 1. Claims made by that version have no caller.
const UPGRADE_FROM_1: &str = "
    SET LOCAL lock_timeout = '5s';
    ALTER TABLE ichido.claims ADD COLUMN caller bytea;
    UPDATE ichido.layout SET version = 2;
";
/// Any number would do, as long as every ichido uses the same.
const LOCK: i64 = 0x6963_6869_646f;
const DOING: &str = "preparing the tables in PostgreSQL";

struct Table {
    name: &'static str,
    /// Name, type, constraint.
    columns: &'static [(&'static str, &'static str, &'static str)],
}

const LAYOUT: Table = Table {
    name: "layout",
    columns: &[
        ("single", "boolean", "PRIMARY KEY DEFAULT true CHECK (single)"),
        ("version", "integer", "NOT NULL"),
        ("created_at", "timestamp with time zone", "NOT NULL DEFAULT now()"),
    ],
};

const CLAIMS: Table = Table {
    name: "claims",
    columns: &[
        ("index", "bytea", "PRIMARY KEY"),
        ("tenant", "bytea", "NOT NULL"),
        ("route", "bytea", "NOT NULL"),
        ("key", "bytea", "NOT NULL"),
        ("fingerprint", "bytea", "NOT NULL"),
        ("nonce", "bytea", "NOT NULL"),
        ("token", "bytea", "NOT NULL"),
        ("version", "bigint", "NOT NULL"),
        ("attempt", "bigint", "NOT NULL"),
        ("holder", "text", "NOT NULL"),
        ("claimed_at", "bigint", "NOT NULL"),
        ("renewed_at", "bigint", "NOT NULL"),
        ("renewals", "bigint", "NOT NULL"),
        ("lease_ms", "bigint", "NOT NULL"),
        ("retention_ms", "bigint", "NOT NULL"),
        ("metadata", "json", "NOT NULL"),
        ("state", "text", "NOT NULL CHECK (state IN ('running', 'in-doubt', 'done'))"),
        ("doubt_at", "bigint", "CHECK ((state = 'done') = (doubt_at IS NULL))"),
        ("doubt_kind", "text", ""),
        ("doubt_reason", "bytea", ""),
        ("completed_at", "bigint", "CHECK ((state = 'done') = (completed_at IS NOT NULL))"),
        ("outcome_kept", "boolean", ""),
        ("outcome", "bytea", ""),
        ("over_at", "bigint", "NOT NULL"),
        ("caller", "bytea", ""),
    ],
};

const MARKS: Table = Table {
    name: "marks",
    columns: &[
        ("index", "bytea", "PRIMARY KEY"),
        ("key", "bytea", "NOT NULL"),
        ("nonce", "bytea", "NOT NULL"),
        ("marked_at", "bigint", "NOT NULL"),
        ("expires_at", "bigint", "NOT NULL"),
        ("metadata", "json", "NOT NULL"),
    ],
};

const TABLES: [&Table; 3] = [&LAYOUT, &CLAIMS, &MARKS];

/// Open claims, and expired records in sweep order. New rows are added at the end of each index, which costs the server
/// much less than a random place.
const INDEXES: &str = "
    CREATE INDEX claims_open ON ichido.claims (claimed_at) WHERE state <> 'done';
    CREATE INDEX claims_over ON ichido.claims (over_at);
    CREATE INDEX marks_over ON ichido.marks (expires_at);
";

const COLUMNS: &str = "
    SELECT c.relname::text AS table, a.attname::text AS column, format_type(a.atttypid, NULL) AS type
    FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE n.nspname = $1 AND c.relname IN ('layout', 'claims', 'marks')
";

/// Which tables exist.
enum Tables {
    Missing,
    /// Version 1.
    Older,
    Current,
}

/// Makes sure that our tables exist in this version.
pub(super) async fn ensure(connections: &Connections, schema: &str) -> Result<()> {
    let mut connection = connections.connection(DOING).await?;
    // Another process may be upgrading them between two of our reads, so what looks wrong is inspected again under
    // the lock.
    if let Ok(Tables::Current) = inspect(&**connection, schema).await {
        return Ok(());
    }
    let transaction = connection.transaction().await.map_err(|error| failed(error, DOING, Sent::No))?;
    let lock = transaction.query_typed("SELECT pg_advisory_xact_lock($1)", &[(&LOCK, Type::INT8)]).await;
    lock.map_err(|error| failed(error, DOING, Sent::No))?;
    // Another process may have created them while we waited for the lock.
    match inspect(&*transaction, schema).await? {
        Tables::Current => return Ok(()),
        Tables::Missing => create(&*transaction, schema).await?,
        Tables::Older => {
            let sql = UPGRADE_FROM_1.replace("ichido.", &format!("\"{schema}\"."));
            let changed = transaction.batch_execute(&sql).await;
            changed.map_err(|error| denied(error, not_the_owner(schema)))?;
            inspect(&*transaction, schema).await?;
            tracing::info!(schema, version = VERSION, "ledger tables upgraded");
        }
    }
    transaction.commit().await.map_err(|error| failed(error, DOING, Sent::Yes))
}

/// Which of our tables exist. Fails if other tables have their names.
async fn inspect(client: &impl GenericClient, schema: &str) -> Result<Tables> {
    let columns = client.query_typed(COLUMNS, &[(&schema, Type::TEXT)]).await;
    let columns = columns.map_err(|error| failed(error, DOING, Sent::No))?;
    if columns.is_empty() {
        return Ok(Tables::Missing);
    }
    check_shape(&LAYOUT, &columns, schema)?;
    let sql = format!("SELECT version FROM \"{schema}\".layout");
    let version = client.query_typed_opt(&sql, &[]).await.map_err(|error| failed(error, DOING, Sent::No))?;
    let version: Option<i32> = version.map(|row| column(&row, "version")).transpose()?;
    match version {
        Some(VERSION) => {}
        Some(1) => return Ok(Tables::Older),
        Some(version) if version > VERSION => {
            return Err(refused(format!(
                "the tables in schema {schema} were created by a newer ichido (version {version}; this one supports \
                 {VERSION}); update this ichido, or choose another schema with ?schema="
            )));
        }
        Some(_) | None => {
            return Err(refused(format!("table {schema}.layout contains an unknown version; {ADVICE}")));
        }
    }
    check_shape(&CLAIMS, &columns, schema)?;
    check_shape(&MARKS, &columns, schema)?;
    Ok(Tables::Current)
}

const ADVICE: &str =
    "restore it, drop it if its contents are not needed, or choose another schema with ?schema=";

fn check_shape(table: &Table, columns: &[Row], schema: &str) -> Result<()> {
    for (name, kind, _) in table.columns {
        let mut known = false;
        for row in columns {
            known |= column::<&str>(row, "table")? == table.name
                && column::<&str>(row, "column")? == *name
                && column::<&str>(row, "type")? == *kind;
        }
        if !known {
            let table = table.name;
            return Err(refused(format!(
                "table {schema}.{table} is not an ichido table: it has no column {name} of type {kind}; {ADVICE}"
            )));
        }
    }
    Ok(())
}

fn refused(text: String) -> Error {
    Error::new(Kind::Schema(text), DOING)
}

async fn create(client: &impl GenericClient, schema: &str) -> Result<()> {
    let denied = |error: tokio_postgres::Error| denied(error, may_not_create(schema));
    let sql = "SELECT FROM pg_namespace WHERE nspname = $1";
    let exists = client.query_typed_opt(sql, &[(&schema, Type::TEXT)]).await;
    if exists.map_err(denied)?.is_none() {
        client.batch_execute(&format!("CREATE SCHEMA \"{schema}\"")).await.map_err(denied)?;
    }
    client.batch_execute(&definition(schema)).await.map_err(denied)
}

fn definition(schema: &str) -> String {
    let mut sql = String::new();
    for table in TABLES {
        let columns: Vec<_> = table
            .columns
            .iter()
            .map(|(name, kind, constraint)| format!("\"{name}\" {kind} {constraint}"))
            .collect();
        // Writing to a string cannot fail.
        let _ = writeln!(sql, "CREATE TABLE ichido.{} ({});", table.name, columns.join(", "));
    }
    sql.push_str(INDEXES);
    let _ = writeln!(sql, "INSERT INTO ichido.layout (version) VALUES ({VERSION});");
    sql.replace("ichido.", &format!("\"{schema}\"."))
}

/// Names the missing privilege.
fn denied(error: tokio_postgres::Error, text: String) -> Error {
    if error.code() != Some(&tokio_postgres::error::SqlState::INSUFFICIENT_PRIVILEGE) {
        return failed(error, DOING, Sent::No);
    }
    Error::new(Kind::Denied(text), DOING).caused_by(error)
}

fn may_not_create(schema: &str) -> String {
    format!(
        "the tables of schema {schema} are missing, and this role may not create them; run `ichido ledger init` once \
         with a role that has CREATE on the database (or on the schema, if it exists), then grant this role USAGE on \
         the schema and SELECT, INSERT, UPDATE, DELETE on its tables"
    )
}

fn not_the_owner(schema: &str) -> String {
    format!(
        "the tables of schema {schema} were created by an older ichido and must be upgraded to version {VERSION}, which \
         only their owner may do; run `ichido ledger init` once with the role that owns them"
    )
}
