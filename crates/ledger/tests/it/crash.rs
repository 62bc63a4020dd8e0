//! kill -9 at random moments.
//!
//! Everything that was acknowledged to a process before it was killed still holds. No granted claim is granted
//! again, and no recorded outcome is lost or torn. Claims that the process had not completed are in doubt.

#[path = "../worker/effects.rs"]
mod effects;
mod postgres;
mod worker;

use std::time::Duration;

use ichido_core::{Claim, DoubtReason};
use ichido_ledger::Backend;
use ichido_testkit::ledger_server::open;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use self::worker::{Acknowledged, Worker};

const ROUNDS: u32 = 6;

/// The seed of this run. Set `ICHIDO_TEST_SEED` to repeat one.
#[allow(clippy::print_stderr, reason = "a run that fails is repeated from its seed")]
fn rng() -> StdRng {
    let given = std::env::var("ICHIDO_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| u64::from(std::process::id()) ^ 0x1c41_d000);
    eprintln!("ICHIDO_TEST_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

/// Checks that everything acknowledged in all rounds still holds.
async fn check(
    ledger: &dyn Backend,
    acknowledged: &Acknowledged,
    is_expected_reason: impl Fn(&DoubtReason) -> bool,
) {
    for text in acknowledged.done() {
        let claim = ledger.claim(&effects::request(text, 60_000)).await.unwrap();
        assert_eq!(claim, Claim::Done(effects::outcome(text)), "{text} was done");
    }
    for text in acknowledged.unfinished() {
        let claim = ledger.claim(&effects::request(text, 60_000)).await.unwrap();
        if let Claim::InDoubt(doubt) = &claim {
            assert!(is_expected_reason(&doubt.reason), "{text}: {doubt:?}");
        } else {
            // It was completed, and the process was killed before it could report that.
            assert_eq!(claim, Claim::Done(effects::outcome(text)), "{text} was granted before");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_loses_nothing_on_a_file() {
    let mut rng = rng();
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file:{}", dir.path().join("ledger").display());
    let mut acknowledged = Acknowledged::default();
    for round in 0..ROUNDS {
        let mut worker = Worker::start(&url, &format!("r{round}"), 16, 3_600_000);
        worker.read_for(Duration::from_millis(rng.random_range(1..600)), &mut acknowledged).await;
        worker.kill(&mut acknowledged).await;
        let ledger = open(&url).await;
        check(&*ledger, &acknowledged, |reason| *reason == DoubtReason::HolderGone).await;
        ledger.close().await.unwrap();
    }
    assert!(acknowledged.done().count() > 100, "the workers hardly worked");
}
