//! The conformance suite on every backend: each module is one backend, each case one test.
//!
//! The servers are real; `cargo xtask test` sets the environment variables with their addresses.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a server that is not there fails the test")]

#[cfg(feature = "dynamodb")]
mod dynamodb_amazon;
#[cfg(feature = "dynamodb")]
mod dynamodb_dynoxide;
#[cfg(feature = "file")]
mod file;
mod memory;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redis_cluster;

use std::sync::Arc;

use async_trait::async_trait;
use ichido_core::{Clock, SystemClock};
use ichido_ledger::conformance::Subject;
use ichido_ledger::{Backend, Ledger, OpenOptions, Settings, open_backend};

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

fn options() -> OpenOptions {
    OpenOptions { clock: Arc::new(SystemClock::default()), admin: None }
}

#[allow(dead_code, reason = "not every set of features has a server")]
fn server(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: run `cargo xtask test`"))
}
