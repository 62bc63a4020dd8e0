//! A holder whose renewals fail for a while.

use std::time::Duration;

use ichido_core::{Claim, ClaimRequest, Settled};
use ichido_ledger::Settings;
use ichido_testkit::ledger_server::LedgerServer;
use ichido_testkit::tcp_proxy::Fault;
use ichido_testkit::wait::until;
use tokio::time::{sleep, timeout};

use super::{claim, key, outcome, warm};

/// A renewal is due every two seconds, and two may fail.
const LEASE_MS: u64 = 6_000;
const PERIOD: Duration = Duration::from_millis(LEASE_MS / 3);

pub(crate) async fn lease_survives_one_period_without_renewal(server: &LedgerServer) {
    let (proxy, ledger) = warm(server, Settings::default()).await;
    let (key, other) = (key(), server.instance().await);
    let request = ClaimRequest { lease_ms: LEASE_MS, ..ledger.request(key.clone()) };
    let Claim::Granted(grant) = claim(&ledger, &request).await else { panic!("the key is free") };
    let renewal = ledger.start_renewal(&key, &grant);

    proxy.set(Fault::BlackHole);
    let before = proxy.requests() + proxy.connections();
    until("a renewal has vanished", || async { proxy.requests() + proxy.connections() > before }).await;
    sleep(PERIOD).await;
    assert_eq!(other.get(&key).await.unwrap().unwrap().renewals, 0, "nothing came through");
    proxy.set(Fault::None);

    until("the next renewal comes through", || async {
        other.get(&key).await.unwrap().unwrap().renewals > 0
    })
    .await;
    let answer = claim(&other, &other.request(key.clone())).await;
    assert!(matches!(answer, Claim::Held { .. }), "{answer:?}");
    assert!(timeout(Duration::ZERO, renewal.lost()).await.is_err(), "the claim must not count as lost");
    assert_eq!(ledger.complete(&key, grant.token, outcome("x")).await.unwrap(), Settled::Applied);
}
