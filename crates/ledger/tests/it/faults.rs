//! A failing network between a handle and a real server, as callers see it.
//!
//! The tests of each backend check single calls; these use the handle, as programs do.

mod outages;
mod renewal;
mod replies;
mod throttling;

use std::time::Duration;

use ichido_core::{Claim, ClaimRequest, Grant, Key, MarkKey, Outcome, Settled};
use ichido_ledger::{Ledger, Settings};
use ichido_testkit::ledger_server::{LedgerServer, unique};
use ichido_testkit::tcp_proxy::TcpProxy;

/// Runs each test on each server.
macro_rules! on_each_server {
    ($($module:ident :: $test:ident,)+) => {
        on_each_server!(@on postgres, LedgerServer::postgres(); $($module::$test,)+);
        on_each_server!(@on redis, LedgerServer::redis(); $($module::$test,)+);
        on_each_server!(@on dynoxide, LedgerServer::dynamodb("ICHIDO_TEST_DYNAMODB_URL"); $($module::$test,)+);
        on_each_server!(
            @on amazons_local, LedgerServer::dynamodb("ICHIDO_TEST_DYNAMODB_LOCAL_URL"); $($module::$test,)+
        );
    };
    (@on $server:ident, $open:expr; $($module:ident :: $test:ident,)+) => {
        mod $server {
            use ichido_testkit::ledger_server::LedgerServer;
            $(#[tokio::test]
            async fn $test() {
                super::$module::$test(&$open.await).await;
            })+
        }
    };
}

on_each_server! {
    replies::owner_of_a_lost_grant_gets_it_again,
    replies::event_with_a_lost_reply_is_still_new,
    replies::completion_with_a_lost_reply_is_recorded_once,
    replies::release_with_a_lost_reply_was_applied,
    replies::lost_request_is_retried,
    renewal::lease_survives_one_period_without_renewal,
    outages::unreachable_server_is_an_outage_within_the_deadline,
    outages::stalled_server_is_an_outage_within_the_deadline,
}

/// A handle through a proxy, whose connection is open and whose statements are known to the server.
async fn warm(server: &LedgerServer, settings: Settings) -> (TcpProxy, Ledger) {
    let proxy = server.proxy();
    let ledger = server.through(&proxy, settings).await;
    let (key, other) = (key(), key());
    let grant = granted(&ledger, &key).await;
    assert_eq!(ledger.renew(&key, grant.token, 1_000).await.unwrap(), Settled::Applied);
    assert_eq!(ledger.complete(&key, grant.token, outcome("warm")).await.unwrap(), Settled::Applied);
    let grant = granted(&ledger, &other).await;
    assert_eq!(ledger.release(&other, grant.token).await.unwrap(), Settled::Applied);
    ledger.mark(&[ledger.mark_request(event())]).await.unwrap();
    (proxy, ledger)
}

/// Short timeouts, for tests that wait for them.
fn short_timeouts() -> Settings {
    Settings {
        timeout: Duration::from_secs(1),
        try_timeout: Duration::from_millis(400),
        ..Settings::default()
    }
}

fn key() -> Key {
    Key::unscoped(format!("fault-{}", unique())).unwrap()
}

fn event() -> MarkKey {
    MarkKey::new(format!("fault-{}", unique())).unwrap()
}

fn outcome(text: &'static str) -> Outcome {
    Outcome::kept(text)
}

async fn claim(ledger: &Ledger, request: &ClaimRequest) -> Claim {
    ledger.claim(request).await.unwrap().claim
}

async fn granted(ledger: &Ledger, key: &Key) -> Grant {
    let claim = claim(ledger, &ledger.request(key.clone())).await;
    let Claim::Granted(grant) = claim else { panic!("expected a grant, got {claim:?}") };
    grant
}
