//! kill -9, at moments that chance chooses.
//!
//! Whatever a process was told before it died holds: no claim that was granted is granted again, no outcome that was
//! taken is lost or torn, and what the dead process had begun is in doubt.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what is unexpected fails the test")]

#[path = "../support/effects.rs"]
mod effects;
mod postgres;
mod server;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use ichido_core::{Claim, DoubtReason, SystemClock};
use ichido_ledger::{Backend, OpenOptions, open_backend};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use worker::{Told, Worker};

const ROUNDS: u32 = 6;

/// The seed of this run: `ICHIDO_TEST_SEED` to repeat one.
#[allow(clippy::print_stderr, reason = "a run that fails is repeated from its seed")]
fn chance() -> StdRng {
    let given = std::env::var("ICHIDO_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| u64::from(std::process::id()) ^ 0x1c41_d000);
    eprintln!("ICHIDO_TEST_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

async fn open(url: &str) -> Arc<dyn Backend> {
    let options = OpenOptions { clock: Arc::new(SystemClock::default()), admin: None };
    open_backend(url, &options).await.expect("the ledger opens after the crash")
}

/// Everything that was told in all rounds still holds.
async fn check(ledger: &dyn Backend, told: &Told, is_gone: impl Fn(&DoubtReason) -> bool) {
    for text in told.done() {
        let claim = ledger.claim(&effects::request(text, 60_000)).await.unwrap();
        assert_eq!(claim, Claim::Done(effects::outcome(text)), "{text} was done");
    }
    for text in told.begun() {
        let claim = ledger.claim(&effects::request(text, 60_000)).await.unwrap();
        if let Claim::InDoubt(doubt) = &claim {
            assert!(is_gone(&doubt.reason), "{text}: {doubt:?}");
        } else {
            // It was completed, and the process died before it could say so.
            assert_eq!(claim, Claim::Done(effects::outcome(text)), "{text} was granted before");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_loses_nothing_on_a_file() {
    let mut chance = chance();
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file:{}", dir.path().join("ledger").display());
    let mut told = Told::default();
    for round in 0..ROUNDS {
        let mut worker = Worker::start(&url, &format!("r{round}"), 16, 3_600_000);
        worker.listen_for(Duration::from_millis(chance.random_range(1..600)), &mut told).await;
        worker.kill(&mut told).await;
        let ledger = open(&url).await;
        check(&*ledger, &told, |reason| *reason == DoubtReason::HolderGone).await;
        ledger.close().await.unwrap();
    }
    assert!(told.done().count() > 100, "the workers hardly worked");
}
