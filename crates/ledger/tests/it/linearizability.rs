//! Random histories on every backend: some order of the operations must explain each of them.
//!
//! A failure prints the seed; `ICHIDO_SEED` replays it. The servers are real; `cargo xtask test` sets the
//! environment variables with their addresses. The connections of some clients break.

mod faulty_network;
mod planted_bugs;

use std::sync::Arc;
use std::time::Duration;

use ichido_core::{Entropy, SystemEntropy};
use ichido_ledger::conformance::history::{Bounds, Statistics, Workload, run};
use ichido_ledger::{Backend, Settings};
use ichido_testkit::ledger_server::open;

/// Histories per backend, and how many of them run concurrently.
const HISTORIES: u64 = 32;
const AT_ONCE: u64 = 8;

/// Short timeouts, so that a call with a lost reply is retried while the history goes on.
fn settings() -> Settings {
    Settings {
        timeout: Duration::from_millis(1_500),
        try_timeout: Duration::from_millis(250),
        backoff: Duration::from_millis(5),
        backoff_max: Duration::from_millis(50),
        ..Settings::default()
    }
}

/// The first seed, and how many consecutive seeds to run.
fn first_seed() -> (u64, u64) {
    match std::env::var("ICHIDO_SEED") {
        Ok(seed) => (seed.parse().expect("ICHIDO_SEED is a number"), 1),
        Err(_) => (random_seed(), HISTORIES),
    }
}

/// A random number for this run.
fn random_seed() -> u64 {
    let drawn = SystemEntropy.draw();
    u64::from(u32::from_be_bytes([drawn[0], drawn[1], drawn[2], drawn[3]]))
}

/// Runs and checks histories on the instances of one store.
#[allow(clippy::print_stdout, reason = "statistics for developers, shown with --nocapture")]
async fn explain_histories(instances: &[Arc<dyn Backend>], mark_granularity_ms: u64) {
    let bounds = Bounds::of(&instances[0].capabilities(), mark_granularity_ms);
    let (first, count) = first_seed();
    let mut statistics = Statistics::default();
    let seeds: Vec<u64> = (first..first + count).collect();
    for seeds in seeds.chunks(usize::try_from(AT_ONCE).unwrap()) {
        let workloads: Vec<Workload> = seeds.iter().map(|seed| Workload::draw(*seed)).collect();
        let settings = settings();
        let running = workloads.iter().map(|workload| run(workload, instances, &settings));
        let histories = futures_util::future::join_all(running).await;
        for (seed, history) in seeds.iter().zip(histories) {
            match history.check(&bounds) {
                Ok(checked) => statistics.add(checked),
                Err(story) => panic!("{story}replay it with ICHIDO_SEED={seed}"),
            }
        }
    }
    assert!(statistics.operations > 0 && statistics.states > 0, "{statistics:?}");
    assert!(statistics.undecided <= statistics.keys / 10, "too much was left undecided: {statistics:?}");
    println!("{}: {statistics:?}", instances[0].capabilities().backend);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_history_on_memory_has_an_order() {
    explain_histories(&[open("memory:").await], 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_history_on_a_file_has_an_order() {
    let dir = tempfile::tempdir().unwrap();
    let file = open(&format!("file:{}", dir.path().join("ledger").display())).await;
    explain_histories(&[file], 1).await;
}
