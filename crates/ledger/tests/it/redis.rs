//! Redis specifics, on real servers.

mod cluster;
mod connection;
mod faults;
mod foreign_values;
mod layout;
mod listing;
mod loss_detection;
mod records;

use ichido_core::{Index, Key};
use ichido_ledger::redis::Redis;
use ichido_testkit::ledger_server::unique;
use ichido_testkit::required_env;
use redis::aio::MultiplexedConnection;

use crate::support::redis_client;

/// A prefix for one test.
struct TestNamespace {
    server: String,
    prefix: String,
}

impl TestNamespace {
    fn new() -> Self {
        Self::on(required_env("ICHIDO_TEST_REDIS_URL"))
    }

    fn on(server: String) -> Self {
        Self { server, prefix: format!("t-{}:", unique()) }
    }

    fn url(&self) -> String {
        format!("{}?prefix={}", self.server, self.prefix)
    }

    async fn ledger(&self) -> Redis {
        Redis::connect(&self.url()).await.unwrap()
    }

    async fn client(&self) -> MultiplexedConnection {
        redis_client(&self.server).await
    }

    fn claim(&self, key: &Key) -> String {
        format!("{}claim:{}", self.prefix, key.index())
    }

    fn mark(&self, index: Index) -> String {
        format!("{}mark:{index}", self.prefix)
    }
}
