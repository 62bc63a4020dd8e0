//! A ledger without a gateway: the most that a gateway on the same machine could reach.

use std::time::Duration;

use ichido_core::Key;
use ichido_ledger::{Failure, Once, Settings, open};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Keys per second that so many callers claim and complete, each with an outcome of 200 bytes.
pub(crate) fn rate(url: &str, callers: u32, time: Duration) -> f64 {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let ledger = open(url, Settings::default()).await.unwrap();
        let (mut running, started) = (JoinSet::new(), Instant::now());
        for caller in 0..callers {
            let ledger = ledger.clone();
            running.spawn(async move {
                let run = u64::from(std::process::id()) << 32 | u64::from(caller);
                let mut done = 0_u64;
                while started.elapsed() < time {
                    let key =
                        Key::unscoped(format!("alone-{run:x}-{:x}-{done}", started.elapsed().as_nanos()));
                    let outcome = async || Ok::<_, Failure<String>>("y".repeat(200));
                    assert!(matches!(ledger.once(key.unwrap(), outcome).await, Ok(Once::First(_))));
                    done += 1;
                }
                done
            });
        }
        let done: u64 = running.join_all().await.into_iter().sum();
        let took = started.elapsed();
        ledger.close().await.unwrap();
        done as f64 / took.as_secs_f64()
    })
}
