//! Real servers. Every second client reaches its server through a proxy that loses requests and replies, cuts
//! connections and falls silent for a while.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ichido_core::{Entropy, SeededEntropy};
use ichido_ledger::{Backend, open_backend};

use crate::proxy::{Fault, Proxy};
use crate::{chance, explain_histories, options};

/// Four instances, two of them behind proxies; the address of the server is replaced in the URL.
struct Instances {
    backends: Vec<Arc<dyn Backend>>,
    proxies: Vec<Proxy>,
}

impl Instances {
    async fn open(url: &str, server: SocketAddr) -> Self {
        let mut instances = Instances { backends: Vec::new(), proxies: Vec::new() };
        for number in 0..4 {
            let address = if number % 2 == 0 {
                server
            } else {
                instances.proxies.push(Proxy::start(server));
                instances.proxies[number / 2].addr()
            };
            let url = url.replace("ADDRESS", &address.to_string());
            instances.backends.push(open_backend(&url, &options()).await.expect("the server is up"));
        }
        instances
    }

    async fn explain_histories(&self, mark_granularity_ms: u64) {
        let mischief = SeededEntropy::new(chance());
        let trouble =
            futures_util::future::join_all(self.proxies.iter().map(|proxy| trouble(proxy, &mischief)));
        tokio::select! {
            () = explain_histories(&self.backends, mark_granularity_ms) => {}
            _ = trouble => {}
        }
        let faults: usize = self.proxies.iter().map(Proxy::faults).sum();
        assert!(faults > 0, "nothing went wrong, so nothing was shown");
    }
}

/// One fault after the other, with a little peace in between.
async fn trouble(proxy: &Proxy, mischief: &SeededEntropy) {
    loop {
        let drawn = mischief.draw();
        let times = usize::from(drawn[1] % 3) + 1;
        let (fault, for_ms) = match drawn[0] % 8 {
            0..3 => (Fault::LoseReply { to: "", times }, 40),
            3..6 => (Fault::LoseRequest { to: "", times }, 40),
            6 => (Fault::Refuse, u64::from(drawn[2] % 30)),
            _ => (Fault::BlackHole, u64::from(drawn[2] % 200)),
        };
        proxy.set(fault);
        tokio::time::sleep(Duration::from_millis(for_ms)).await;
        proxy.set(Fault::None);
        tokio::time::sleep(Duration::from_millis(20 + u64::from(drawn[3] % 100))).await;
    }
}

fn server(variable: &str) -> url::Url {
    let url =
        std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: run `cargo xtask test`"));
    url.parse().expect("a URL")
}

fn address(url: &url::Url) -> SocketAddr {
    url.socket_addrs(|| None).expect("host and port")[0]
}

/// The URL with a place for the address.
fn template(url: &url::Url) -> String {
    let port = url.port().expect("a port");
    url.as_str().replacen(&format!("{}:{port}", url.host_str().expect("a host")), "ADDRESS", 1)
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_history_on_postgres_has_an_order() {
    let url = server("ICHIDO_TEST_POSTGRES_URL");
    let instances = Instances::open(&template(&url), address(&url)).await;
    instances.backends[0].init().await.expect("the tables are there");
    instances.explain_histories(1).await;
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_history_on_redis_has_an_order() {
    let url = server("ICHIDO_TEST_REDIS_URL");
    let instances = Instances::open(&template(&url), address(&url)).await;
    instances.explain_histories(1).await;
}

#[cfg(feature = "dynamodb")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_history_on_dynamodb_has_an_order() {
    let url = server("ICHIDO_TEST_DYNAMODB_URL");
    let table = "dynamodb://linearizability?region=us-east-1&endpoint=http://ADDRESS";
    let instances = Instances::open(table, address(&url)).await;
    instances.backends[0].init().await.expect("the table is created");
    instances.explain_histories(1_000).await;
}
