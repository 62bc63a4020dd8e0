//! Real servers. Every second client reaches its server through a proxy that loses requests and replies, cuts
//! connections and stops answering for a while.

use std::sync::Arc;
use std::time::Duration;

use ichido_core::{Entropy, SeededEntropy};
use ichido_ledger::Backend;
use ichido_testkit::ledger_server::{LedgerServer, open};
use ichido_testkit::tcp_proxy::{Fault, TcpProxy};

use super::{explain_histories, random_seed};

/// Four instances, two of them behind proxies.
struct Instances {
    backends: Vec<Arc<dyn Backend>>,
    proxies: Vec<TcpProxy>,
}

impl Instances {
    async fn open(server: &LedgerServer) -> Self {
        let proxies = vec![server.proxy(), server.proxy()];
        let mut backends = Vec::new();
        for proxy in &proxies {
            backends.extend([server.open().await, open(&server.url_through(proxy)).await]);
        }
        Instances { backends, proxies }
    }

    async fn explain_histories(&self, mark_granularity_ms: u64) {
        let entropy = SeededEntropy::new(random_seed());
        let cause_trouble =
            futures_util::future::join_all(self.proxies.iter().map(|proxy| cause_trouble(proxy, &entropy)));
        tokio::select! {
            () = explain_histories(&self.backends, mark_granularity_ms) => {}
            _ = cause_trouble => {}
        }
        let faults: usize = self.proxies.iter().map(TcpProxy::faults).sum();
        assert!(faults > 0, "nothing went wrong, so nothing was shown");
    }
}

/// One fault after the other, with short breaks.
async fn cause_trouble(proxy: &TcpProxy, entropy: &SeededEntropy) {
    loop {
        let drawn = entropy.draw();
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_history_on_postgres_has_an_order() {
    Instances::open(&LedgerServer::postgres_with(8).await).await.explain_histories(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_history_on_redis_has_an_order() {
    Instances::open(&LedgerServer::redis().await).await.explain_histories(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_history_on_dynamodb_has_an_order() {
    Instances::open(&LedgerServer::dynamodb("ICHIDO_TEST_DYNAMODB_URL").await)
        .await
        .explain_histories(1_000)
        .await;
}
