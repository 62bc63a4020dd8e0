//! PostgreSQL specifics, on a real server.

mod batches;
mod concurrency;
mod connection;
mod faults;
mod pooled;
mod schema;
mod transaction;

use ichido_ledger::postgres::Postgres;
use ichido_testkit::ledger_server::unique;
use ichido_testkit::required_env;
use tokio_postgres::{Client, NoTls};

/// A schema for one test.
struct TestSchema {
    schema: String,
}

impl TestSchema {
    fn new() -> Self {
        Self { schema: format!("t_{}", unique()) }
    }

    fn url(&self) -> String {
        format!("{}?schema={}", required_env("ICHIDO_TEST_POSTGRES_URL"), self.schema)
    }

    async fn ledger(&self) -> Postgres {
        Postgres::connect(&self.url()).await.unwrap()
    }

    /// A connection of the application.
    async fn client(&self) -> Client {
        let url = format!("{}?sslmode=disable", required_env("ICHIDO_TEST_POSTGRES_URL"));
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    async fn execute(&self, sql: &str) {
        let sql = sql.replace("ichido.", &format!("{}.", self.schema));
        self.client().await.batch_execute(&sql).await.unwrap();
    }

    /// Waits until a statement on this schema's tables waits for a lock.
    async fn waits_for_a_lock(&self) {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%\"{}\"%'",
            self.schema
        );
        while self.count(&sql).await == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    async fn count(&self, sql: &str) -> i64 {
        let sql = sql.replace("ichido.", &format!("{}.", self.schema));
        self.client().await.query_one(&sql, &[]).await.unwrap().get(0)
    }
}
