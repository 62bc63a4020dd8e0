//! Dify's own PostgreSQL, read-only.
//!
//! Rows are read in pages by keyset, `(created_at, id)`, and streamed within a page. One span is read in one read-only
//! transaction, so that it sees one moment. When the connection breaks, the reading goes on behind the last row that was
//! handed on: no row is seen twice. Timestamps in Dify's tables are UTC without saying so.
//!
//! Dify may share a pooler in transaction mode with us. So nothing is set for a session, which would turn Dify's own
//! connections read-only, and no statement is prepared.

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

use self::failure::{Stopped, stopped};
use super::error::{Error, Kind};
use super::node::{self, Said, Texts, WITHOUT_MODEL};
use super::rows::{Scope, See, Span, Tally, user};
use crate::event::{self, App, UsageEvent, UserKind, count, price, total};

/// Rows in a page.
const PAGE: i64 = 5_000;
/// Pauses before another try of a page.
const PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
const NIL: &str = "00000000-0000-0000-0000-000000000000";

/// The database.
pub struct Postgres {
    config: Config,
    tls: MakeRustlsConnect,
    scope: Scope,
    connection: Option<Connection>,
}

/// Nothing of the address: it may hold a password.
impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("scope", &self.scope).finish_non_exhaustive()
    }
}

struct Connection {
    client: Client,
    in_transaction: bool,
}

/// The last row that was handed on.
struct Cursor {
    at: SystemTime,
    id: String,
    node: String,
}

impl Postgres {
    /// Prepares to read. Nothing is connected yet.
    pub fn new(config: Config, tls: MakeRustlsConnect, scope: Scope) -> Self {
        Self { config, tls, scope, connection: None }
    }

    /// Hands on every row of a span.
    pub async fn read(&mut self, span: Span, see: &mut See<'_>) -> Result<Tally, Error> {
        let mut tally = Tally::default();
        for table in [Table::Messages, Table::Nodes] {
            let mut cursor =
                Cursor { at: SystemTime::from(span.from), id: NIL.to_owned(), node: NIL.to_owned() };
            let mut tried = 0;
            loop {
                let before = (cursor.at, cursor.id.clone(), cursor.node.clone());
                match self.page(table, span, &mut cursor, see, &mut tally).await {
                    Ok(rows) if rows < PAGE => break,
                    Ok(_) => tried = 0,
                    Err(Stopped::Failed(error)) => {
                        self.connection = None;
                        return Err(error);
                    }
                    Err(Stopped::Broken(why)) => {
                        self.connection = None;
                        if before != (cursor.at, cursor.id.clone(), cursor.node.clone()) {
                            tried = 0;
                        }
                        let Some(pause) = PAUSES.get(tried) else {
                            return Err(Error::new(Kind::Unavailable, format!("Dify's database: {why}")));
                        };
                        tried += 1;
                        tracing::warn!(why, "Dify's database: reading is tried again");
                        tokio::time::sleep(*pause).await;
                    }
                }
            }
        }
        if let Some(connection) = &mut self.connection {
            // The snapshot is let go; whether that succeeds is of no matter to what was read.
            let _ = connection.client.batch_execute("COMMIT").await;
            connection.in_transaction = false;
        }
        Ok(tally)
    }

    /// The earliest message of a span that was changed since then.
    pub async fn changed_since(&mut self, since: Timestamp, span: Span) -> Result<Option<Timestamp>, Error> {
        let connection = self.connected().await.map_err(Stopped::into_error)?;
        let [since, from, until] = [since, span.from, span.until].map(SystemTime::from);
        let moments: [(&(dyn ToSql + Sync), Type); 3] =
            [&since, &from, &until].map(|moment| (moment as _, Type::TIMESTAMP));
        let row = connection.client.query_typed_one(sql::CHANGED, &moments).await;
        let found: Option<SystemTime> = row.and_then(|row| row.try_get(0)).map_err(|error| {
            self.connection = None;
            stopped(&error).into_error()
        })?;
        Ok(found.and_then(|at| Timestamp::try_from(at).ok()))
    }

    /// Whether everything that is read is there.
    pub async fn check(&mut self) -> Result<String, Error> {
        let connection = self.connected().await.map_err(Stopped::into_error)?;
        let row = connection.client.query_typed_one("SELECT count(*) FROM apps", &[]).await;
        let apps: i64 = row.and_then(|row| row.try_get(0)).map_err(|error| stopped(&error).into_error())?;
        Ok(format!("Dify's database answers: {apps} apps"))
    }

    async fn page(
        &mut self,
        table: Table,
        span: Span,
        cursor: &mut Cursor,
        see: &mut See<'_>,
        tally: &mut Tally,
    ) -> Result<i64, Stopped> {
        let scope = self.scope.clone();
        let connection = self.reading().await?;
        let until = SystemTime::from(span.until);
        let without_model = &WITHOUT_MODEL[..];
        let (at, id, node) = (cursor.at, cursor.id.clone(), cursor.node.clone());
        let mut params: Vec<(&(dyn ToSql + Sync), Type)> = vec![
            (&until, Type::TIMESTAMP),
            (&at, Type::TIMESTAMP),
            (&id, Type::TEXT),
            (&scope.workspace, Type::TEXT),
            (&PAGE, Type::INT8),
        ];
        let sql = match table {
            Table::Messages => sql::MESSAGES,
            Table::Nodes => {
                params.extend([(&node as _, Type::TEXT), (&without_model as _, Type::TEXT_ARRAY)]);
                sql::NODES
            }
        };
        let rows = connection.client.query_typed_raw(sql, params).await.map_err(|error| stopped(&error))?;
        pin_mut!(rows);
        let mut seen = 0;
        while let Some(row) = rows.next().await {
            let row = row.map_err(|error| stopped(&error))?;
            let fields = Fields(&row);
            match table {
                Table::Messages => fields.message(&scope, cursor, see, tally)?,
                Table::Nodes => fields.node(&scope, cursor, see, tally)?,
            }
            seen += 1;
        }
        Ok(seen)
    }

    /// A connection inside of a transaction that can only read.
    async fn reading(&mut self) -> Result<&Connection, Stopped> {
        let connection = self.connected().await?;
        if !connection.in_transaction {
            let begin = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY";
            connection.client.batch_execute(begin).await.map_err(|error| stopped(&error))?;
            connection.in_transaction = true;
        }
        Ok(connection)
    }

    async fn connected(&mut self) -> Result<&mut Connection, Stopped> {
        let connection = match self.connection.take() {
            Some(connection) if !connection.client.is_closed() => connection,
            _ => self.connect().await?,
        };
        Ok(self.connection.insert(connection))
    }

    async fn connect(&self) -> Result<Connection, Stopped> {
        let (client, connection) =
            self.config.connect(self.tls.clone()).await.map_err(|error| stopped(&error))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the connection to Dify's database ended");
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

/// A row, by the names of its columns.
struct Fields<'r>(&'r Row);

impl<'r> Fields<'r> {
    fn get<T: tokio_postgres::types::FromSql<'r>>(&self, column: &str) -> Result<T, Stopped> {
        self.0.try_get(column).map_err(|error| {
            Stopped::Failed(Error::new(
                Kind::Shape,
                format!("Dify's database: {column} has another type than we know ({error})"),
            ))
        })
    }

    fn text(&self, column: &str) -> Result<&'r str, Stopped> {
        Ok(self.get::<Option<&str>>(column)?.unwrap_or_default())
    }

    fn app(&self) -> Result<App<'r>, Stopped> {
        let (id, name, mode) = (self.text("app_id")?, self.text("name")?, self.text("mode")?);
        Ok(App { id: id.into(), name: name.into(), mode: mode.into() })
    }

    fn message(
        &self,
        scope: &Scope,
        cursor: &mut Cursor,
        see: &mut See<'_>,
        tally: &mut Tally,
    ) -> Result<(), Stopped> {
        let (id, at): (&str, SystemTime) = (self.get("id")?, self.get("created_at")?);
        (cursor.at, cursor.id) = (at, id.to_owned());
        let debugger = self.text("invoke_from")? == "debugger";
        if debugger && !scope.debugger {
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
                time: moment(at)?,
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
        tally.hand_on(see, event(), &format!("messages {id}"), || {
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
        scope: &Scope,
        cursor: &mut Cursor,
        see: &mut See<'_>,
        tally: &mut Tally,
    ) -> Result<(), Stopped> {
        let (run, id, at): (&str, &str, SystemTime) =
            (self.get("run_id")?, self.get("id")?, self.get("created_at")?);
        (cursor.at, cursor.id, cursor.node) = (at, run.to_owned(), id.to_owned());
        let debugger = self.text("triggered_from")? == "debugging";
        if debugger && !scope.debugger {
            return Ok(());
        }
        let by = self.get::<Option<&str>>("created_by")?;
        let kind = match self.text("created_by_role")? {
            "end_user" => UserKind::EndUser,
            "account" => UserKind::Account,
            _ => UserKind::None,
        };
        let (session, email) = (self.get("session_id")?, self.get("email")?);
        let of = |meant, name| by.filter(|_| kind == meant).map(|id| (id, name));
        let user = user(of(UserKind::EndUser, session), of(UserKind::Account, email));
        let texts = Texts {
            process_data: self.get("process_data")?,
            outputs: self.get("outputs")?,
            execution_metadata: self.get("execution_metadata")?,
        };
        let (tenant, app) = (self.text("tenant_id")?, self.app()?);
        let used = match node::used(texts) {
            Ok(Said::Nothing) => return Ok(()),
            Ok(Said::Cut) => {
                tally.cut += 1;
                Err(event::Error::other(
                    "process_data",
                    "was cut by Dify, and no other place tells the usage",
                ))
            }
            Ok(Said::Used(used)) => Ok(used),
            Err(error) => Err(error),
        };
        tally.undivided += u64::from(used.as_ref().is_ok_and(|used| used.undivided));
        let event = used.and_then(|used| Ok(used.into_event(id, moment(at)?, tenant, app, user, debugger)));
        tally.hand_on(see, event, &format!("workflow_node_executions {id}"), || {
            serde_json::json!({"table": "workflow_node_executions", "id": id, "workflow_run_id": run})
                .to_string()
        });
        Ok(())
    }
}

fn moment(at: SystemTime) -> Result<Timestamp, event::Error> {
    Timestamp::try_from(at).map_err(|_| event::Error::other("created_at", "is out of range"))
}
