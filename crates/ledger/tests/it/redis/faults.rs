//! Lost replies, cut connections, and the number of round trips.

use std::time::Duration;

use ichido_core::{Claim, ClaimRequest, InDoubtPolicy, Outcome, Resolution, Settle, Settled};
use ichido_ledger::redis::Redis;
use ichido_ledger::{Backend, Effect, Kind, Maintain};
use ichido_testkit::ledger_server::unique;
use ichido_testkit::redis_server::RedisServer;
use ichido_testkit::tcp_proxy::{Fault, TcpProxy};

use super::TestNamespace;
use crate::support::{self, claim, count_new, granted, key, mark_request, request};

async fn through_proxy() -> (TcpProxy, Redis) {
    let server = TestNamespace::new().server;
    let proxy = TcpProxy::start(server.strip_prefix("redis://").unwrap().parse().unwrap());
    let ledger = TestNamespace::on(format!("redis://{}", proxy.address())).ledger().await;
    (proxy, ledger)
}

#[tokio::test]
async fn retry_after_a_lost_reply_gets_the_grant() {
    let (proxy, ledger) = through_proxy().await;
    granted(&ledger, &key("warm")).await;
    let request = request(&key("lost"));
    proxy.set(Fault::LoseReply { to: "EVALSHA", times: 1 });
    let error = ledger.claim(&request).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (&Kind::Unavailable, Effect::Unknown), "{error:?}");
    // Nobody else sent it again.
    assert_eq!(proxy.faults(), 1);
    let Claim::Granted(grant) = claim(&ledger, &request).await else { panic!("our own duplicate") };
    assert_eq!((grant.token, grant.attempt), (request.token, 1));
}

#[tokio::test]
async fn lost_reply_to_a_release_has_unknown_effect() {
    let (proxy, ledger) = through_proxy().await;
    let key = key("lost");
    let token = granted(&ledger, &key).await.token;
    let _ = ledger.settle(&key, token, &Settle::Renew { lease_ms: 60_000 }).await.unwrap();
    proxy.set(Fault::LoseReply { to: "release", times: 1 });
    let error = ledger.settle(&key, token, &Settle::Release).await.unwrap_err();
    assert_eq!(error.effect(), Effect::Unknown);
    assert_eq!(ledger.get(&key).await.unwrap(), None);
}

#[tokio::test]
async fn unreachable_server_has_no_effect() {
    let first = RedisServer::start(&[]);
    let ledger = TestNamespace::on(first.url()).ledger().await;
    granted(&ledger, &key("warm")).await;
    drop(first);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let _ = ledger.claim(&request(&key("away"))).await.unwrap_err();
    let error = ledger.claim(&request(&key("away"))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (&Kind::Unavailable, Effect::None), "{error:?}");
}

#[tokio::test]
async fn stalled_connection_is_not_used_again() {
    let (proxy, ledger) = through_proxy().await;
    granted(&ledger, &key("warm")).await;
    proxy.stall();
    let request = request(&key("void"));
    tokio::time::timeout(Duration::from_millis(200), ledger.claim(&request)).await.unwrap_err();
    let again = tokio::time::timeout(Duration::from_secs(5), claim(&ledger, &request)).await.unwrap();
    assert!(matches!(again, Claim::Granted(_)));
}

/// The requests of a call, once the server knows its scripts.
macro_rules! round_trips {
    ($proxy:ident, $call:expr) => {{
        let before = $proxy.requests();
        let answer = $call.await.unwrap();
        (answer, $proxy.requests() - before)
    }};
}

#[tokio::test]
async fn one_call_is_one_round_trip() {
    let (proxy, ledger) = through_proxy().await;
    // A round needs more while the server does not know the scripts, or if the identity key is checked meanwhile.
    for _ in 0..50 {
        let key = key("counted");
        let request = request(&key);
        let (answer, fresh) = round_trips!(proxy, ledger.claim(&request));
        let Claim::Granted(grant) = answer else { panic!("{answer:?}") };
        let (_, held) = round_trips!(proxy, ledger.claim(&request));
        let (_, renewed) =
            round_trips!(proxy, ledger.settle(&key, grant.token, &Settle::Renew { lease_ms: 1 }));
        tokio::time::sleep(Duration::from_millis(5)).await;
        let retry =
            ClaimRequest { in_doubt: InDoubtPolicy::Retry { silent_ms: 0 }, ..support::request(&key) };
        let (answer, takeover) = round_trips!(proxy, ledger.claim(&retry));
        let Claim::Granted(grant) = answer else { panic!("{answer:?}") };
        let done = Settle::Complete(Outcome::kept("done"));
        let (settled, completed) = round_trips!(proxy, ledger.settle(&key, grant.token, &done));
        assert_eq!(settled, Settled::Applied);
        let (_, replay) = round_trips!(proxy, ledger.claim(&support::request(&key)));
        let (_, stale) = round_trips!(proxy, ledger.settle(&key, request.token, &done));
        let (_, refused) = round_trips!(proxy, ledger.resolve(&key, &Resolution::Absent));
        let batch: Vec<_> = (0..100).map(|_| mark_request(&unique())).collect();
        let (marks, marked) = round_trips!(proxy, ledger.mark(&batch));
        assert_eq!(count_new(&marks), 100);
        if [fresh, held, renewed, completed, replay, stale, refused, marked, takeover]
            == [1, 1, 1, 1, 1, 1, 1, 1, 2]
        {
            return;
        }
    }
    panic!("more round trips than questions");
}
