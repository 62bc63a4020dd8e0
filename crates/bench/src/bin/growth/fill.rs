//! Fills a file ledger with completed claims.

use std::ops::Range;

use ichido_core::{Claim, Key, Outcome, Settled};
use ichido_ledger::{Ledger, Settings, open};

const CALLERS: usize = 256;

/// Claims and completes keys of these numbers, then closes the ledger.
pub(crate) fn fill(url: &str, numbers: Range<u64>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let ledger = open(url, Settings::default()).await.unwrap();
        let tasks = (0..CALLERS as u64).map(|caller| {
            let (ledger, numbers) = (ledger.clone(), numbers.clone());
            tokio::spawn(async move {
                for number in (numbers.start + caller..numbers.end).step_by(CALLERS) {
                    one(&ledger, number).await;
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        ledger.close().await.unwrap();
    });
}

async fn one(ledger: &Ledger, number: u64) {
    let key = Key::unscoped(format!("fill-{number:010}")).unwrap();
    let Claim::Granted(grant) = ledger.claim(&ledger.request(key.clone())).await.unwrap().claim else {
        panic!("{number} was claimed before")
    };
    let outcome = Outcome::kept(format!("{{\"id\":{number},\"note\":\"{}\"}}", "y".repeat(180)));
    assert_eq!(ledger.complete(&key, grant.token, outcome).await.unwrap(), Settled::Applied);
}
