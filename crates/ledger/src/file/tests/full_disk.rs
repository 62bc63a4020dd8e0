//! A full disk: nothing is acknowledged that is not durable, and the ledger recovers by itself once there is space.

use std::fs;
use std::time::Duration;

use ichido_core::{Claim, Fingerprint, Outcome, Settle, Settled};

use super::{clock, key, open, request};
use crate::{Backend, Effect, Kind, Maintain};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_acknowledges_nothing_and_is_recovered_from() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_mount) = ichido_testkit::tmpfs::Tmpfs::mount(dir.path(), "size=24m") else { return };
    let ledger = open(&dir.path().join("ledger"), &clock());
    let ballast = dir.path().join("ballast");
    fs::write(&ballast, vec![1; 16 * 1024 * 1024]).unwrap();

    let body = |number: u32| -> Vec<u8> {
        (0..1024_u32)
            .flat_map(|part| *Fingerprint::of([number.to_be_bytes(), part.to_be_bytes()]).as_bytes())
            .collect()
    };
    let held = ["held", "completed"].map(|text| request(text, 1));
    for request in &held {
        assert!(matches!(ledger.claim(request).await.unwrap(), Claim::Granted(_)));
    }
    let mut acknowledged = Vec::new();
    let mut error = None;
    for number in 0..2_000 {
        let text = format!("k{number}");
        let result = async {
            let claim = ledger.claim(&request(&text, 1)).await?;
            assert!(matches!(claim, Claim::Granted(_)));
            let action = Settle::Complete(Outcome::kept(body(number)));
            ledger.settle(&key(&text), request(&text, 1).token, &action).await
        };
        match result.await {
            Ok(settled) => {
                assert_eq!(settled, Settled::Applied);
                acknowledged.push(number);
            }
            Err(failed) => {
                error = Some(failed);
                break;
            }
        }
    }
    let error = error.expect("the disk should have been full");
    assert_eq!(error.kind(), &Kind::Unavailable);
    let text = error.to_string();
    assert!(text.contains("disk is full") && text.contains(dir.path().to_str().unwrap()), "{text}");
    assert!(!acknowledged.is_empty());

    fs::remove_file(&ballast).unwrap();
    let mut works = false;
    for _ in 0..200 {
        if ledger.claim(&request("afterwards", 1)).await.is_ok() {
            works = true;
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(works, "there is space, but the ledger does not recover");
    for number in &acknowledged {
        let done = ledger.claim(&request(&format!("k{number}"), 2)).await.unwrap();
        assert_eq!(done, Claim::Done(Outcome::kept(body(*number))));
    }
    // Grants survive the engine that had them in memory.
    for request in &held {
        assert!(matches!(ledger.claim(request).await.unwrap(), Claim::Granted(_)), "the same call again");
        let other = super::request(request.key.text(), 2);
        assert!(matches!(ledger.claim(&other).await.unwrap(), Claim::Held { .. }));
    }
    let action = Settle::Complete(Outcome::kept("after all"));
    assert_eq!(ledger.settle(&held[1].key, held[1].token, &action).await.unwrap(), Settled::Applied);
    // A call that was refused because the ledger was down had no effect.
    if error.effect() == Effect::None {
        let untried = ledger.claim(&request(&format!("k{}", acknowledged.len()), 2)).await.unwrap();
        assert!(!matches!(untried, Claim::Done(_)), "{untried:?}");
    }
    ledger.close().await.unwrap();
    let ledger = open(&dir.path().join("ledger"), &clock());
    assert_eq!(ledger.stats().await.unwrap().done.unwrap(), 1 + ledger_done(&acknowledged, &ledger).await);
    assert!(matches!(ledger.claim(&request("held", 2)).await.unwrap(), Claim::InDoubt(_)));
}

/// The acknowledged ones, and the one that failed if it turns out to have happened.
async fn ledger_done(acknowledged: &[u32], ledger: &super::File) -> u64 {
    let next = acknowledged.last().unwrap() + 1;
    let between = ledger.claim(&request(&format!("k{next}"), 2)).await.unwrap();
    acknowledged.len() as u64 + u64::from(matches!(between, Claim::Done(_)))
}
