//! The conformance suite on every backend: each module is one backend, each case one test.
//!
//! The servers are real; `cargo xtask test` sets the environment variables with their addresses.

mod dynamodb_amazon;
mod dynamodb_dynoxide;
mod file;
mod memory;
mod postgres;
mod redis;
mod redis_cluster;

use std::sync::Arc;

use async_trait::async_trait;
use ichido_core::Clock;
use ichido_ledger::conformance::Subject;
use ichido_ledger::{Backend, Ledger, OpenOptions, Settings, open_backend};
use ichido_testkit::ledger_server::open;
use ichido_testkit::required_env;
use tokio::sync::OnceCell;

/// A store that one process has open: instances are handles on the same backend.
struct Held(Arc<dyn Backend>);

#[async_trait]
impl Subject for Held {
    async fn instance(&self, clock: Arc<dyn Clock>) -> Ledger {
        Ledger::new(self.0.clone(), settings(clock))
    }
}

/// A store behind a server: each instance has its own connections.
struct Served {
    url: String,
    mark_granularity_ms: u64,
}

impl Served {
    /// A store whose records expire to the millisecond.
    fn at(url: String) -> Self {
        Self { url, mark_granularity_ms: 1 }
    }

    /// A server that speaks DynamoDB. The first test creates the table.
    async fn dynamodb(variable: &str, table: &OnceCell<()>) -> Self {
        let url = format!("dynamodb://conformance?region=us-east-1&endpoint={}", required_env(variable));
        table.get_or_init(async || open(&url).await.init().await.expect("the table is created")).await;
        Self { url, mark_granularity_ms: 1000 }
    }
}

#[async_trait]
impl Subject for Served {
    async fn instance(&self, clock: Arc<dyn Clock>) -> Ledger {
        let options = OpenOptions { clock: clock.clone(), admin: None };
        let backend = open_backend(&self.url, &options).await.expect("the server is up");
        Ledger::new(backend, settings(clock))
    }

    fn mark_granularity_ms(&self) -> u64 {
        self.mark_granularity_ms
    }
}

/// Long timeouts: a thousand callers on a busy machine wait for each other.
fn settings(clock: Arc<dyn Clock>) -> Settings {
    let patience = std::time::Duration::from_secs(60);
    Settings { timeout: patience, try_timeout: patience, clock, ..Settings::default() }
}
