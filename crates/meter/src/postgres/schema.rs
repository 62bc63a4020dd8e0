//! Creates, versions and recognizes the tables, in one transaction under a lock, so that any number of meters may
//! start concurrently.

use deadpool_postgres::Client;
use ichido_usage::Profile;
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use super::error::classify;
use crate::store::{Error, Grain, Result};

/// The version of the tables below.
const VERSION: i32 = 1;
/// An arbitrary number, the same for every meter.
const LOCK: i64 = 0x6963_686d;
const OPERATION: &str = "preparing the meter's tables in PostgreSQL";

/// Slots are unique for ever: no row of `records` is ever deleted. Text compares by bytes, as everywhere.
const TABLES: &str = r#"
    CREATE TABLE ichido.meter_layout (
        single boolean PRIMARY KEY DEFAULT true CHECK (single),
        version integer NOT NULL,
        grain text NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now()
    );
    CREATE TABLE ichido.records (
        tenant text COLLATE "C" NOT NULL,
        slot text COLLATE "C" NOT NULL,
        event_id text,
        usage_date date NOT NULL,
        provider text COLLATE "C" NOT NULL,
        model text COLLATE "C" NOT NULL,
        app_id text COLLATE "C" NOT NULL,
        app_name text COLLATE "C" NOT NULL,
        user_id text COLLATE "C" NOT NULL,
        user_type text COLLATE "C" NOT NULL,
        source_system text NOT NULL,
        aggregation_method text COLLATE "C" NOT NULL,
        input_tokens bigint NOT NULL,
        output_tokens bigint NOT NULL,
        total_tokens bigint NOT NULL,
        request_count bigint NOT NULL,
        cost numeric NOT NULL,
        currency text COLLATE "C" NOT NULL,
        digest bytea NOT NULL,
        exported_at bigint,
        received_at bigint NOT NULL,
        batch text,
        PRIMARY KEY (tenant, slot)
    );
    CREATE INDEX records_by_day ON ichido.records (tenant, usage_date);
    CREATE TABLE ichido.receipts (
        tenant text COLLATE "C" NOT NULL,
        batch text COLLATE "C" NOT NULL,
        times bigint NOT NULL,
        first_at bigint NOT NULL,
        first text NOT NULL,
        last_at bigint NOT NULL,
        last text NOT NULL,
        PRIMARY KEY (tenant, batch)
    );
"#;

/// Tables that earlier versions did not have. Earlier versions ignore them.
const LATER_TABLES: &str = r#"
    CREATE TABLE ichido.repeats (
        tenant text COLLATE "C" NOT NULL,
        month text COLLATE "C" NOT NULL,
        app_id text COLLATE "C" NOT NULL,
        result text COLLATE "C" NOT NULL,
        records bigint NOT NULL,
        last_at bigint NOT NULL,
        PRIMARY KEY (tenant, month, app_id, result)
    );
    CREATE TABLE ichido.budget_notices (
        month text COLLATE "C" NOT NULL,
        budget text COLLATE "C" NOT NULL,
        threshold integer NOT NULL,
        announced_at bigint NOT NULL,
        PRIMARY KEY (month, budget, threshold)
    );
"#;

/// Creates the tables if they do not exist.
pub(super) async fn ensure(connection: &mut Client, schema: &str, profile: Profile) -> Result<()> {
    let grain = Grain::of(profile);
    if recognize(&***connection, schema, grain).await? {
        return add_later_tables(connection, schema).await;
    }
    let fail = |error| classify(OPERATION, error);
    let transaction = connection.transaction().await.map_err(fail)?;
    transaction
        .query_typed("SELECT pg_advisory_xact_lock($1)", &[(&LOCK, Type::INT8)])
        .await
        .map_err(fail)?;
    // Another meter may have created them while we waited.
    if recognize(&*transaction, schema, grain).await? {
        return Ok(());
    }
    let sql = "SELECT FROM pg_namespace WHERE nspname = $1";
    let exists = transaction.query_typed_opt(sql, &[(&schema, Type::TEXT)]).await;
    if exists.map_err(fail)?.is_none() {
        transaction.batch_execute(&format!("CREATE SCHEMA \"{schema}\"")).await.map_err(fail)?;
    }
    let tables = in_schema(&format!("{TABLES}{LATER_TABLES}"), schema);
    transaction.batch_execute(&tables).await.map_err(|error| match error.code() {
        Some(code) if code.code() == "42P07" => Error::Settings(format!(
            "the schema {schema} contains tables that no meter created: choose another schema with ?schema= (these tables are left unchanged)"
        )),
        _ => classify(OPERATION, error),
    })?;
    let sql = in_schema("INSERT INTO ichido.meter_layout (version, grain) VALUES ($1, $2)", schema);
    transaction
        .query_typed(&sql, &[(&VERSION, Type::INT4), (&grain.as_str(), Type::TEXT)])
        .await
        .map_err(fail)?;
    transaction.commit().await.map_err(fail)
}

/// Adds the tables that a schema of an earlier version lacks, and notes since when they are complete.
async fn add_later_tables(connection: &mut Client, schema: &str) -> Result<()> {
    let fail = |error| classify(OPERATION, error);
    let known = "SELECT FROM pg_tables WHERE schemaname = $1 AND tablename = 'repeats'";
    if connection.query_typed_opt(known, &[(&schema, Type::TEXT)]).await.map_err(fail)?.is_some() {
        return Ok(());
    }
    let transaction = connection.transaction().await.map_err(fail)?;
    transaction
        .query_typed("SELECT pg_advisory_xact_lock($1)", &[(&LOCK, Type::INT8)])
        .await
        .map_err(fail)?;
    // Another meter may have added them while we waited.
    if transaction.query_typed_opt(known, &[(&schema, Type::TEXT)]).await.map_err(fail)?.is_some() {
        return Ok(());
    }
    let since = "INSERT INTO ichido.repeats
                 VALUES ('', '', '', 'since', 0, (extract(epoch FROM now()) * 1000)::bigint)";
    transaction
        .batch_execute(&in_schema(&format!("{LATER_TABLES}{since}"), schema))
        .await
        .map_err(|error| match error.code().map(tokio_postgres::error::SqlState::code) {
            Some("42501") => Error::Settings(format!(
                "the meter's tables in schema {schema} must be extended: start the meter once with a user that may create \
                 tables in it"
            )),
            _ => fail(error),
        })?;
    transaction.commit().await.map_err(fail)
}

/// Puts the tables of a statement into a schema, whose name needs no escaping: see `ichido_postgres::Address`.
pub(super) fn in_schema(sql: &str, schema: &str) -> String {
    sql.replace("ichido.", &format!("\"{schema}\"."))
}

/// Whether our tables exist. Fails if they have another version, or were created for another profile.
async fn recognize(client: &impl GenericClient, schema: &str, grain: Grain) -> Result<bool> {
    let fail = |error| classify(OPERATION, error);
    let known = "SELECT FROM pg_tables WHERE schemaname = $1 AND tablename = 'meter_layout'";
    if client.query_typed_opt(known, &[(&schema, Type::TEXT)]).await.map_err(fail)?.is_none() {
        return Ok(false);
    }
    let sql = in_schema("SELECT version, grain FROM ichido.meter_layout", schema);
    let row = client.query_typed_opt(&sql, &[]).await.map_err(fail)?;
    let row = row.ok_or(Error::Corrupt { operation: OPERATION, source: None })?;
    let version: i32 = row.try_get(0).map_err(fail)?;
    match version {
        VERSION => grain.require(row.try_get(1).map_err(fail)?).map(|()| true),
        version if version > VERSION => Err(Error::Settings(format!(
            "the meter's tables in schema {schema} were created by a newer ichido (version {version}; this one supports \
             {VERSION}): upgrade this one, or choose another schema with ?schema="
        ))),
        _ => Err(Error::Corrupt { operation: OPERATION, source: None }),
    }
}
