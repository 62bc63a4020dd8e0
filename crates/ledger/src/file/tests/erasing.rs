//! After a compaction, no file has what was erased.

use std::path::Path;

use ichido_core::mark::{self, Erased};
use ichido_core::{MarkKey, Metadata, Nonce, Outcome, Resolution, Resolved, Settle, Settled};

use super::{RETENTION_MS, clock, complete, grant, key, open};
use crate::{Backend, Maintain};

const SECRET: &str = "alice@example.com";

fn is_on_disk(dir: &Path) -> bool {
    let files = std::fs::read_dir(dir).unwrap().flatten();
    let contains = |bytes: Vec<u8>| bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
    files.filter_map(|entry| std::fs::read(entry.path()).ok()).any(contains)
}

#[tokio::test]
async fn compaction_leaves_nothing_of_what_was_erased() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    // A large outcome has a file of its own.
    for (text, size) in [(format!("{SECRET}-small"), 1), (format!("{SECRET}-large"), 100_000)] {
        let token = grant(&ledger, &text, 1).await.token;
        let action = Settle::Complete(Outcome::kept(SECRET.repeat(size)));
        assert_eq!(ledger.settle(&key(&text), token, &action).await.unwrap(), Settled::Applied);
    }
    let metadata = Metadata::new([("user".to_owned(), SECRET.to_owned())]).unwrap();
    let (nonce, mark_key) = (Nonce::from_bytes([1; 16]), MarkKey::new(format!("{SECRET}-event")).unwrap());
    let event = mark::Request { key: mark_key.clone(), nonce, retention_ms: RETENTION_MS, metadata };
    ledger.mark(&[event]).await.unwrap();
    complete(&ledger, "other", 1, "kept").await;
    // Full segments become spare files, which still have their bytes.
    ledger.compact().await.unwrap();
    for text in ["small", "large"] {
        let key = key(&format!("{SECRET}-{text}"));
        let token = ledger.get(&key).await.unwrap().unwrap().token;
        let erased = ledger.resolve(&key.erased(), &Resolution::Erase(token)).await.unwrap();
        assert_eq!(erased, Resolved::Applied);
    }
    let seen = ledger.get_mark(&mark_key).await.unwrap().unwrap();
    assert_eq!(ledger.erase_mark(&seen).await.unwrap(), Erased::Whole);
    assert!(is_on_disk(dir.path()), "older segments have it");
    ledger.compact().await.unwrap();
    assert!(!is_on_disk(dir.path()));
    ledger.close().await.unwrap();
    let ledger = open(dir.path(), &clock);
    assert!(ledger.get(&key(&format!("{SECRET}-large"))).await.unwrap().unwrap().key.is_erased());
    assert!(ledger.get_mark(&mark_key).await.unwrap().is_some());
    assert!(ledger.get(&key("other")).await.unwrap().is_some_and(|record| !record.key.is_erased()));
    assert_eq!(ledger.verify().await.unwrap().problems, Vec::<String>::new());
}
