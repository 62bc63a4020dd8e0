//! Pages of other origins can read the gateway's responses where a route allows it.

use ichido_testkit::http_client::{Response, send};

use super::start;

const SETTINGS: &str = "[[gateway.routes]]\nmatch = \"POST /orders\"\n\
    cors = [\"https://app.example\", \"https://admin.example\"]\n[[gateway.routes]]\n";

#[test]
fn problems_and_replays_are_readable_by_the_origins_of_their_route() {
    let (_dir, mut orders, gateway) = start(SETTINGS);
    let post = |path: &str, origin: &str, key: Option<&str>| {
        let key = key.map(|key| ("Idempotency-Key", key));
        let headers: Vec<_> = [("Origin", origin)].into_iter().chain(key).collect();
        send(gateway.address, "POST", path, &headers, b"{}")
    };
    let readable_by = |answer: &Response| {
        let exposed = answer.header("access-control-expose-headers");
        let origin = answer.header("access-control-allow-origin").map(ToOwned::to_owned);
        assert_eq!(exposed.is_some_and(|list| list.contains("idempotency-replayed")), origin.is_some());
        origin
    };
    let missing = post("/orders", "https://app.example", None);
    assert_eq!((missing.status, missing.problem().as_str()), (400, "key-missing"));
    assert_eq!(readable_by(&missing).as_deref(), Some("https://app.example"));
    assert_eq!(missing.header("vary"), Some("origin"));
    assert_eq!(missing.header("access-control-allow-credentials"), Some("true"));

    for (origin, is_replay) in [("https://app.example", false), ("https://admin.example", true)] {
        let answer = post("/orders", origin, Some("\"k\""));
        assert_eq!((answer.status, answer.is_replay()), (201, is_replay));
        assert_eq!(readable_by(&answer).as_deref(), Some(origin), "a replay allows the origin of the retry");
    }
    for (path, origin) in [("/orders", "https://evil.example"), ("/payments", "https://app.example")] {
        assert_eq!(readable_by(&post(path, origin, None)), None, "{origin} {path}");
    }
    orders.process.kill();
    let lost = post("/orders", "https://app.example", Some("\"other\""));
    assert_eq!((lost.problem().as_str(), readable_by(&lost).is_some()), ("upstream-unreachable", true));
}
