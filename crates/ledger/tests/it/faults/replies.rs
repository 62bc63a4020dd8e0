//! Lost replies: the request was applied, but its reply was dropped and the connection cut. And lost requests.

use ichido_core::mark::Mark;
use ichido_core::{Claim, Settled};
use ichido_ledger::Settings;
use ichido_testkit::ledger_server::LedgerServer;
use ichido_testkit::tcp_proxy::Fault;

use super::{claim, event, granted, key, outcome, warm};

const LOST_REPLY: Fault = Fault::LoseReply { to: "", times: 1 };

pub(crate) async fn owner_of_a_lost_grant_gets_it_again(server: &LedgerServer) {
    let (proxy, ledger) = warm(server, Settings::default()).await;
    let (key, other) = (key(), server.instance().await);
    let request = ledger.request(key.clone());
    proxy.set(LOST_REPLY);
    let answer = claim(&ledger, &request).await;
    assert_eq!(proxy.faults(), 1);
    let Claim::Granted(grant) = answer else { panic!("our own duplicate: {answer:?}") };
    assert_eq!((grant.token, grant.attempt), (request.token, 1));
    let answer = claim(&other, &other.request(key.clone())).await;
    assert!(matches!(answer, Claim::Held { .. }), "{answer:?}");
    assert_eq!(ledger.complete(&key, grant.token, outcome("x")).await.unwrap(), Settled::Applied);
}

pub(crate) async fn event_with_a_lost_reply_is_still_new(server: &LedgerServer) {
    let (proxy, ledger) = warm(server, Settings::default()).await;
    let (event, other) = (event(), server.instance().await);
    proxy.set(LOST_REPLY);
    let marked = ledger.mark(&[ledger.mark_request(event.clone())]).await.unwrap();
    assert_eq!((proxy.faults(), &marked[0].mark), (1, &Mark::New));
    for ledger in [&ledger, &other] {
        let marked = ledger.mark(&[ledger.mark_request(event.clone())]).await.unwrap();
        assert!(matches!(marked[0].mark, Mark::Seen { .. }), "{marked:?}");
    }
}

pub(crate) async fn completion_with_a_lost_reply_is_recorded_once(server: &LedgerServer) {
    let (proxy, ledger) = warm(server, Settings::default()).await;
    let (key, other) = (key(), server.instance().await);
    let grant = granted(&ledger, &key).await;
    proxy.set(LOST_REPLY);
    assert_eq!(ledger.complete(&key, grant.token, outcome("first")).await.unwrap(), Settled::Applied);
    assert_eq!(proxy.faults(), 1);
    assert_eq!(ledger.complete(&key, grant.token, outcome("second")).await.unwrap(), Settled::Applied);
    assert_eq!(claim(&other, &other.request(key.clone())).await, Claim::Done(outcome("first")));
}

/// The retry of a release finds no claim: the handle knows that its first try may have removed it.
pub(crate) async fn release_with_a_lost_reply_was_applied(server: &LedgerServer) {
    let (proxy, ledger) = warm(server, Settings::default()).await;
    let (key, other) = (key(), server.instance().await);
    let grant = granted(&ledger, &key).await;
    proxy.set(LOST_REPLY);
    assert_eq!(ledger.release(&key, grant.token).await.unwrap(), Settled::Applied);
    assert_eq!(proxy.faults(), 1);
    assert_eq!(granted(&other, &key).await.attempt, 1, "the key is free");
}

pub(crate) async fn lost_request_is_retried(server: &LedgerServer) {
    let (proxy, ledger) = warm(server, Settings::default()).await;
    let request = ledger.request(key());
    proxy.set(Fault::LoseRequest { to: "", times: 2 });
    let answer = claim(&ledger, &request).await;
    assert_eq!(proxy.faults(), 2);
    assert!(matches!(answer, Claim::Granted(grant) if grant.token == request.token), "{answer:?}");
}
