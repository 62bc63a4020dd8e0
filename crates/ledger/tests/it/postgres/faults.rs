//! Lost replies, cut connections, and the number of round trips.

use std::net::SocketAddr;
use std::time::Duration;

use ichido_core::mark::Mark;
use ichido_core::{Claim, ClaimRequest, InDoubtPolicy, Outcome, Resolution, Settle, Settled};
use ichido_ledger::postgres::Postgres;
use ichido_ledger::{Backend, Effect, Kind, Maintain};
use ichido_testkit::ledger_server::unique;
use ichido_testkit::tcp_proxy::{Fault, TcpProxy};

use super::TestSchema;
use crate::support::{self, claim, granted, key, mark_request, request};

/// A ledger with one connection, through a proxy.
async fn through_proxy() -> (TcpProxy, Postgres) {
    let url = TestSchema::new().url();
    let address: SocketAddr = url.split(['@', '/']).find_map(|part| part.parse().ok()).unwrap();
    let proxy = TcpProxy::start(address);
    let url = url.replace(&address.to_string(), &proxy.address().to_string());
    (proxy, Postgres::connect(&format!("{url}&sslmode=disable&pool=1")).await.unwrap())
}

#[tokio::test]
async fn retry_after_a_lost_reply_gets_the_grant() {
    let (proxy, ledger) = through_proxy().await;
    granted(&ledger, &key("warm")).await;
    let request = request(&key("lost"));
    proxy.set(Fault::LoseReply { to: "", times: 1 });
    let error = ledger.claim(&request).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (&Kind::Unavailable, Effect::Unknown), "{error:?}");
    let Claim::Granted(grant) = claim(&ledger, &request).await else { panic!("our own duplicate") };
    assert_eq!((grant.token, grant.attempt), (request.token, 1));
}

#[tokio::test]
async fn server_that_ends_the_session_may_have_committed() {
    let test_schema = TestSchema::new();
    let ledger =
        Postgres::connect(&format!("{}&pool=1&application_name={}", test_schema.url(), test_schema.schema))
            .await
            .unwrap();
    let key = key("held");
    let token = granted(&ledger, &key).await.token;
    let mut client = test_schema.client().await;
    let transaction = client.transaction().await.unwrap();
    let lock = format!("SELECT FROM {}.claims FOR UPDATE", test_schema.schema);
    transaction.execute(&lock, &[]).await.unwrap();
    let waiting = tokio::spawn(async move { ledger.settle(&key, token, &Settle::Release).await });
    test_schema.waits_for_a_lock().await;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1";
    test_schema.client().await.execute(kill, &[&test_schema.schema]).await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.effect()), (&Kind::Unavailable, Effect::Unknown), "{error:?}");
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

/// The requests of a call, once the connection has prepared its statements.
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
    // The first round prepares the statements.
    for round in 0..2 {
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
        assert!(marks.iter().all(|mark| *mark == Mark::New));
        let told = [fresh, held, renewed, completed, replay, stale, refused, marked, takeover];
        if round > 0 {
            // What a stale completion found is read by a second statement.
            assert_eq!(told, [1, 1, 1, 1, 1, 2, 1, 1, 2]);
        }
    }
}
