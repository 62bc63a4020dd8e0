//! Fills a directory with a large ledger, a large spool, and the settings of a daemon for both.

use std::path::Path;

use ichido_bench::records;
use ichido_core::{Claim, Key, Outcome, Settled};
use ichido_ledger::{Ledger, Settings, open};

/// The receiver. Nothing listens there, so the spool does not change.
pub(crate) const ENVIRONMENT: [(&str, &str); 5] = [
    ("DATA_DIR", "data"),
    ("EXTERNAL_API_ENDPOINT", "http://127.0.0.1:9/v1/usage"),
    ("EXTERNAL_API_TOKEN", "bench-token"),
    ("EXTERNAL_API_ALLOW_HTTP_LOOPBACK", "true"),
    ("NOTIFY_CHANNEL", "log"),
];

/// Writes settings for a gateway and a sender. Nothing listens at the upstream.
pub(crate) fn settings(dir: &Path) {
    let text = "[ledger]\nurl = \"file:ledger\"\n\n[gateway]\nlisten = \"127.0.0.1:0\"\nupstream = \"http://127.0.0.1:9\"\n";
    std::fs::write(dir.join("ichido.toml"), text).unwrap();
}

/// Fills the spool.
pub(crate) fn spool(dir: &Path, files: u64) {
    records::fill(&dir.join("data"), files, 1);
}

/// Fills the ledger: one claim in a hundred is in doubt, the others are done.
pub(crate) fn ledger(dir: &Path, claims: usize) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let url = format!("file:{}", dir.join("ledger").display());
    runtime.block_on(async {
        let ledger = open(&url, Settings::default()).await.unwrap();
        let callers = 256;
        let tasks = (0..callers).map(|caller| {
            let ledger = ledger.clone();
            tokio::spawn(async move {
                for number in (caller..claims).step_by(callers) {
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

async fn one(ledger: &Ledger, number: usize) {
    let key = Key::unscoped(format!("order-{number:07}")).unwrap();
    let Claim::Granted(grant) = ledger.claim(&ledger.request(key.clone())).await.unwrap().claim else {
        panic!("{number} was claimed before")
    };
    let settled = match number % 100 {
        0 => ledger.declare_in_doubt(&key, grant.token, "timeout").await.unwrap(),
        _ => ledger.complete(&key, grant.token, Outcome::kept("{\"id\":1}")).await.unwrap(),
    };
    assert_eq!(settled, Settled::Applied);
}
