//! An unavailable server: a typed error within the deadline, and no call hangs.

use std::time::Duration;

use ichido_core::Claim;
use ichido_ledger::{Effect, Error, Kind, Ledger};
use ichido_testkit::ledger_server::LedgerServer;
use ichido_testkit::tcp_proxy::Fault;
use tokio::time::timeout;

use super::{claim, event, key, outcome, short_timeouts, warm};

/// Far beyond the deadline, for busy machines; only a call that hangs takes this long.
const BOUND: Duration = Duration::from_secs(60);

pub(crate) async fn unreachable_server_is_an_outage_within_the_deadline(server: &LedgerServer) {
    let (proxy, ledger) = warm(server, short_timeouts()).await;
    proxy.set(Fault::Refuse);
    // The open connection was cut during the first call; the others are refused.
    let _ = failures(&ledger).await;
    let errors = failures(&ledger).await;
    for error in &errors {
        assert_eq!(error.kind(), &Kind::Unavailable, "{error:?}");
        assert!(error.is_outage());
    }
    for error in &errors[..2] {
        assert_eq!(error.effect(), Effect::None, "it was never sent: {error:?}");
    }
    proxy.set(Fault::None);
    recovers(&ledger).await;
}

pub(crate) async fn stalled_server_is_an_outage_within_the_deadline(server: &LedgerServer) {
    let (proxy, ledger) = warm(server, short_timeouts()).await;
    proxy.set(Fault::BlackHole);
    let errors = failures(&ledger).await;
    assert_eq!(errors[0].effect(), Effect::Unknown, "the question was on its way: {:?}", errors[0]);
    for error in errors {
        assert!(error.is_outage(), "{error:?}");
    }
    proxy.set(Fault::None);
    recovers(&ledger).await;
}

/// The errors of all calls, each within the bound.
async fn failures(ledger: &Ledger) -> Vec<Error> {
    let (key, token) = (key(), ledger.request(key()).token);
    let request = ledger.request(key.clone());
    let marks = [ledger.mark_request(event())];
    vec![
        bounded(ledger.claim(&request)).await,
        bounded(ledger.complete(&key, token, outcome("x"))).await,
        bounded(ledger.mark(&marks)).await,
        bounded(ledger.get(&key)).await,
        bounded(ledger.check()).await,
    ]
}

async fn bounded<T: std::fmt::Debug>(call: impl Future<Output = ichido_ledger::Result<T>>) -> Error {
    timeout(BOUND, call).await.expect("the call hangs").unwrap_err()
}

async fn recovers(ledger: &Ledger) {
    let answer = claim(ledger, &ledger.request(key())).await;
    assert!(matches!(answer, Claim::Granted(_)), "{answer:?}");
}
