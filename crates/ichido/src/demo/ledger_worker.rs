//! The child process that the ledger scenario kills: it holds the ledger, and its workers race.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use ichido_core::{Claim, Entropy, Key, Outcome, Settled, SystemEntropy};
use ichido_ledger::{Ledger, Settings};
use tokio::task::JoinSet;

use crate::args::DemoWorkerArgs;
use ichido_serve::Failure;

/// The log of effects, in the demo's directory.
pub(super) const EFFECTS: &str = "effects.log";
/// Calls for each operation in one run of the process.
pub(super) const CALLS_PER_OPERATION: u32 = 5;
/// The longest random pause before and after an effect.
const PAUSE_MAX_MS: u64 = 5;

pub(super) fn operation_name(number: u32) -> String {
    format!("order-{number:05}")
}

pub(super) async fn open_ledger(dir: &Path) -> Result<Ledger, Failure> {
    let url = format!("file:{}", dir.join("ledger").display());
    Ok(ichido_ledger::open(&url, Settings::default()).await?)
}

pub(crate) async fn run(args: &DemoWorkerArgs) -> Result<(), Failure> {
    let ledger = open_ledger(&args.dir).await?;
    let effects = std::fs::OpenOptions::new().create(true).append(true).open(args.dir.join(EFFECTS));
    let effects = effects.map_err(|error| Failure::internal(format!("cannot open {EFFECTS}: {error}")))?;
    let calls = shuffled((0..args.keys * CALLS_PER_OPERATION).map(|call| call % args.keys).collect());
    let race = Arc::new(Race {
        calls,
        next: AtomicUsize::new(0),
        granted: AtomicU32::new(0),
        hang_after: args.hang_after.unwrap_or(u32::MAX),
        effects,
    });
    let mut workers = JoinSet::new();
    for _ in 0..args.workers {
        workers.spawn(work(ledger.clone(), race.clone()));
    }
    for worker in workers.join_all().await {
        worker?;
    }
    Ok(ledger.close().await?)
}

/// What the workers share.
struct Race {
    /// The number of an operation for each call, in the order of the calls.
    calls: Vec<u32>,
    next: AtomicUsize,
    granted: AtomicU32,
    hang_after: u32,
    effects: std::fs::File,
}

/// Takes calls until none are left, and reports the result of each to the parent.
async fn work(ledger: Ledger, race: Arc<Race>) -> Result<(), Failure> {
    while let Some(number) = race.calls.get(race.next.fetch_add(1, Ordering::Relaxed)) {
        let key = Key::unscoped(operation_name(*number))?;
        match ledger.claim(&ledger.request(key.clone())).await?.claim {
            Claim::Granted(grant) => {
                let hangs = race.granted.fetch_add(1, Ordering::Relaxed) >= race.hang_after;
                pause().await;
                // Half of the operations hang before their effect, the others after it.
                if hangs && number.is_multiple_of(2) {
                    return hang(&key).await;
                }
                perform_effect(&race.effects, key.text())?;
                if hangs {
                    return hang(&key).await;
                }
                pause().await;
                if ledger.complete(&key, grant.token, Outcome::kept("shipped")).await? == Settled::Applied {
                    report(&format!("done {}", key.text()))?;
                }
            }
            Claim::Held { .. }
            | Claim::InDoubt(_)
            | Claim::Done(_)
            | Claim::Mismatch
            | Claim::CallerChanged => {
                report(&format!("duplicate {}", key.text()))?;
            }
        }
    }
    Ok(())
}

/// Reports that an operation is running and never finishes it: the process is about to be killed.
async fn hang(key: &Key) -> Result<(), Failure> {
    report(&format!("running {}", key.text()))?;
    std::future::pending().await
}

/// Appends a line to the log and syncs it: only then has the effect happened.
fn perform_effect(mut effects: &std::fs::File, name: &str) -> Result<(), Failure> {
    let written = effects.write_all(format!("{name}\n").as_bytes()).and_then(|()| effects.sync_data());
    written.map_err(|error| Failure::internal(format!("cannot write {EFFECTS}: {error}")))
}

/// Prints a line for the parent. Fails if the parent is gone, so that this process ends too.
fn report(line: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| Failure::internal(error.to_string()))
}

async fn pause() {
    let random = u64::from(SystemEntropy.draw()[0]);
    tokio::time::sleep(Duration::from_millis(random * PAUSE_MAX_MS / 255)).await;
}

/// A Fisher-Yates shuffle.
fn shuffled(mut calls: Vec<u32>) -> Vec<u32> {
    for last in (1..calls.len()).rev() {
        let bytes = SystemEntropy.draw();
        let random = u64::from_le_bytes([
            bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
        ]);
        let other = usize::try_from(random % (last as u64 + 1)).unwrap_or_default();
        calls.swap(last, other);
    }
    calls
}
