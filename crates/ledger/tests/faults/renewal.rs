//! A holder whose renewals fail for a while.

use std::time::Duration;

use ichido_core::{Claim, ClaimRequest, Settled};
use ichido_ledger::{Ledger, Settings};
use tokio::time::{sleep, timeout};

use crate::lossy_proxy::{Fault, Proxy};
use crate::servers::Server;
use crate::{claim, key, outcome, warm};

/// A renewal is due every two seconds, and two may fail.
const LEASE_MS: u64 = 6_000;
const PERIOD: Duration = Duration::from_millis(LEASE_MS / 3);
/// A loaded machine is slow, a broken ledger never finishes.
const BOUND: Duration = Duration::from_secs(60);

pub(crate) async fn lease_survives_one_period_without_renewal(server: &Server) {
    let (proxy, ledger) = warm(server, Settings::default()).await;
    let (key, other) = (key(), server.instance().await);
    let request = ClaimRequest { lease_ms: LEASE_MS, ..ledger.request(key.clone()) };
    let Claim::Granted(grant) = claim(&ledger, &request).await else { panic!("the key is free") };
    let renewal = ledger.start_renewal(&key, &grant);

    proxy.set(Fault::BlackHole);
    swallowed(&proxy).await;
    sleep(PERIOD).await;
    assert_eq!(other.get(&key).await.unwrap().unwrap().renewals, 0, "nothing came through");
    proxy.set(Fault::None);

    timeout(BOUND, renewed(&other, &key)).await.expect("the next renewal comes through");
    let answer = claim(&other, &other.request(key.clone())).await;
    assert!(matches!(answer, Claim::Held { .. }), "{answer:?}");
    assert!(timeout(Duration::ZERO, renewal.lost()).await.is_err(), "the claim must not count as lost");
    assert_eq!(ledger.complete(&key, grant.token, outcome("x")).await.unwrap(), Settled::Applied);
}

/// Waits until a request has vanished.
async fn swallowed(proxy: &Proxy) {
    let before = proxy.requests() + proxy.connections();
    let vanish = async {
        while proxy.requests() + proxy.connections() == before {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(BOUND, vanish).await.expect("a renewal is tried");
}

async fn renewed(ledger: &Ledger, key: &ichido_core::Key) {
    while ledger.get(key).await.unwrap().unwrap().renewals == 0 {
        sleep(Duration::from_millis(20)).await;
    }
}
