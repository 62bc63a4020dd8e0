//! Stores, instances, a scriptable service, and clients.

mod client;
mod instance;
mod server;
mod store;
mod upstream;

use std::pin::Pin;
use std::time::Duration;

pub(crate) use ichido_testkit::faulty_backend::{Behavior, FaultyBackend};
pub(crate) use ichido_testkit::wait::{TIMEOUT, until};

pub(crate) use client::{Received, get, order, patch, post};
pub(crate) use instance::{Instance, Process, route, rules, short_timeouts};
pub(crate) use server::Server;
pub(crate) use store::Store;
pub(crate) use upstream::{AnyBody, Call, Cut, Gate, Reply, Upstream, body, chunks, text};

/// Runs each case on the embedded ledgers.
macro_rules! on_embedded_ledgers {
    ($($name:ident,)+) => {$(
        mod $name {
            use $crate::support::Store;
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn memory() { super::$name(Store::memory()).await; }
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn file() { super::$name(Store::file()).await; }
        }
    )+};
}

/// Runs each case on every kind of ledger concurrently, because the cases mostly wait.
macro_rules! on_every_ledger {
    ($($name:ident,)+) => {$(
        mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_every_ledger() {
                $crate::support::on_all_ledgers(|store| Box::pin(super::$name(store))).await;
            }
        }
    )+};
}

/// Runs a case on every kind of ledger, and reports those on which it failed.
pub(crate) async fn on_all_ledgers(case: fn(Store) -> Pin<Box<dyn Future<Output = ()> + Send>>) {
    let stores = [
        ("memory", Store::memory()),
        ("file", Store::file()),
        ("postgres", Store::postgres().await),
        ("redis", Store::redis().await),
        ("dynamodb", Store::dynamodb().await),
    ];
    let cases = stores.map(|(name, store)| (name, tokio::spawn(case(store))));
    let mut failed = Vec::new();
    for (name, case) in cases {
        if case.await.is_err() {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "failed on {}; see above for the reasons", failed.join(", "));
}

pub(crate) use {on_embedded_ledgers, on_every_ledger};

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
