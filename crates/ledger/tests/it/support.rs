//! Requests for tests that call a backend without a handle.

pub(crate) mod differential;

use std::time::Duration;

use ichido_core::mark::{self, Mark};
use ichido_core::{
    Claim, ClaimRequest, Fingerprint, Grant, Holder, InDoubtPolicy, Key, MarkKey, Metadata, Nonce,
    SystemEntropy, Token,
};
use ichido_ledger::{Backend, Error, Kind};
use ichido_testkit::ledger_server::unique;
use ichido_testkit::wait;

pub(crate) const LEASE_MS: u64 = 60_000;
pub(crate) const RETENTION_MS: u64 = 3_600_000;

pub(crate) fn key(text: &str) -> Key {
    Key::unscoped(format!("{text}-{}", unique())).unwrap()
}

pub(crate) fn request(key: &Key) -> ClaimRequest {
    ClaimRequest {
        key: key.clone(),
        fingerprint: Fingerprint::of(["request"]),
        caller: None,
        nonce: Nonce::draw(&SystemEntropy),
        token: Token::draw(&SystemEntropy),
        lease_ms: LEASE_MS,
        retention_ms: RETENTION_MS,
        holder: Holder::Remote,
        metadata: Metadata::default(),
        in_doubt: InDoubtPolicy::Reject,
    }
}

pub(crate) fn mark_request(text: &str) -> mark::Request {
    mark::Request {
        key: MarkKey::new(text).unwrap(),
        nonce: Nonce::draw(&SystemEntropy),
        retention_ms: RETENTION_MS,
        metadata: Metadata::default(),
    }
}

/// Connects to a Redis server, and waits as long as a busy machine needs. By default, a command times out after 500 ms.
pub(crate) async fn redis_client(url: &str) -> redis::aio::MultiplexedConnection {
    let patient = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(wait::TIMEOUT))
        .set_response_timeout(Some(wait::TIMEOUT));
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection_with_config(&patient).await.unwrap()
}

/// Claims, and retries while the claim is contended.
pub(crate) async fn claim(ledger: &dyn Backend, request: &ClaimRequest) -> Claim {
    loop {
        match ledger.claim(request).await {
            Ok(answer) => return answer,
            Err(error) if *error.kind() == Kind::Contended => {
                tokio::time::sleep(Duration::from_millis(1)).await
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

pub(crate) async fn granted(ledger: &dyn Backend, key: &Key) -> Grant {
    grant(claim(ledger, &request(key)).await)
}

pub(crate) fn grant(answer: Claim) -> Grant {
    match answer {
        Claim::Granted(grant) => grant,
        Claim::Held { .. } | Claim::InDoubt(_) | Claim::Done(_) | Claim::Mismatch | Claim::CallerChanged => {
            panic!("{answer:?}")
        }
    }
}

/// How many of the marks are new.
pub(crate) fn count_new(marks: &[Mark]) -> usize {
    marks.iter().filter(|mark| **mark == Mark::New).count()
}

/// The error, its causes and their debug output in one text.
pub(crate) fn full_text(error: &Error) -> String {
    let mut text = format!("{error} {error:?}");
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(&format!(" {inner} {inner:?}"));
        cause = inner.source();
    }
    text
}
