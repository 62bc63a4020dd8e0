//! What is special about Redis, on real servers.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what is unexpected fails the test")]

#[path = "../support/asking.rs"]
mod asking;
mod cluster;
mod connecting;
#[path = "../support/differential.rs"]
mod differential;
mod faults;
mod identity;
mod layout;
#[path = "../support/proxy.rs"]
mod proxy;
mod records;
mod server;
mod strangers;
mod survey;
#[path = "../support/void.rs"]
mod void;

use ichido_core::{Index, Key};
use ichido_ledger::redis::Redis;
use redis::aio::MultiplexedConnection;

/// A prefix of the test's own.
struct Place {
    server: String,
    prefix: String,
}

impl Place {
    fn new() -> Self {
        Self::on(asking::server("ICHIDO_TEST_REDIS_URL"))
    }

    fn on(server: String) -> Self {
        Self { server, prefix: format!("t-{}:", asking::unique()) }
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
