//! Redis is flushed while a gateway runs: it reports the loss and refuses keyed requests until an operator runs
//! `ichido ledger init`.

use std::net::TcpListener;

use super::journal::Redis;
use crate::support::http::{Response, get, send};
use crate::support::{Gateway, Orders, eventually};

fn order(gateway: &Gateway, key: &str) -> Response {
    send(gateway.address, "POST", "/orders", &[("Idempotency-Key", key)], b"{}")
}

fn counts(gateway: &Gateway, line: &str) -> bool {
    get(gateway.admin, "/metrics").text().lines().any(|found| found == line)
}

fn flush(redis: &Redis) {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", redis.port)).unwrap();
    stream.write_all(b"FLUSHALL\r\n").unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+OK\r\n");
}

#[test]
fn a_flushed_redis_is_an_outage_until_ledger_init() {
    let dir = tempfile::tempdir().unwrap();
    let orders = Orders::start(dir.path());
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let redis = Redis::start(dir.path(), port);
    let url = redis.url();
    let gateway =
        Gateway::start(dir.path(), orders.address, &url, "[[gateway.routes]]\noutage = \"closed\"\n");
    assert_eq!(order(&gateway, "\"before\"").status, 201);
    assert!(counts(&gateway, "ichido_ledger_lost{backend=\"redis\"} 0"));

    flush(&redis);
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
