//! Values under our names that this version did not write are neither read nor changed.

use ichido_core::mark::{self, Mark};
use ichido_core::{Claim, ClaimRequest, Key, Outcome, Settle};
use ichido_ledger::redis::Redis;
use ichido_ledger::{Backend, Effect, Error, Kind, Maintain, Query};
use ichido_testkit::ledger_server::unique;
use ichido_testkit::redis_server::RedisServer;
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use super::TestNamespace;
use crate::support::{claim, granted, key, mark_request, request};

/// A claim and a mark with foreign values.
struct Scene {
    /// A server of its own, so that a scan of its keys is short.
    _server: RedisServer,
    namespace: TestNamespace,
    ledger: Redis,
    client: MultiplexedConnection,
    key: Key,
    request: ClaimRequest,
    event: mark::Request,
}

impl Scene {
    async fn new() -> Self {
        let server = RedisServer::start(&[]);
        let (namespace, key) = (TestNamespace::on(server.url()), key("strange"));
        let (ledger, client) = (namespace.ledger().await, namespace.client().await);
        let (request, event) = (request(&key), mark_request(&unique()));
        Self { _server: server, namespace, ledger, client, key, request, event }
    }

    fn names(&self) -> [String; 2] {
        [self.namespace.claim(&self.key), self.namespace.mark(self.event.key.index())]
    }

    /// What the server holds, byte for byte.
    async fn dump(&mut self) -> Vec<Option<Vec<u8>>> {
        let mut held = Vec::new();
        for name in self.names() {
            held.push(redis::cmd("DUMP").arg(name).query_async(&mut self.client).await.unwrap());
        }
        held
    }

    /// Every call on the claim is refused, and it stays unchanged.
    async fn refusals(&mut self) -> Vec<Error> {
        let before = self.dump().await;
        let action = Settle::Complete(Outcome::kept("done"));
        let refusals = vec![
            self.ledger.claim(&self.request).await.unwrap_err(),
            self.ledger.settle(&self.key, self.request.token, &action).await.unwrap_err(),
            self.ledger.get(&self.key).await.unwrap_err(),
            self.ledger.list(&Query { limit: 10, ..Query::default() }).await.unwrap_err(),
            self.ledger.sweep(10).await.unwrap_err(),
        ];
        assert_eq!(self.dump().await, before);
        refusals
    }

    async fn mark_refusal(&mut self) -> Error {
        let before = self.dump().await;
        let error = self.ledger.mark(std::slice::from_ref(&self.event)).await.unwrap_err();
        assert_eq!(self.dump().await, before);
        error
    }
}

fn is_of_another_format(error: &Error) -> bool {
    matches!(error.kind(), Kind::Schema(text) if text.contains("another format") && text.contains("?prefix="))
}

#[tokio::test]
async fn hash_of_format_1_is_neither_read_nor_changed() {
    let mut scene = Scene::new().await;
    let (token, far) = (scene.request.token.to_string(), "99999999999999");
    let claim = [
        ("format", "1"),
        ("version", "1"),
        ("claimed_at", "1"),
        ("renewed_at", "1"),
        ("doubt_at", far),
        ("over_at", far),
        ("tenant", ""),
        ("route", ""),
        ("key", scene.key.text()),
        ("fingerprint", &"0".repeat(64)),
        ("nonce", &"0".repeat(32)),
        ("token", &token),
        ("attempt", "1"),
        ("holder", "process"),
        ("renewals", "0"),
        ("lease_ms", "30000"),
        ("retention_ms", "86400000"),
        ("metadata", "{}"),
        ("state", "running"),
    ];
    let mark = [
        ("format", "1"),
        ("marked_at", "1"),
        ("expires_at", far),
        ("key", scene.event.key.text()),
        ("nonce", &"0".repeat(32)),
        ("metadata", "{}"),
    ];
    let [claim_name, mark_name] = scene.names();
    let () = scene.client.hset_multiple(claim_name, &claim).await.unwrap();
    let () = scene.client.hset_multiple(mark_name, &mark).await.unwrap();
    let mut refusals = scene.refusals().await;
    refusals.push(scene.mark_refusal().await);
    assert!(refusals.iter().all(is_of_another_format), "{refusals:?}");
}

#[tokio::test]
async fn string_of_another_format_is_neither_read_nor_changed() {
    let mut scene = Scene::new().await;
    let token = scene.request.token;
    for value in ["", "1", "4", &format!("4{token}R{}{{}}", "0".repeat(134)), "theirs"] {
        for name in scene.names() {
            let () = scene.client.set(name, value).await.unwrap();
        }
        let mut refusals = scene.refusals().await;
        refusals.push(scene.mark_refusal().await);
        assert!(refusals.iter().all(is_of_another_format), "{value:?}: {refusals:?}");
    }
}

#[tokio::test]
async fn key_of_another_type_is_not_touched() {
    let mut scene = Scene::new().await;
    for name in scene.names() {
        let () = scene.client.rpush(name, "theirs").await.unwrap();
    }
    let mut refusals = scene.refusals().await;
    refusals.push(scene.mark_refusal().await);
    for error in refusals {
        assert!(matches!(error.kind(), Kind::Schema(text) if text.contains("not by ichido")), "{error:?}");
    }
}

/// An absent record would be granted, so damage must never look like one.
#[tokio::test]
async fn truncated_value_is_never_absent() {
    let mut scene = Scene::new().await;
    let actions =
        [None, Some(Settle::Doubt("a timeout".to_owned())), Some(Settle::Complete(Outcome::kept("ok")))];
    scene.ledger.mark(std::slice::from_ref(&scene.event)).await.unwrap();
    scene.event = mark_request(scene.event.key.text());
    let [claim_name, mark_name] = scene.names();
    for action in actions {
        let () = scene.client.del(&claim_name).await.unwrap();
        scene.request.token = granted(&scene.ledger, &scene.key).await.token;
        if let Some(action) = action {
            let _ = scene.ledger.settle(&scene.key, scene.request.token, &action).await.unwrap();
        }
        let whole: Vec<u8> = scene.client.get(&claim_name).await.unwrap();
        for cut in 0..whole.len() {
            let () = scene.client.set(&claim_name, &whole[..cut]).await.unwrap();
            for error in scene.refusals().await {
                assert!(is_unreadable(&error), "{cut}: {error:?}");
            }
        }
        let () = scene.client.set(&claim_name, [&whole[..], b"!"].concat()).await.unwrap();
        assert!(scene.refusals().await.iter().all(is_unreadable));
    }
    let whole: Vec<u8> = scene.client.get(&mark_name).await.unwrap();
    for cut in 0..whole.len() {
        let () = scene.client.set(&mark_name, &whole[..cut]).await.unwrap();
        let error = scene.mark_refusal().await;
        assert!(is_unreadable(&error), "{cut}: {error:?}");
    }
}

fn is_unreadable(error: &Error) -> bool {
    matches!(error.kind(), Kind::Corrupt(_) | Kind::Schema(_))
}

#[tokio::test]
async fn garbage_is_reported_as_corrupt() {
    let mut scene = Scene::new().await;
    let own = format!("2{}", scene.request.token);
    let values = [
        "2".to_owned(),
        "2".repeat(600),
        format!("2{}", "\u{7}".repeat(400)),
        format!("{own}R{}{{}}", " ".repeat(134)),
        format!("{own}R{}00000002{{}}", "9".repeat(126)),
        format!("{own}X{}00000002{{}}", "0".repeat(126)),
        format!("{own}R{}00000002{{}}", "0x000000001e5".repeat(10).split_at(126).0),
    ];
    for value in values {
        for name in scene.names() {
            let () = scene.client.set(name, &value).await.unwrap();
        }
        let claimed = scene.ledger.claim(&scene.request).await.unwrap_err();
        let action = Settle::Release;
        let settled = scene.ledger.settle(&scene.key, scene.request.token, &action).await.unwrap_err();
        let looked = scene.ledger.get(&scene.key).await.unwrap_err();
        let listed = scene.ledger.list(&Query { limit: 10, ..Query::default() }).await.unwrap_err();
        let marked = scene.mark_refusal().await;
        for error in [claimed, settled, looked, listed, marked] {
            assert!(matches!(error.kind(), Kind::Corrupt(_)), "{value:?}: {error:?}");
        }
    }
}

#[tokio::test]
async fn garbage_leaves_the_rest_of_its_batch_unknown() {
    let mut scene = Scene::new().await;
    let [_, name] = scene.names();
    let () = scene.client.set(name, "2".repeat(600)).await.unwrap();
    let whole = mark_request(&unique());
    let error = scene.ledger.mark(&[whole.clone(), scene.event.clone()]).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Corrupt(_)), "{error:?}");
    assert_eq!(error.effect(), Effect::Unknown, "{error:?}");
    let again = scene.ledger.mark(&[mark_request(whole.key.text())]).await.unwrap();
    assert!(matches!(again[..], [Mark::Seen { .. }]), "{again:?}");
}

/// The name identifies the claim, and so does the value: they must match.
#[tokio::test]
async fn claim_under_another_claims_name_is_refused() {
    let mut scene = Scene::new().await;
    let other = key("other");
    granted(&scene.ledger, &other).await;
    let value: Vec<u8> = scene.client.get(scene.namespace.claim(&other)).await.unwrap();
    let () = scene.client.set(scene.namespace.claim(&scene.key), value).await.unwrap();
    let error = scene.ledger.claim(&scene.request).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Corrupt(text) if text.contains("holds another claim")), "{error:?}");
    assert!(matches!(claim(&scene.ledger, &request(&other)).await, Claim::Held { .. }));
}
