//! Redis is flushed while a gateway runs: it reports the loss and refuses keyed requests until an operator runs
//! `ichido ledger init`.

use ichido_testkit::http_client::{Response, get, send};
use ichido_testkit::orders::Orders;
use ichido_testkit::redis_server::{DURABLE, RedisServer};
use ichido_testkit::wait::eventually;

use crate::support::Gateway;

fn order(gateway: &Gateway, key: &str) -> Response {
    send(gateway.address, "POST", "/orders", &[("Idempotency-Key", key)], b"{}")
}

fn counts(gateway: &Gateway, line: &str) -> bool {
    get(gateway.admin, "/metrics").text().lines().any(|found| found == line)
}

#[test]
fn a_flushed_redis_is_an_outage_until_ledger_init() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let redis = RedisServer::start(DURABLE);
    let url = redis.url();
    let gateway =
        Gateway::start(dir.path(), orders.address, &url, "[[gateway.routes]]\noutage = \"closed\"\n");
    assert_eq!(order(&gateway, "\"before\"").status, 201);
    assert!(counts(&gateway, "ichido_ledger_lost{backend=\"redis\"} 0"));

    assert_eq!(redis.command("FLUSHALL").as_deref(), Some("+OK"));
    let ready = eventually("not ready", || {
        let ready = get(gateway.admin, "/readyz");
        (ready.status == 503).then_some(ready)
    });
    assert!(ready.text().contains("lost data") && ready.text().contains("ichido ledger init"), "{ready:?}");
    // Without the ledger nobody knows that this is a retry, so it does not run.
    let refused = order(&gateway, "\"before\"");
    assert_eq!((refused.status, refused.problem().as_str()), (503, "ledger-unavailable"));
    assert_eq!(orders.effects().len(), 1);
    for line in ["ichido_ledger_lost_total{backend=\"redis\"} 1", "ichido_ledger_lost{backend=\"redis\"} 1"] {
        assert!(counts(&gateway, line), "{line}");
    }

    crate::ok(dir.path(), &["ledger", "init", "--ledger", &url]);
    eventually("ready again", || (get(gateway.admin, "/readyz").status == 200).then_some(()));
    assert_eq!(order(&gateway, "\"after\"").status, 201);
    assert!(counts(&gateway, "ichido_ledger_lost{backend=\"redis\"} 0"));
}
