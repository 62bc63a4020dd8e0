//! What is stored in the server: formats, times to live, and the same results as the rules.

use std::sync::Arc;

use ichido_core::{Caller, Claim, ClaimRequest, InDoubtPolicy, Outcome, Settle, Settled};
use ichido_ledger::{Backend, Kind, Maintain};
use ichido_testkit::ledger_server::unique;
use ichido_testkit::redis_server::RedisServer;
use ichido_testkit::required_env;
use redis::AsyncCommands;

use super::TestNamespace;
use super::layout::{HEAD, SINCE, time};
use crate::support::differential::agrees_with_the_rules;
use crate::support::{
    self, LEASE_MS, RETENTION_MS, claim, count_new, grant, granted, key, mark_request, request,
};

#[tokio::test]
async fn random_calls_agree_with_the_rules() {
    let cluster = format!("{}?cluster=true", required_env("ICHIDO_TEST_REDIS_CLUSTER_URL"));
    let cluster = ichido_ledger::redis::Redis::connect(&cluster).await.unwrap();
    let ledgers = [Arc::new(TestNamespace::new().ledger().await), Arc::new(cluster)];
    let stories = (1..=8).map(|seed| {
        let ledger = ledgers[usize::try_from(seed % 2).unwrap()].clone();
        tokio::spawn(async move { agrees_with_the_rules(&*ledger, seed).await })
    });
    for story in stories.collect::<Vec<_>>() {
        story.await.unwrap();
    }
}

#[tokio::test]
async fn only_completed_claims_have_a_time_to_live() {
    let (namespace, key) = (TestNamespace::new(), key("ttl"));
    let (ledger, mut client) = (namespace.ledger().await, namespace.client().await);
    let mut ttl = async || client.pttl::<_, i64>(namespace.claim(&key)).await.unwrap();
    let token = granted(&ledger, &key).await.token;
    assert_eq!(ttl().await, -1);
    let _ = ledger.settle(&key, token, &Settle::Doubt("timeout".to_owned())).await.unwrap();
    assert_eq!(ttl().await, -1);
    let _ = ledger.settle(&key, token, &Settle::Renew { lease_ms: LEASE_MS }).await.unwrap();
    assert_eq!(ttl().await, -1);
    let _ = ledger.settle(&key, token, &Settle::Complete(Outcome::kept("done"))).await.unwrap();
    let left = u64::try_from(ttl().await).unwrap();
    assert!((RETENTION_MS - 10_000..=RETENTION_MS).contains(&left), "{left}");

    let event = mark_request(&unique());
    ledger.mark(std::slice::from_ref(&event)).await.unwrap();
    let left: i64 = client.pttl(namespace.mark(event.key.index())).await.unwrap();
    assert!(u64::try_from(left).unwrap() <= RETENTION_MS);
}

#[tokio::test]
async fn expired_claim_that_was_not_removed_yet_can_be_granted_again() {
    let (namespace, key) = (TestNamespace::new(), key("over"));
    let (ledger, mut client) = (namespace.ledger().await, namespace.client().await);
    let token = granted(&ledger, &key).await.token;
    let _ = ledger.settle(&key, token, &Settle::Complete(Outcome::kept("done"))).await.unwrap();
    // As if the server had not removed it yet.
    let () = client.setrange(namespace.claim(&key), SINCE, time(1)).await.unwrap();
    let grant = grant(claim(&ledger, &request(&key)).await);
    assert_eq!(grant.attempt, 1);
    assert_eq!(client.pttl::<_, i64>(namespace.claim(&key)).await.unwrap(), -1);
    let value: String = client.get(namespace.claim(&key)).await.unwrap();
    assert!(value.starts_with(&format!("2{}R0000000000", grant.token)) && value.ends_with('}'), "{value}");
}

#[tokio::test]
async fn claim_is_one_readable_string() {
    let (namespace, key) = (TestNamespace::new(), key("read\"me"));
    let (ledger, mut client) = (namespace.ledger().await, namespace.client().await);
    let token = granted(&ledger, &key).await.token;
    let _ = ledger.settle(&key, token, &Settle::Complete(Outcome::kept("done"))).await.unwrap();
    let value: String = client.get(namespace.claim(&key)).await.unwrap();
    assert!(value.starts_with(&format!("2{token}K0000000004")), "{value}");
    let fixed = value[HEAD..].strip_suffix("done").unwrap();
    let fixed: serde_json::Value = serde_json::from_str(fixed).unwrap();
    assert_eq!((&fixed["key"], &fixed["attempt"]), (&key.text().into(), &1.into()));
}

/// A version that does not know callers must not read it and reveal its outcome to others.
#[tokio::test]
async fn claim_with_a_caller_has_its_own_format_in_every_state() {
    let (namespace, key) = (TestNamespace::new(), key("caller"));
    let (ledger, mut client) = (namespace.ledger().await, namespace.client().await);
    let request = ClaimRequest { caller: Some(Caller::from_bytes([1; 32])), ..request(&key) };
    let token = grant(claim(&ledger, &request).await).token;
    let actions = [
        Settle::Renew { lease_ms: LEASE_MS },
        Settle::Doubt("timeout".to_owned()),
        Settle::Complete(Outcome::kept("done")),
    ];
    for action in actions {
        assert_eq!(ledger.settle(&key, token, &action).await.unwrap(), Settled::Applied);
        let value: String = client.get(namespace.claim(&key)).await.unwrap();
        assert!(value.starts_with(&format!("3{token}")), "{value}");
        assert_eq!(ledger.get(&key).await.unwrap().unwrap().caller, request.caller);
    }
}

#[tokio::test]
async fn flushed_scripts_are_sent_again() {
    // A server of its own: other tests count their round trips.
    let server = RedisServer::start(&[]);
    let namespace = TestNamespace::on(server.url());
    let (ledger, mut client) = (namespace.ledger().await, namespace.client().await);
    let flush = async |client: &mut redis::aio::MultiplexedConnection| {
        let () = redis::cmd("SCRIPT").arg("FLUSH").query_async(client).await.unwrap();
    };
    let key = key("forgotten");
    flush(&mut client).await;
    let token = granted(&ledger, &key).await.token;
    flush(&mut client).await;
    let action = Settle::Complete(Outcome::kept("done"));
    assert_eq!(ledger.settle(&key, token, &action).await.unwrap(), Settled::Applied);
    flush(&mut client).await;
    assert_eq!(claim(&ledger, &request(&key)).await, Claim::Done(Outcome::kept("done")));
    flush(&mut client).await;
    let batch: Vec<_> = (0..300).map(|_| mark_request(&unique())).collect();
    assert_eq!(count_new(&ledger.mark(&batch).await.unwrap()), 300);
    assert_eq!(count_new(&ledger.mark(&batch).await.unwrap()), 300);
    let others: Vec<_> = batch.iter().map(|event| mark_request(event.key.text())).collect();
    assert_eq!(count_new(&ledger.mark(&others).await.unwrap()), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_racers_on_each_key_have_one_winner() {
    let ledger = Arc::new(TestNamespace::new().ledger().await);
    for _ in 0..100 {
        let key = key("race");
        let racers = (0..50).map(|_| {
            let (ledger, request) = (ledger.clone(), request(&key));
            tokio::spawn(async move { matches!(claim(&*ledger, &request).await, Claim::Granted(_)) })
        });
        let mut wins = 0;
        for racer in racers.collect::<Vec<_>>() {
            wins += usize::from(racer.await.unwrap());
        }
        assert_eq!(wins, 1);
    }
}

#[tokio::test]
async fn a_full_server_refuses_and_changes_nothing() {
    let full = RedisServer::start(&[]);
    let (namespace, key) = (TestNamespace::on(full.url()), key("full"));
    let (ledger, mut client) = (namespace.ledger().await, namespace.client().await);
    let token = granted(&ledger, &key).await.token;
    let _ = ledger.settle(&key, token, &Settle::Doubt("timeout".to_owned())).await.unwrap();
    let before = ledger.get(&key).await.unwrap();
    let done = support::key("done");
    let token_of_done = granted(&ledger, &done).await.token;
    let action = Settle::Complete(Outcome::kept("done"));
    let _ = ledger.settle(&done, token_of_done, &action).await.unwrap();
    let () =
        redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("1mb").query_async(&mut client).await.unwrap();
    let retry = ClaimRequest { in_doubt: InDoubtPolicy::Retry { silent_ms: 0 }, ..request(&key) };
    let errors = [
        ledger.claim(&retry).await.unwrap_err(),
        ledger.settle(&key, token, &action).await.unwrap_err(),
        ledger.claim(&request(&support::key("other"))).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(
            (error.kind(), error.effect()),
            (&Kind::Unavailable, ichido_ledger::Effect::None),
            "{error:?}"
        );
    }
    assert_eq!(ledger.get(&key).await.unwrap(), before);
    // Existing records can still be read.
    assert_eq!(claim(&ledger, &request(&done)).await, Claim::Done(Outcome::kept("done")));
}
