//! A cluster of two nodes between which a slot moves.

use std::time::Duration;

use ichido_core::{Claim, Key, Outcome, Settle, Settled};
use ichido_ledger::redis::Redis;
use ichido_ledger::{Backend, Maintain, Query};
use ichido_testkit::free_port;
use ichido_testkit::redis_server::RedisServer;
use redis::aio::MultiplexedConnection;

use super::TestNamespace;
use crate::support::{claim, granted, key, redis_client, request};

struct Node {
    server: RedisServer,
    connection: MultiplexedConnection,
    id: String,
    bus: u16,
}

async fn node() -> Node {
    let bus = free_port();
    let port = bus.to_string();
    let settings =
        ["--cluster-enabled", "yes", "--cluster-port", &port, "--cluster-announce-ip", "127.0.0.1"];
    let server = RedisServer::start(&settings);
    let mut connection = redis_client(&server.url()).await;
    let id = ask(&mut connection, "CLUSTER MYID").await;
    Node { server, connection, id, bus }
}

impl Node {
    async fn tell(&mut self, command: &str) -> String {
        ask(&mut self.connection, command).await
    }
}

async fn ask(connection: &mut MultiplexedConnection, command: &str) -> String {
    let mut words = command.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    for word in words {
        command.arg(word);
    }
    let value: redis::Value = command.query_async(connection).await.unwrap();
    redis::from_redis_value(value).unwrap_or_default()
}

/// Two nodes; the first owns every slot but the last one.
async fn two_nodes() -> (Node, Node) {
    let (mut one, mut other) = (node().await, node().await);
    one.tell("CLUSTER ADDSLOTSRANGE 0 16382").await;
    other.tell("CLUSTER ADDSLOTS 16383").await;
    one.tell(&format!("CLUSTER MEET 127.0.0.1 {} {}", other.server.port, other.bus)).await;
    for node in [&mut one, &mut other] {
        for _ in 0..1_000 {
            let info = node.tell("CLUSTER INFO").await;
            if info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:2") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    (one, other)
}

async fn slot(node: &mut Node, namespace: &TestNamespace, key: &Key) -> u16 {
    let mut command = redis::cmd("CLUSTER");
    command.arg("KEYSLOT").arg(namespace.claim(key)).query_async(&mut node.connection).await.unwrap()
}

#[tokio::test]
async fn claims_follow_a_slot_that_moves() {
    let (mut one, mut other) = two_nodes().await;
    let namespace = TestNamespace::on(one.server.url());
    let ledger = Redis::connect(&format!("{}&cluster=true", namespace.url())).await.unwrap();

    // The slot is migrating: keys that are not here any more are at the other node.
    let moving = key("moving");
    let slot = slot(&mut one, &namespace, &moving).await;
    other.tell(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", one.id)).await;
    one.tell(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", other.id.as_str())).await;
    let token = granted(&ledger, &moving).await.token;
    assert!(matches!(claim(&ledger, &request(&moving)).await, Claim::Held { .. }));

    // It has moved, and the ledger's slot map is out of date.
    other.tell(&format!("CLUSTER SETSLOT {slot} NODE {}", other.id.as_str())).await;
    one.tell(&format!("CLUSTER SETSLOT {slot} NODE {}", other.id.as_str())).await;
    let action = Settle::Complete(Outcome::kept("done"));
    assert_eq!(ledger.settle(&moving, token, &action).await.unwrap(), Settled::Applied);
    assert_eq!(claim(&ledger, &request(&moving)).await, Claim::Done(Outcome::kept("done")));

    // Claims of both nodes are listed.
    let staying = key("staying");
    granted(&ledger, &staying).await;
    let mut query = Query { limit: 1, ..Query::default() };
    let mut listed = Vec::new();
    loop {
        let page = ledger.list(&query).await.unwrap();
        listed.extend(page.claims.into_iter().map(|claim| claim.key));
        query.cursor = page.cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    listed.sort_unstable();
    let mut expected = [moving.text(), staying.text()];
    expected.sort_unstable();
    assert_eq!(listed, expected);
    let warnings = ledger.check().await.unwrap();
    assert!(warnings.iter().any(|warning| warning.contains(other.id.as_str())), "{warnings:?}");
}
