//! Ledgers on the real servers that all tests share, reached directly or through a proxy. `cargo xtask test` sets the
//! variables with their addresses.

use std::net::SocketAddr;
use std::sync::Arc;

use ichido_core::{Nonce, SystemClock, SystemEntropy};
use ichido_ledger::{Backend, Ledger, OpenOptions, Settings, open_backend};

use crate::required_env;
use crate::tcp_proxy::TcpProxy;

/// A server for ledgers.
#[derive(Debug)]
pub struct LedgerServer {
    /// The ledger's URL, with `ADDRESS` in place of the server's address.
    template: String,
    address: SocketAddr,
}

impl LedgerServer {
    /// PostgreSQL, with a schema for this test and one connection per ledger.
    pub async fn postgres() -> LedgerServer {
        LedgerServer::postgres_with(1).await
    }

    /// The same, with this many connections.
    pub async fn postgres_with(connections: usize) -> LedgerServer {
        let url = variable("ICHIDO_TEST_POSTGRES_URL");
        let template = format!("{}?schema=t_{}&sslmode=disable&pool={connections}", template(&url), unique());
        LedgerServer { template, address: address(&url) }.prepared().await
    }

    /// Redis, with a prefix for this test.
    pub async fn redis() -> LedgerServer {
        let url = variable("ICHIDO_TEST_REDIS_URL");
        let template = format!("{}?prefix=t_{}:", template(&url).trim_end_matches('/'), unique());
        LedgerServer { template, address: address(&url) }.prepared().await
    }

    /// A server that speaks DynamoDB, with a table for this test.
    pub async fn dynamodb(name: &str) -> LedgerServer {
        let url = variable(name);
        let template = format!("dynamodb://t-{}?region=us-east-1&endpoint=http://ADDRESS", unique());
        LedgerServer { template, address: address(&url) }.prepared().await
    }

    async fn prepared(self) -> LedgerServer {
        self.open().await.init().await.expect("the ledger can be created");
        self
    }

    /// A proxy in front of it.
    pub fn proxy(&self) -> TcpProxy {
        TcpProxy::start(self.address)
    }

    /// The ledger's URL.
    pub fn url(&self) -> String {
        self.template.replace("ADDRESS", &self.address.to_string())
    }

    /// The URL through a proxy.
    pub fn url_through(&self, proxy: &TcpProxy) -> String {
        self.template.replace("ADDRESS", &proxy.address().to_string())
    }

    /// A backend with its own connections.
    pub async fn open(&self) -> Arc<dyn Backend> {
        open(&self.url()).await
    }

    /// A handle as another instance of a service would have.
    pub async fn instance(&self) -> Ledger {
        Ledger::new(self.open().await, Settings::default())
    }

    /// A handle whose connections go through a proxy.
    pub async fn through(&self, proxy: &TcpProxy, settings: Settings) -> Ledger {
        Ledger::new(open(&self.url_through(proxy)).await, settings)
    }
}

/// Opens a backend on a server that runs.
pub async fn open(url: &str) -> Arc<dyn Backend> {
    let options = OpenOptions { clock: Arc::new(SystemClock::default()), admin: None };
    open_backend(url, &options).await.expect("the server is up")
}

/// A text that nobody else has.
pub fn unique() -> String {
    Nonce::draw(&SystemEntropy).to_string()
}

fn variable(name: &str) -> url::Url {
    required_env(name).parse().expect("a URL")
}

fn address(url: &url::Url) -> SocketAddr {
    url.socket_addrs(|| None).expect("host and port")[0]
}

fn template(url: &url::Url) -> String {
    let place = format!("{}:{}", url.host_str().expect("a host"), url.port().expect("a port"));
    url.as_str().replacen(&place, "ADDRESS", 1)
}
