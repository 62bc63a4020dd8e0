//! The process of the demo that is killed: it holds the ledger, and its workers race.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use ichido_core::{Claim, Entropy, Key, Outcome, Settled, SystemEntropy};
use ichido_ledger::{Ledger, Settings};
use tokio::task::JoinSet;

use crate::args::WorkerArgs;
use ichido_serve::Failure;

/// The log of effects, beside the ledger.
pub(super) const EFFECTS: &str = "effects.log";
/// How often each operation is asked for in one round.
const ASKED: u32 = 5;

pub(super) fn key_text(number: u32) -> String {
    format!("order-{number:05}")
}

pub(super) async fn open(dir: &Path) -> Result<Ledger, Failure> {
    let url = format!("file:{}", dir.join("ledger").display());
    Ok(ichido_ledger::open(&url, Settings::default()).await?)
}

pub(crate) async fn run(args: &WorkerArgs) -> Result<(), Failure> {
    let ledger = open(&args.dir).await?;
    let effects = std::fs::OpenOptions::new().create(true).append(true).open(args.dir.join(EFFECTS));
    let effects = effects.map_err(|error| Failure::internal(format!("{EFFECTS}: {error}")))?;
    let calls = shuffled((0..args.keys * ASKED).map(|call| call % args.keys).collect());
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
    /// Numbers of operations, in the order in which they are asked for.
    calls: Vec<u32>,
    next: AtomicUsize,
    granted: AtomicU32,
    hang_after: u32,
    effects: std::fs::File,
}

/// Takes calls off the list until there are none, and acknowledges each.
async fn work(ledger: Ledger, race: Arc<Race>) -> Result<(), Failure> {
    while let Some(number) = race.calls.get(race.next.fetch_add(1, Ordering::Relaxed)) {
        let key = Key::unscoped(key_text(*number))?;
        match ledger.claim(&ledger.request(key.clone())).await?.claim {
            Claim::Granted(grant) => {
                let hangs = race.granted.fetch_add(1, Ordering::Relaxed) >= race.hang_after;
                pause(5).await;
                if hangs && number.is_multiple_of(2) {
                    return hang(&key).await;
                }
                happen(&race.effects, key.text())?;
                if hangs {
                    return hang(&key).await;
                }
                pause(5).await;
                if ledger.complete(&key, grant.token, Outcome::kept("shipped")).await? == Settled::Applied {
                    acknowledge(&format!("done {}", key.text()))?;
                }
            }
            Claim::Held { .. }
            | Claim::InDoubt(_)
            | Claim::Done(_)
            | Claim::Mismatch
            | Claim::CallerChanged => {
                acknowledge(&format!("repeat {}", key.text()))?;
            }
        }
    }
    Ok(())
}

/// Reports that an operation is running, and never finishes it: the process is about to be killed.
async fn hang(key: &Key) -> Result<(), Failure> {
    acknowledge(&format!("running {}", key.text()))?;
    std::future::pending().await
}

/// The effect: a line in the log, on disk before it counts as happened.
fn happen(mut effects: &std::fs::File, key: &str) -> Result<(), Failure> {
    let written = effects.write_all(format!("{key}\n").as_bytes()).and_then(|()| effects.sync_data());
    written.map_err(|error| Failure::internal(format!("{EFFECTS}: {error}")))
}

/// Tells the parent; a parent that is gone is no reason to go on.
fn acknowledge(line: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| Failure::internal(error.to_string()))
}

async fn pause(most_ms: u64) {
    let chance = u64::from(SystemEntropy.draw()[0]);
    tokio::time::sleep(Duration::from_millis(chance * most_ms / 255)).await;
}

fn shuffled(mut calls: Vec<u32>) -> Vec<u32> {
    for last in (1..calls.len()).rev() {
        let bytes = SystemEntropy.draw();
        let chance = u64::from_le_bytes([
            bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
        ]);
        let other = usize::try_from(chance % (last as u64 + 1)).unwrap_or_default();
        calls.swap(last, other);
    }
    calls
}
