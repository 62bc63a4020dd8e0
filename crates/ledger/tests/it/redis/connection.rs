//! Servers that refuse, do not exist, are not trusted, or may lose data.

use ichido_ledger::redis::Redis;
use ichido_ledger::{Backend, Effect, Error, Kind, Maintain};
use ichido_testkit::redis_server::RedisServer;
use ichido_testkit::{free_port, required_env};

use super::TestNamespace;
use crate::support::{full_text, granted, key, request};

async fn failure(url: &str) -> Error {
    let error = Redis::connect(url).await.unwrap_err();
    assert!(!full_text(&error).contains("hunter2"), "{error:?}");
    assert_eq!(error.effect(), Effect::None);
    error
}

#[tokio::test]
async fn wrong_password_is_denied_and_not_echoed() {
    let guarded = RedisServer::start(&["--requirepass", "right"]);
    let port = guarded.port;
    let error = failure(&format!("redis://:hunter2@127.0.0.1:{port}")).await;
    assert!(matches!(error.kind(), Kind::Denied(_)), "{error:?}");
    let ledger = Redis::connect(&format!("redis://:right@127.0.0.1:{port}")).await.unwrap();
    assert!(!format!("{ledger:?}").contains("right"));
    granted(&ledger, &key("in")).await;
}

#[tokio::test]
async fn a_missing_password_is_denied() {
    let guarded = RedisServer::start(&["--requirepass", "right"]);
    let url = guarded.url();
    let error = match Redis::connect(&url).await {
        Err(error) => error,
        Ok(ledger) => ledger.check().await.unwrap_err(),
    };
    assert!(matches!(error.kind(), Kind::Denied(text) if text.contains("requires a password")), "{error:?}");
}

#[tokio::test]
async fn wrong_password_for_a_cluster_is_denied() {
    let guarded = RedisServer::start(&["--requirepass", "right", "--cluster-enabled", "yes"]);
    let error = failure(&format!("redis://:hunter2@127.0.0.1:{}?cluster=true", guarded.port)).await;
    assert!(matches!(error.kind(), Kind::Denied(_)), "{error:?}");
}

#[tokio::test]
async fn unreachable_server_is_unavailable() {
    let port = free_port();
    let error = failure(&format!("redis://:hunter2@127.0.0.1:{port}")).await;
    assert_eq!(*error.kind(), Kind::Unavailable);
    let error = failure(&format!("redis://:hunter2@127.0.0.1:{port}?cluster=true")).await;
    assert_eq!(*error.kind(), Kind::Unavailable);
}

#[tokio::test]
async fn tls_is_checked_against_the_authority() {
    let (tls, authority) = (required_env("ICHIDO_TEST_REDIS_TLS_URL"), required_env("ICHIDO_TEST_CA_FILE"));
    let namespace = TestNamespace::on(tls.clone());
    let ledger = Redis::connect(&format!("{}&ca_file={authority}", namespace.url())).await.unwrap();
    granted(&ledger, &key("secret")).await;
    let error = failure(&tls).await;
    assert!(matches!(error.kind(), Kind::Settings(text) if text.contains("ca_file")), "{error:?}");
    let error = failure(&format!("{tls}?ca_file=/nowhere")).await;
    assert!(matches!(error.kind(), Kind::Settings(text) if text.contains("/nowhere")), "{error:?}");
}

#[tokio::test]
async fn server_that_may_lose_claims_causes_warnings() {
    let forgetful = RedisServer::start(&["--maxmemory-policy", "allkeys-lru"]);
    let warnings = TestNamespace::on(forgetful.url()).ledger().await.check().await.unwrap().join("\n");
    assert!(warnings.contains("allkeys-lru") && warnings.contains("evict claims"), "{warnings}");
    assert!(warnings.contains("do not survive its restart"), "{warnings}");

    let durable = RedisServer::start(&["--appendonly", "yes"]);
    let ledger = TestNamespace::on(durable.url()).ledger().await;
    assert_eq!(ledger.check().await.unwrap(), Vec::<String>::new());
    assert_eq!(ledger.capabilities().survives.len(), 1);
}

#[tokio::test]
async fn a_replica_is_refused() {
    let primary = RedisServer::start(&[]);
    let replica = RedisServer::start(&["--replicaof", &format!("127.0.0.1 {}", primary.port)]);
    let ledger = TestNamespace::on(replica.url()).ledger().await;
    let error = ledger.check().await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Settings(text) if text.contains("replica")), "{error:?}");
    let error = ledger.claim(&request(&key("readonly"))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (&Kind::Unavailable, Effect::None), "{error:?}");
}
