//! Reads Dify's PostgreSQL database, without writing to it.
//!
//! Rows are read in pages by keyset, `(created_at, id)`, and streamed within a page. A range is read in one
//! read-only transaction, so that it sees a single snapshot. If the connection breaks, reading resumes after the
//! last row that was passed on, so no row is seen twice. Timestamps in Dify's tables are in UTC, although their
//! type does not say so.
//!
//! We may share a pooler in transaction mode with Dify. So no session settings are changed, which would turn Dify's
//! own connections read-only, and no statement is prepared.

mod failure;
mod schema;
mod sql;

use std::fmt;
use std::time::{Duration, SystemTime};

use futures_util::{StreamExt, pin_mut};
use jiff::Timestamp;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use self::failure::{Failure, classify};
use super::error::{Error, Kind};
use super::node::{self, NODE_TYPES_WITHOUT_MODEL, NodeTexts, NodeUsage};
use super::rows::{Filter, RowCounts, TimeRange, Visitor, user};
use crate::event::{self, App, UsageEvent, UserKind, count, price, total};

/// Rows per page.
const PAGE_ROWS: i64 = 5_000;
/// Pauses before each retry of a page.
const PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
const NIL_UUID: &str = "00000000-0000-0000-0000-000000000000";

/// Dify's database.
pub struct Postgres {
    config: Config,
    tls: MakeRustlsConnect,
    filter: Filter,
    connection: Option<Connection>,
}

/// Leaves out the address, which may contain a password.
impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("filter", &self.filter).finish_non_exhaustive()
    }
}

struct Connection {
    client: Client,
    in_transaction: bool,
}

/// The last row that was passed on.
struct Cursor {
    at: SystemTime,
    id: String,
    node: String,
}

impl Postgres {
    /// Prepares to read. Does not connect yet.
    pub fn new(config: Config, tls: MakeRustlsConnect, filter: Filter) -> Self {
        Self { config, tls, filter, connection: None }
    }

    /// Passes on every row in a range.
    pub async fn read(&mut self, range: TimeRange, visit: &mut Visitor<'_>) -> Result<RowCounts, Error> {
        let mut counts = RowCounts::default();
        for table in [Table::Messages, Table::Nodes] {
            let mut cursor = Cursor {
                at: SystemTime::from(range.from),
                id: NIL_UUID.to_owned(),
                node: NIL_UUID.to_owned(),
            };
            let mut retries = 0;
            loop {
                let before = (cursor.at, cursor.id.clone(), cursor.node.clone());
                match self.page(table, range, &mut cursor, visit, &mut counts).await {
                    Ok(rows) if rows < PAGE_ROWS => break,
                    Ok(_) => retries = 0,
                    Err(Failure::Fatal(error)) => {
                        self.connection = None;
                        return Err(error);
                    }
                    Err(Failure::Retryable(why)) => {
                        self.connection = None;
                        if before != (cursor.at, cursor.id.clone(), cursor.node.clone()) {
                            retries = 0;
                        }
                        let Some(pause) = PAUSES.get(retries) else {
                            return Err(Error::new(Kind::Unavailable, format!("Dify's database: {why}")));
                        };
                        retries += 1;
                        tracing::warn!(why, "cannot read from Dify's database; retrying");
                        tokio::time::sleep(*pause).await;
                    }
                }
            }
        }
        if let Some(connection) = &mut self.connection {
            // Release the snapshot. Whether that succeeds does not matter to what was read.
            let _ = connection.client.batch_execute("COMMIT").await;
            connection.in_transaction = false;
        }
        Ok(counts)
    }

    /// Finds the earliest message in a range that has changed since a given time.
    pub async fn changed_since(
        &mut self,
        since: Timestamp,
        range: TimeRange,
    ) -> Result<Option<Timestamp>, Error> {
        let connection = self.connected().await.map_err(Failure::into_error)?;
        let [since, from, until] = [since, range.from, range.until].map(SystemTime::from);
        let times: [(&(dyn ToSql + Sync), Type); 3] =
            [&since, &from, &until].map(|time| (time as _, Type::TIMESTAMP));
        let row = connection.client.query_typed_one(sql::CHANGED, &times).await;
        let found: Option<SystemTime> = row.and_then(|row| row.try_get(0)).map_err(|error| {
            self.connection = None;
            classify(&error).into_error()
        })?;
        Ok(found.and_then(|at| Timestamp::try_from(at).ok()))
    }

    /// Checks that all tables and columns exist.
    pub async fn check(&mut self) -> Result<String, Error> {
        let connection = self.connected().await.map_err(Failure::into_error)?;
        let row = connection.client.query_typed_one("SELECT count(*) FROM apps", &[]).await;
        let apps: i64 = row.and_then(|row| row.try_get(0)).map_err(|error| classify(&error).into_error())?;
        Ok(format!("Dify's database is readable: {apps} apps"))
    }

    async fn page(
        &mut self,
        table: Table,
        range: TimeRange,
        cursor: &mut Cursor,
        visit: &mut Visitor<'_>,
        counts: &mut RowCounts,
    ) -> Result<i64, Failure> {
        let filter = self.filter.clone();
        let connection = self.transaction().await?;
        let until = SystemTime::from(range.until);
        let without_model = &NODE_TYPES_WITHOUT_MODEL[..];
        let (at, id, node) = (cursor.at, cursor.id.clone(), cursor.node.clone());
        let mut params: Vec<(&(dyn ToSql + Sync), Type)> = vec![
            (&until, Type::TIMESTAMP),
            (&at, Type::TIMESTAMP),
            (&id, Type::TEXT),
            (&filter.workspace, Type::TEXT),
            (&PAGE_ROWS, Type::INT8),
        ];
        let sql = match table {
            Table::Messages => sql::MESSAGES,
            Table::Nodes => {
                params.extend([(&node as _, Type::TEXT), (&without_model as _, Type::TEXT_ARRAY)]);
                sql::NODES
            }
        };
        let rows = connection.client.query_typed_raw(sql, params).await.map_err(|error| classify(&error))?;
        pin_mut!(rows);
        let mut seen = 0;
        while let Some(row) = rows.next().await {
            let row = row.map_err(|error| classify(&error))?;
            let fields = Fields(&row);
            match table {
                Table::Messages => fields.message(&filter, cursor, visit, counts)?,
                Table::Nodes => fields.node(&filter, cursor, visit, counts)?,
            }
            seen += 1;
        }
        Ok(seen)
    }

    /// Returns a connection inside a read-only transaction.
    async fn transaction(&mut self) -> Result<&Connection, Failure> {
        let connection = self.connected().await?;
        if !connection.in_transaction {
            let begin = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY";
            connection.client.batch_execute(begin).await.map_err(|error| classify(&error))?;
            connection.in_transaction = true;
        }
        Ok(connection)
    }

    async fn connected(&mut self) -> Result<&mut Connection, Failure> {
        let connection = match self.connection.take() {
            Some(connection) if !connection.client.is_closed() => connection,
            _ => self.connect().await?,
        };
        Ok(self.connection.insert(connection))
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        let (client, connection) =
            self.config.connect(self.tls.clone()).await.map_err(|error| classify(&error))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to Dify's database closed");
            }
        });
        schema::check(&client).await?;
        Ok(Connection { client, in_transaction: false })
    }
}

#[derive(Clone, Copy)]
enum Table {
    Messages,
    Nodes,
}

/// A row whose columns are read by name.
struct Fields<'r>(&'r Row);

impl<'r> Fields<'r> {
    fn get<T: tokio_postgres::types::FromSql<'r>>(&self, column: &str) -> Result<T, Failure> {
        self.0.try_get(column).map_err(|error| {
            Failure::Fatal(Error::new(
                Kind::Incompatible,
                format!("Dify's database: column {column} has an unexpected type ({error})"),
            ))
        })
    }

    fn text(&self, column: &str) -> Result<&'r str, Failure> {
        Ok(self.get::<Option<&str>>(column)?.unwrap_or_default())
    }

    fn app(&self) -> Result<App<'r>, Failure> {
        let (id, name, mode) = (self.text("app_id")?, self.text("name")?, self.text("mode")?);
        Ok(App { id: id.into(), name: name.into(), mode: mode.into() })
    }

    fn message(
        &self,
        filter: &Filter,
        cursor: &mut Cursor,
        visit: &mut Visitor<'_>,
        counts: &mut RowCounts,
    ) -> Result<(), Failure> {
        let (id, at): (&str, SystemTime) = (self.get("id")?, self.get("created_at")?);
        (cursor.at, cursor.id) = (at, id.to_owned());
        let debugger = self.text("invoke_from")? == "debugger";
        if debugger && !filter.debugger {
            return Ok(());
        }
        let end_user = self.get::<Option<&str>>("from_end_user_id")?;
        let account = self.get::<Option<&str>>("from_account_id")?;
        let (session, email) = (self.get("session_id")?, self.get("email")?);
        let user = user(end_user.map(|id| (id, session)), account.map(|id| (id, email)));
        let tokens = |column| Ok(self.get::<Option<i64>>(column)?.unwrap_or_default());
        let (message_tokens, answer_tokens) = (tokens("message_tokens")?, tokens("answer_tokens")?);
        let total_price = self.get::<Option<&str>>("total_price")?;
        let (tenant, app, currency) = (self.text("tenant_id")?, self.app()?, self.text("currency")?);
        let (provider, model) = (self.text("model_provider")?, self.text("model_id")?);
        let event = || -> Result<_, event::Error> {
            let input_tokens = count("message_tokens", message_tokens)?;
            let output_tokens = count("answer_tokens", answer_tokens)?;
            Ok(UsageEvent {
                id: id.into(),
                time: timestamp(at)?,
                tenant: tenant.into(),
                provider: provider.into(),
                model: model.into(),
                app,
                user,
                input_tokens,
                output_tokens,
                total_tokens: total(input_tokens, output_tokens)?,
                price: total_price.map_or(Ok(Default::default()), |text| price("total_price", text))?,
                currency: currency.into(),
                requests: 1,
                debugger,
            })
        };
        counts.visit_row(visit, event(), &format!("messages {id}"), || {
            serde_json::json!({
                "table": "messages", "id": id, "message_tokens": message_tokens, "answer_tokens": answer_tokens,
                "total_price": total_price, "currency": currency, "model_provider": provider, "model_id": model,
            })
            .to_string()
        });
        Ok(())
    }

    fn node(
        &self,
        filter: &Filter,
        cursor: &mut Cursor,
        visit: &mut Visitor<'_>,
        counts: &mut RowCounts,
    ) -> Result<(), Failure> {
        let (run, id, at): (&str, &str, SystemTime) =
            (self.get("run_id")?, self.get("id")?, self.get("created_at")?);
        (cursor.at, cursor.id, cursor.node) = (at, run.to_owned(), id.to_owned());
        let debugger = self.text("triggered_from")? == "debugging";
        if debugger && !filter.debugger {
            return Ok(());
        }
        let by = self.get::<Option<&str>>("created_by")?;
        let kind = match self.text("created_by_role")? {
            "end_user" => UserKind::EndUser,
            "account" => UserKind::Account,
            _ => UserKind::None,
        };
        let (session, email) = (self.get("session_id")?, self.get("email")?);
        let of = |expected, name| by.filter(|_| kind == expected).map(|id| (id, name));
        let user = user(of(UserKind::EndUser, session), of(UserKind::Account, email));
        let texts = NodeTexts {
            process_data: self.get("process_data")?,
            outputs: self.get("outputs")?,
            execution_metadata: self.get("execution_metadata")?,
        };
        let (tenant, app) = (self.text("tenant_id")?, self.app()?);
        let used = match node::node_usage(texts) {
            Ok(NodeUsage::None) => return Ok(()),
            Ok(NodeUsage::Truncated) => {
                counts.truncated += 1;
                Err(event::Error::other(
                    "process_data",
                    "was truncated by Dify, and no other column contains the usage",
                ))
            }
            Ok(NodeUsage::Used(used)) => Ok(used),
            Err(error) => Err(error),
        };
        counts.total_only += u64::from(used.as_ref().is_ok_and(|used| used.total_only));
        let event =
            used.and_then(|used| Ok(used.into_event(id, timestamp(at)?, tenant, app, user, debugger)));
        counts.visit_row(visit, event, &format!("workflow_node_executions {id}"), || {
            serde_json::json!({"table": "workflow_node_executions", "id": id, "workflow_run_id": run})
                .to_string()
        });
        Ok(())
    }
}

fn timestamp(at: SystemTime) -> Result<Timestamp, event::Error> {
    Timestamp::try_from(at).map_err(|_| event::Error::other("created_at", "is out of range"))
}
