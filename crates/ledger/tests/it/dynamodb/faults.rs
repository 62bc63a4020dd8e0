//! Lost replies, throttling and outages, injected by a proxy.

use ichido_core::mark::Mark;
use ichido_core::{Claim, Outcome, Settle, Settled, error_chain};
use ichido_ledger::{Backend, Effect, Kind, Maintain};
use ichido_testkit::tcp_proxy::Fault;

use super::support::{LEASE_MS, Server, ask, clock, event, granted, held_ms, key, retry};

fn answer(status: u16, body: &str) -> Fault {
    Fault::Answer { to: "DynamoDB_20120810", times: 1, status, body: body.to_owned() }
}

fn refusal(code: &str) -> String {
    format!("{{\"__type\":\"com.amazonaws.dynamodb.v20120810#{code}\",\"message\":\"injected\"}}")
}

/// A refused write returns the record, so that a repeat is not billed for a read. DynamoDB Local leaves the record out.
#[tokio::test]
async fn a_claim_and_a_repeat_are_one_call_each() {
    let server = Server::of("ICHIDO_TEST_DYNAMODB_URL");
    server.ledger(&clock()).await;
    let proxy = server.proxy();
    let ledger = server.through(&proxy, &clock()).await;
    let grant = granted(&ledger, &ask("k1")).await;
    let after_claim = proxy.posts();
    held_ms(&ledger, &ask("k1")).await;
    let after_repeat = proxy.posts();
    let done = Settle::Complete(Outcome::kept("done"));
    assert_eq!(ledger.settle(&key("k1"), grant.token, &done).await.unwrap(), Settled::Applied);
    let after_completion = proxy.posts();
    assert_eq!(ledger.claim(&ask("k1")).await.unwrap(), Claim::Done(Outcome::kept("done")));
    let calls = [after_claim, after_repeat - after_claim, after_completion - after_repeat];
    assert_eq!((calls, proxy.posts() - after_completion), ([1, 1, 1], 1));
}

/// Without a nonce, an owner whose put was applied but whose reply was lost would be told "duplicate".
pub(crate) async fn lost_reply_makes_no_duplicate_of_a_mark(server: Server) {
    server.ledger(&clock()).await;
    let proxy = server.proxy();
    let ledger = server.through(&proxy, &clock()).await;
    let request = event("Ev1");
    proxy.set(Fault::LoseReply { to: "PutItem", times: 1 });
    let error = ledger.mark(std::slice::from_ref(&request)).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (&Kind::Unavailable, Effect::Unknown),
        "{}",
        error_chain(&error)
    );
    assert!(server.item("Ev1").await.is_some(), "it was applied");
    assert_eq!(proxy.faults(), 1, "the client does not retry by itself");
    assert_eq!(ledger.mark(std::slice::from_ref(&request)).await.unwrap(), [Mark::New]);
    assert!(matches!(ledger.mark(&[event("Ev1")]).await.unwrap()[..], [Mark::Seen { .. }]));
}

pub(crate) async fn lost_reply_makes_no_duplicate_of_a_claim(server: Server) {
    server.ledger(&clock()).await;
    let proxy = server.proxy();
    let ledger = server.through(&proxy, &clock()).await;
    let request = ask("k1");
    proxy.set(Fault::LoseReply { to: "PutItem", times: 1 });
    let error = ledger.claim(&request).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.effect()),
        (&Kind::Unavailable, Effect::Unknown),
        "{}",
        error_chain(&error)
    );
    let grant = granted(&ledger, &request).await;
    assert_eq!((grant.token, grant.attempt), (request.token, 1));
    held_ms(&ledger, &ask("k1")).await;

    proxy.set(Fault::LoseRequest { to: "PutItem", times: 1 });
    let other = ask("k2");
    assert_eq!(ledger.claim(&other).await.unwrap_err().effect(), Effect::Unknown);
    assert_eq!(granted(&ledger, &other).await.token, other.token);
}

pub(crate) async fn lost_reply_of_a_takeover_and_a_completion(server: Server) {
    let clock = clock();
    server.ledger(&clock).await;
    let proxy = server.proxy();
    let ledger = server.through(&proxy, &clock).await;
    granted(&ledger, &ask("k1")).await;
    clock.advance(LEASE_MS);
    let takeover = retry("k1", 0);
    // The first put finds the old claim; the second, with the old token in its condition, takes over.
    proxy.set(Fault::LoseReply { to: "ichido_token = :token", times: 1 });
    assert_eq!(ledger.claim(&takeover).await.unwrap_err().effect(), Effect::Unknown);
    let grant = granted(&ledger, &takeover).await;
    assert_eq!((grant.token, grant.attempt), (takeover.token, 2));

    let complete = |text: &'static str| Settle::Complete(Outcome::kept(text));
    proxy.set(Fault::LoseReply { to: "UpdateItem", times: 1 });
    assert_eq!(
        ledger.settle(&key("k1"), grant.token, &complete("first")).await.unwrap_err().effect(),
        Effect::Unknown
    );
    assert_eq!(ledger.settle(&key("k1"), grant.token, &complete("again")).await.unwrap(), Settled::Applied);
    assert_eq!(ledger.claim(&ask("k1")).await.unwrap(), Claim::Done(Outcome::kept("first")));
}

pub(crate) async fn throttling_is_distinguished_from_outages(server: Server) {
    server.ledger(&clock()).await;
    let proxy = server.proxy();
    let ledger = server.through(&proxy, &clock()).await;
    let denied =
        Kind::Denied(format!("DynamoDB denied access to table {}: AccessDeniedException", server.table));
    let cases = [
        (400, "ProvisionedThroughputExceededException", Kind::Throttled, Effect::None),
        (400, "ThrottlingException", Kind::Throttled, Effect::None),
        (400, "RequestLimitExceeded", Kind::Throttled, Effect::None),
        (400, "TransactionConflictException", Kind::Contended, Effect::None),
        (400, "AccessDeniedException", denied, Effect::None),
        (500, "InternalServerError", Kind::Unavailable, Effect::Unknown),
        (503, "ServiceUnavailable", Kind::Unavailable, Effect::Unknown),
    ];
    for (status, code, kind, effect) in cases {
        let before = proxy.faults();
        proxy.set(answer(status, &refusal(code)));
        let error = ledger.claim(&ask(code)).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (&kind, effect), "{code}: {}", error_chain(&error));
        assert!(error_chain(&error).contains(code), "{}", error_chain(&error));
        assert_eq!(proxy.faults() - before, 1, "asked once");
        granted(&ledger, &ask(code)).await;
    }
}

pub(crate) async fn refused_connection_has_no_effect(server: Server) {
    server.ledger(&clock()).await;
    let proxy = server.proxy();
    let ledger = server.through(&proxy, &clock()).await;
    granted(&ledger, &ask("k1")).await;
    proxy.set(Fault::Refuse);
    // The pooled connection is cut during the first request; the next one is refused.
    let _ = ledger.claim(&ask("k2")).await.unwrap_err();
    let error = ledger.claim(&ask("k3")).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (&Kind::Unavailable, Effect::None), "{}", error_chain(&error));
    assert_eq!(ledger.check().await.unwrap_err().kind(), &Kind::Unavailable);
    proxy.set(Fault::None);
    granted(&ledger, &ask("k3")).await;
}

pub(crate) async fn item_gone_when_read_back_is_contended(server: Server) {
    server.ledger(&clock()).await;
    let proxy = server.proxy();
    let ledger = server.through(&proxy, &clock()).await;
    let vanished = Fault::Answer {
        to: "PutItem",
        times: 2,
        status: 400,
        body: refusal("ConditionalCheckFailedException"),
    };
    proxy.set(vanished);
    let errors =
        [ledger.claim(&ask("k1")).await.unwrap_err(), ledger.mark(&[event("Ev1")]).await.unwrap_err()];
    for error in errors {
        assert_eq!(
            (error.kind(), error.effect()),
            (&Kind::Contended, Effect::None),
            "{}",
            error_chain(&error)
        );
    }
    granted(&ledger, &ask("k1")).await;
    assert_eq!(ledger.mark(&[event("Ev1")]).await.unwrap(), [Mark::New]);
}

/// A release that was refused had no effect, even if the reason cannot be read.
pub(crate) async fn failed_read_changed_nothing(server: Server) {
    server.ledger(&clock()).await;
    let proxy = server.proxy();
    let ledger = server.through(&proxy, &clock()).await;
    proxy.set(Fault::LoseReply { to: "GetItem", times: 1 });
    let error = ledger.settle(&key("k1"), ask("k1").token, &Settle::Release).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (&Kind::Unavailable, Effect::None), "{}", error_chain(&error));
    assert_eq!(proxy.faults(), 1);
}

/// The server's certificate is not trusted: that is an outage, without falling back to plain text.
pub(crate) async fn https_endpoint_uses_tls(server: Server) {
    server.ledger(&clock()).await;
    let endpoint = server.url.replace("http://", "https://");
    let error = server.at(&endpoint, "", &clock()).await.claim(&ask("k1")).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::Unavailable, "{}", error_chain(&error));
    granted(&server.unprepared(&clock()).await, &ask("k1")).await;
}

/// A response may contain an item with its token, which must not appear in an error.
pub(crate) async fn responses_are_not_echoed(server: Server) {
    server.ledger(&clock()).await;
    let proxy = server.proxy();
    let ledger = server.through(&proxy, &clock()).await;
    let bodies = [
        (200, "hunter2 is no JSON".to_owned()),
        (500, "{\"Item\":{\"ichido_token\":{\"S\":\"hunter2\"}}}".to_owned()),
        (
            400,
            "{\"__type\":\"ThrottlingException\",\"Item\":{\"ichido_token\":{\"S\":\"hunter2\"}}}".to_owned(),
        ),
    ];
    for (status, body) in bodies {
        proxy.set(answer(status, &body));
        let error = ledger.claim(&ask("k1")).await.unwrap_err();
        assert!(error.is_outage(), "{}", error_chain(&error));
        let shown = format!("{} {error:?} {ledger:?}", error_chain(&error));
        assert!(!shown.contains("hunter2"), "{shown}");
        let credentials = std::env::var("AWS_SECRET_ACCESS_KEY").unwrap_or_default();
        assert!(credentials.len() < 8 || !shown.contains(&credentials));
    }
}
