//! How statements are sent to a server: prepared once per connection and executed by name, or unnamed with their
//! full text.
//!
//! Prepared statements are faster, but their names exist only on the connection that prepared them. A pooler in
//! transaction mode (PgBouncer and others) runs each transaction on whichever server connection is free. There, a
//! name is unknown or, worse, belongs to another client's statement. So the server is probed before anything is
//! prepared ([`StatementMode::detect`]). If a name turns out to be unknown after all, statements are sent unnamed
//! from then on ([`StatementMode::fall_back_to_unnamed`]).

use std::sync::atomic::{AtomicBool, Ordering};

use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::address::{Address, Prepared};
use crate::error::{Error, Result};
use crate::tls;

/// Rounds of the probe. With an idle pool, the first one is conclusive.
const PROBE_ROUNDS: usize = 2;

/// Why a server could not be probed.
#[derive(Debug)]
pub enum ProbeError {
    /// A setting is invalid.
    Settings(Error),
    /// The server failed.
    Failed(tokio_postgres::Error),
}

/// How statements are sent to one server.
#[derive(Debug)]
pub struct StatementMode {
    setting: Prepared,
    /// The probe, or a later call, found a pooler in transaction mode.
    is_pooled: AtomicBool,
}

impl StatementMode {
    /// Uses the setting, or probes the server.
    pub async fn detect(address: &Address) -> Result<Self, ProbeError> {
        let setting = address.prepared;
        let is_pooled = match setting {
            Prepared::Auto | Prepared::On => is_pooled(address).await?,
            Prepared::Off => false,
        };
        Ok(Self { setting, is_pooled: is_pooled.into() })
    }

    /// A warning for operators, if there is one.
    pub fn warning(&self) -> Option<&'static str> {
        match (self.setting, self.is_pooled.load(Ordering::Relaxed)) {
            (Prepared::Auto, true) => Some(
                "PostgreSQL is behind a pooler in transaction mode: statements are not prepared, which costs the server \
                 more; if this is intended, set prepared=off in the URL",
            ),
            (Prepared::On, true) => Some(
                "PostgreSQL is behind a pooler in transaction mode: prepared=on needs PgBouncer 1.21 or newer with \
                 max_prepared_statements; otherwise remove prepared=on",
            ),
            (Prepared::Auto | Prepared::On, false) | (Prepared::Off, _) => None,
        }
    }

    /// Whether statements are sent unnamed.
    pub fn is_unnamed(&self) -> bool {
        match self.setting {
            Prepared::Auto => self.is_pooled.load(Ordering::Relaxed),
            Prepared::On => false,
            Prepared::Off => true,
        }
    }

    /// Whether a prepared statement failed because its name is unknown. Nothing was executed then, and it can be
    /// sent again unnamed.
    pub fn fall_back_to_unnamed(&self, error: &tokio_postgres::Error) -> bool {
        let is_unknown_name = error.code().is_some_and(|code| {
            [SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::DUPLICATE_PSTATEMENT].contains(code)
        });
        if !is_unknown_name || self.setting == Prepared::On {
            return false;
        }
        if !self.is_pooled.swap(true, Ordering::Relaxed) {
            tracing::warn!("prepared statement unknown to the server; statements are no longer prepared");
        }
        true
    }
}

/// The parameters of a statement with their types, taken from the casts in its text. Each parameter must have a
/// cast somewhere, as in `$1::bytea`.
pub fn typed_params<'a>(sql: &str, params: &[&'a (dyn ToSql + Sync)]) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    let mut typed: Vec<_> = params.iter().map(|param| (*param, Type::UNKNOWN)).collect();
    for (place, of) in casts(sql) {
        if let Some((_, known)) = place.checked_sub(1).and_then(|place| typed.get_mut(place)) {
            *known = of;
        }
    }
    typed
}

/// The number and type of each parameter that has a cast.
fn casts(sql: &str) -> impl Iterator<Item = (usize, Type)> {
    sql.split('$').skip(1).filter_map(|text| {
        let (number, rest) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
        let name = rest.strip_prefix("::")?;
        let end = name.find(|c: char| !(c.is_ascii_alphanumeric() || c == '[' || c == ']'));
        let of = match &name[..end.unwrap_or(name.len())] {
            "bigint" => Type::INT8,
            "bigint[]" => Type::INT8_ARRAY,
            "boolean" => Type::BOOL,
            "boolean[]" => Type::BOOL_ARRAY,
            "bytea" => Type::BYTEA,
            "bytea[]" => Type::BYTEA_ARRAY,
            "integer" => Type::INT4,
            "json" => Type::JSON,
            "text" => Type::TEXT,
            "text[]" => Type::TEXT_ARRAY,
            _ => return None,
        };
        Some((number.parse().ok()?, of))
    })
}

/// Whether there is a pooler in between: the same server process serves two connections, or one connection is
/// served by several. Nothing is prepared here, and nothing is written.
async fn is_pooled(address: &Address) -> Result<bool, ProbeError> {
    let (one, other) = (connect(address).await?, connect(address).await?);
    for _ in 0..PROBE_ROUNDS {
        let before = server_pid(&one).await?;
        other.batch_execute("BEGIN").await.map_err(failed)?;
        let passed_on = server_pid(&other).await?;
        // If they share a process, querying the first again would wait for the transaction forever.
        let is_shared = passed_on == before || server_pid(&one).await? != before;
        other.batch_execute("ROLLBACK").await.map_err(failed)?;
        if is_shared {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn connect(address: &Address) -> Result<Client, ProbeError> {
    let tls = tls::connector(address).map_err(ProbeError::Settings)?;
    let (client, connection) = address.config.connect(tls).await.map_err(ProbeError::Failed)?;
    tokio::spawn(connection);
    Ok(client)
}

/// The id of the server process behind a connection.
async fn server_pid(client: &Client) -> Result<Option<String>, ProbeError> {
    let messages = client.simple_query("SELECT pg_backend_pid()").await.map_err(failed)?;
    Ok(messages.iter().find_map(|message| {
        let SimpleQueryMessage::Row(row) = message else { return None };
        row.get(0).map(str::to_owned)
    }))
}

fn failed(error: tokio_postgres::Error) -> ProbeError {
    let message = error.as_db_error().map(tokio_postgres::error::DbError::message).unwrap_or_default();
    if message.contains("statement pooling") {
        let text = "the pooler in front of PostgreSQL is in statement mode, which does not allow transactions; set pool_mode \
                    to transaction or session";
        return ProbeError::Settings(Error::new("probing PostgreSQL", text).caused_by(error));
    }
    ProbeError::Failed(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_from_the_casts() {
        let values: [&(dyn ToSql + Sync); 3] = [&"a", &1_i64, &"b"];
        let sql = "SELECT $1, $3::text[] FROM t WHERE a = $2::bigint AND b = $1::bytea LIMIT $2::bigint";
        let types: Vec<_> = typed_params(sql, &values).into_iter().map(|(_, of)| of).collect();
        assert_eq!(types, [Type::BYTEA, Type::INT8, Type::TEXT_ARRAY]);
        assert_eq!(typed_params("SELECT $1", &values[..1])[0].1, Type::UNKNOWN);
    }
}
