//! What the tests stand on: stores, instances, a scriptable service, clients.

mod client;
mod clock;
mod faulty_backend;
mod instance;
mod server;
mod store;
mod upstream;

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, sleep};

pub(crate) use client::{Got, get, order, patch, post};
pub(crate) use clock::Jumping;
pub(crate) use faulty_backend::{Faulty, Way};
pub(crate) use instance::{Instance, Process, quick, route, rules};
pub(crate) use server::Server;
pub(crate) use store::Store;
pub(crate) use upstream::{AnyBody, Called, Cut, Gate, Reply, Upstream, body, pieces, text};

/// Runs each case on the ledgers that live in one process.
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

/// Runs each case on every kind of ledger, side by side: they wait more than they work.
macro_rules! on_every_ledger {
    ($($name:ident,)+) => {$(
        mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_every_ledger() {
                $crate::support::everywhere(|store| Box::pin(super::$name(store))).await;
            }
        }
    )+};
}

/// Runs a case on every kind of ledger, and tells on which it failed.
pub(crate) async fn everywhere(case: fn(Store) -> Pin<Box<dyn Future<Output = ()> + Send>>) {
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
    assert!(failed.is_empty(), "failed on {}; each said why above", failed.join(", "));
}

pub(crate) use {on_embedded_ledgers, on_every_ledger};

/// A loaded machine is slow; a broken layer never gets there.
pub(crate) const BOUND: Duration = Duration::from_secs(120);

/// Waits until something holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    let deadline = Instant::now() + BOUND;
    while !holds().await {
        assert!(Instant::now() < deadline, "it never came true that {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
