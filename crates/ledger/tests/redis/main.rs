//! Redis specifics, on real servers.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what is unexpected fails the test")]

mod cluster;
mod connection;
#[path = "../support/differential.rs"]
mod differential;
mod faults;
mod foreign_values;
mod layout;
mod listing;
mod loss_detection;
#[path = "../support/lossy_proxy.rs"]
mod lossy_proxy;
mod records;
#[path = "../support/requests.rs"]
mod requests;
mod server;
#[path = "../support/stalling_relay.rs"]
mod stalling_relay;

use ichido_core::{Index, Key};
use ichido_ledger::redis::Redis;
use redis::aio::MultiplexedConnection;

/// A prefix for one test.
struct TestNamespace {
    server: String,
    prefix: String,
}

impl TestNamespace {
    fn new() -> Self {
        Self::on(requests::server("ICHIDO_TEST_REDIS_URL"))
    }

    fn on(server: String) -> Self {
        Self { server, prefix: format!("t-{}:", requests::unique()) }
    }

    fn url(&self) -> String {
        format!("{}?prefix={}", self.server, self.prefix)
    }

    async fn ledger(&self) -> Redis {
        Redis::connect(&self.url()).await.unwrap()
    }

    async fn client(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.server.as_str()).unwrap();
        client.get_multiplexed_async_connection().await.unwrap()
    }

    fn claim(&self, key: &Key) -> String {
        format!("{}claim:{}", self.prefix, key.index())
    }

    fn mark(&self, index: Index) -> String {
        format!("{}mark:{index}", self.prefix)
    }
}
