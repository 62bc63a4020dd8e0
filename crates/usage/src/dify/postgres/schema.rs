//! The tables and columns that are read. A missing one is reported before anything is read.

use std::collections::HashSet;

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::failure::{Failure, classify};
use super::sql;
use crate::dify::error::{Error, Kind};

const TABLES: [(&str, &[&str]); 6] = [
    ("apps", &["id", "tenant_id", "name", "mode"]),
    (
        "messages",
        &[
            "id",
            "app_id",
            "model_provider",
            "model_id",
            "message_tokens",
            "answer_tokens",
            "total_price",
            "currency",
            "invoke_from",
            "from_end_user_id",
            "from_account_id",
            "created_at",
            "updated_at",
        ],
    ),
    ("workflow_runs", &["id", "app_id", "triggered_from", "created_by_role", "created_by", "created_at"]),
    (
        "workflow_node_executions",
        &["id", "workflow_run_id", "node_type", "process_data", "outputs", "execution_metadata"],
    ),
    ("end_users", &["id", "session_id"]),
    ("accounts", &["id", "email"]),
];

/// Reports the first table or column that does not exist.
pub(super) async fn check(client: &Client) -> Result<(), Failure> {
    let names: Vec<&str> = TABLES.iter().map(|(table, _)| *table).collect();
    let rows = client.query_typed(sql::COLUMNS, &[(&names, Type::TEXT_ARRAY)]).await;
    let rows = rows.map_err(|error| classify(&error))?;
    let existing: HashSet<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let missing = |message: String| {
        Failure::Fatal(Error::new(Kind::Incompatible, format!("Dify's database: {message}")))
    };
    for (table, columns) in TABLES {
        if !existing.iter().any(|(name, _)| name == table) {
            return Err(missing(format!("there is no table {table}")));
        }
        for column in columns {
            if !existing.contains(&(table.to_owned(), (*column).to_owned())) {
                return Err(missing(format!("the table {table} has no column {column}")));
            }
        }
    }
    Ok(())
}
