//! Tables, clocks and requests for the tests.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use ichido_core::{
    Claim, ClaimRequest, Clock, Entropy, Fingerprint, Grant, Holder, InDoubtPolicy, Key, ManualClock,
    MarkKey, Metadata, Nonce, Scope, SystemEntropy, Timestamp, Token, mark,
};
use ichido_ledger::dynamodb::Dynamo;
use ichido_ledger::{Backend, Maintain};
use ichido_testkit::ledger_server::unique;
use ichido_testkit::required_env;
use ichido_testkit::tcp_proxy::TcpProxy;

pub(crate) const LEASE_MS: u64 = 30_000;
/// Far in the future, so that no server with the real time removes anything.
pub(crate) const START: Timestamp = Timestamp(4_000_000_000_250);

/// A server, and the name of a table for this test.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) table: String,
}

impl Server {
    pub(crate) fn of(variable: &str) -> Server {
        Server { url: required_env(variable), table: format!("ichido-test-{}", unique()) }
    }

    /// A ledger on the table, which is created if necessary.
    pub(crate) async fn ledger(&self, clock: &Arc<ManualClock>) -> Dynamo {
        let ledger = self.unprepared(clock).await;
        ledger.init().await.expect("a new table");
        ledger
    }

    /// A ledger on the table, which may not exist.
    pub(crate) async fn unprepared(&self, clock: &Arc<ManualClock>) -> Dynamo {
        self.at(&self.url, "", clock).await
    }

    /// A ledger that reaches the server through a proxy.
    pub(crate) async fn through(&self, proxy: &TcpProxy, clock: &Arc<ManualClock>) -> Dynamo {
        self.at(&format!("http://{}", proxy.address()), "", clock).await
    }

    pub(crate) async fn at(&self, endpoint: &str, more: &str, clock: &Arc<ManualClock>) -> Dynamo {
        let url = format!("dynamodb://{}?region=us-east-1&endpoint={endpoint}{more}", self.table);
        Dynamo::connect(&url, clock.clone() as Arc<dyn Clock>).await.expect("a valid URL")
    }

    pub(crate) fn proxy(&self) -> TcpProxy {
        let addr = self.url.strip_prefix("http://").expect("a plain address").trim_end_matches('/');
        TcpProxy::start(addr.replace("localhost", "127.0.0.1").parse::<SocketAddr>().expect("host and port"))
    }

    /// A client as other consumers use.
    pub(crate) async fn client(&self) -> Client {
        use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
        let http = aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring));
        let loader =
            aws_config::defaults(aws_config::BehaviorVersion::latest()).http_client(http.build_https());
        let loader = loader.region(aws_sdk_dynamodb::config::Region::new("us-east-1"));
        Client::new(&loader.endpoint_url(&self.url).load().await)
    }

    /// The item under a key, as stored in the table.
    pub(crate) async fn item(&self, event_key: &str) -> Option<HashMap<String, AttributeValue>> {
        let call = self.client().await.get_item().table_name(&self.table).consistent_read(true);
        call.key("event_key", s(event_key)).send().await.expect("an answer").item
    }

    /// Puts an item as another consumer would.
    pub(crate) async fn put(&self, attributes: &[(&str, AttributeValue)]) {
        let item = attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let call = self.client().await.put_item().table_name(&self.table);
        call.set_item(Some(item)).send().await.expect("the item is put");
    }
}

pub(crate) fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

pub(crate) fn n(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

pub(crate) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(START))
}

pub(crate) fn key(text: &str) -> Key {
    Key::new(Scope::new("tenant", "POST /orders"), text).unwrap()
}

pub(crate) fn event_key(key: &Key) -> String {
    format!("ichido#{}", key.index())
}

pub(crate) fn ask(text: &str) -> ClaimRequest {
    ClaimRequest {
        key: key(text),
        fingerprint: Fingerprint::of(["body"]),
        caller: None,
        nonce: Nonce::draw(&SystemEntropy),
        token: Token::from_bytes(SystemEntropy.draw()),
        lease_ms: LEASE_MS,
        retention_ms: 86_400_000,
        holder: Holder::Process,
        metadata: Metadata::default(),
        in_doubt: InDoubtPolicy::Reject,
    }
}

pub(crate) fn retry(text: &str, silent_ms: u64) -> ClaimRequest {
    ClaimRequest { in_doubt: InDoubtPolicy::Retry { silent_ms }, ..ask(text) }
}

pub(crate) fn event(text: &str) -> mark::Request {
    mark::Request {
        key: MarkKey::new(text).unwrap(),
        nonce: Nonce::draw(&SystemEntropy),
        retention_ms: 6 * 3_600_000,
        metadata: Metadata::default(),
    }
}

pub(crate) async fn granted(ledger: &Dynamo, request: &ClaimRequest) -> Grant {
    match ledger.claim(request).await.expect("an answer") {
        Claim::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

pub(crate) async fn held_ms(ledger: &Dynamo, request: &ClaimRequest) -> u64 {
    match ledger.claim(request).await.expect("an answer") {
        Claim::Held { retry_after_ms } => retry_after_ms,
        other => panic!("not held: {other:?}"),
    }
}

pub(crate) async fn is_in_doubt(ledger: &Dynamo, request: &ClaimRequest) -> bool {
    matches!(ledger.claim(request).await.expect("an answer"), Claim::InDoubt(_))
}
